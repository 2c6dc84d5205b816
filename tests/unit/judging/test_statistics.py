from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.core.architecture import Reduce, Statistic
from rackproof.core.judging.statistics import cv_pct, ratio_of, reduce_members, samples_needed, statistic_of

numbers = st.floats(min_value=1e-3, max_value=1e9)


@pytest.mark.parametrize(
    ("statistic", "expected"),
    [(Statistic.MEDIAN, 3.0), (Statistic.MEAN, 4.0), (Statistic.MIN, 1.0), (Statistic.MAX, 9.0)],
)
def test_statistics_of_samples(statistic: Statistic, expected: float) -> None:
    assert statistic_of([9.0, 1.0, 3.0, 2.0, 5.0], statistic) == expected


@pytest.mark.parametrize(
    ("statistic", "count", "rank"),
    [
        (Statistic.P1, 100, 1),
        (Statistic.P1, 101, 2),
        (Statistic.P5, 20, 1),
        (Statistic.P10, 10, 1),
        (Statistic.P10, 15, 2),
        (Statistic.P90, 10, 9),
        (Statistic.P95, 20, 19),
        (Statistic.P95, 40, 38),
        (Statistic.P99, 100, 99),
        (Statistic.P99, 250, 248),
    ],
)
def test_a_percentile_is_one_of_the_samples(statistic: Statistic, count: int, rank: int) -> None:
    assert statistic_of([float(value) for value in range(count, 0, -1)], statistic) == rank


@pytest.mark.parametrize(
    ("statistic", "least"),
    [(Statistic.P1, 100), (Statistic.P99, 100), (Statistic.P5, 20), (Statistic.P95, 20), (Statistic.P10, 10)],
)
def test_a_percentile_of_too_few_samples_has_no_meaning(statistic: Statistic, least: int) -> None:
    assert samples_needed(statistic) == least
    with pytest.raises(ValueError, match=f"needs {least} samples, actual {least - 1}"):
        statistic_of([1.0] * (least - 1), statistic)


@given(st.lists(numbers, min_size=100, max_size=120), st.sampled_from([s for s in Statistic if s.value[0] == "p"]))
def test_so_many_percent_do_not_exceed_a_percentile(samples: list[float], statistic: Statistic) -> None:
    value, percent = statistic_of(samples, statistic), int(statistic.value[1:])
    assert 100 * sum(sample <= value for sample in samples) >= percent * len(samples)
    assert 100 * sum(sample < value for sample in samples) < percent * len(samples)


@pytest.mark.parametrize(
    ("reduce", "expected"),
    [
        (Reduce.MIN, 1.0),
        (Reduce.MAX, 8.0),
        (Reduce.MEDIAN, 4.0),
        (Reduce.SUM, 13.0),
        (Reduce.MIN_OVER_MEDIAN, 0.25),
        (Reduce.MAX_OVER_MEDIAN, 2.0),
        (Reduce.SPREAD_OVER_MEDIAN, 1.75),
    ],
)
def test_members_become_one_number(reduce: Reduce, expected: float) -> None:
    assert reduce_members([8.0, 1.0, 4.0], reduce) == expected


@pytest.mark.parametrize(
    ("values", "reduce"),
    [
        ([], Reduce.MIN),
        ([], Reduce.SUM),
        ([1.0], Reduce.EACH),
        ([1.0], Reduce.MIN_OVER_MEDIAN),
        ([1.0], Reduce.SPREAD_OVER_MEDIAN),
    ],
)
def test_what_cannot_be_reduced(values: list[float], reduce: Reduce) -> None:
    with pytest.raises(ValueError, match="member"):
        reduce_members(values, reduce)


@pytest.mark.parametrize("median", [0.0, 5e-324])
def test_nothing_is_compared_with_nought(median: float) -> None:
    with pytest.raises(ZeroDivisionError):
        reduce_members([median, median, 10.0], Reduce.MAX_OVER_MEDIAN)
    with pytest.raises(ZeroDivisionError):
        ratio_of(10.0, median)


def test_scatter_of_one_sample_is_unknown_and_of_equal_ones_nought() -> None:
    assert cv_pct([]) is None
    assert cv_pct([5.0]) is None
    assert cv_pct([0.0, 0.0]) == 0.0
    assert cv_pct([7.1, 7.1, 7.1]) == 0.0


@given(st.lists(numbers, min_size=2, max_size=9))
def test_scatter_is_the_sample_standard_deviation_over_the_mean(samples: list[float]) -> None:
    expected = 100 * statistics.stdev(samples) / statistics.mean(samples)
    assert cv_pct(samples) == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(st.lists(numbers, min_size=2, max_size=9), st.randoms())
def test_the_order_of_members_does_not_matter(values: list[float], random: object) -> None:
    shuffled = values.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for reduce in set(Reduce) - {Reduce.EACH}:
        assert reduce_members(values, reduce) == reduce_members(shuffled, reduce)
