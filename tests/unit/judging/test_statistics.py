from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.core.architecture import Reduce, Statistic
from rackproof.core.judging.statistics import cv_pct, ratio_of, reduce_members, statistic_of

numbers = st.floats(min_value=1e-3, max_value=1e9)


@pytest.mark.parametrize(
    ("statistic", "expected"),
    [(Statistic.MEDIAN, 3.0), (Statistic.MEAN, 4.0), (Statistic.MIN, 1.0), (Statistic.MAX, 9.0)],
)
def test_statistics_of_samples(statistic: Statistic, expected: float) -> None:
    assert statistic_of([9.0, 1.0, 3.0, 2.0, 5.0], statistic) == expected


@pytest.mark.parametrize(
    ("reduce", "expected"),
    [
        (Reduce.MIN, 1.0),
        (Reduce.MAX, 8.0),
        (Reduce.MEDIAN, 4.0),
        (Reduce.SUM, 13.0),
        (Reduce.MIN_OVER_MEDIAN, 0.25),
        (Reduce.MAX_OVER_MEDIAN, 2.0),
    ],
)
def test_members_become_one_number(reduce: Reduce, expected: float) -> None:
    assert reduce_members([8.0, 1.0, 4.0], reduce) == expected


@pytest.mark.parametrize(
    ("values", "reduce"),
    [([], Reduce.MIN), ([], Reduce.SUM), ([1.0], Reduce.EACH), ([1.0], Reduce.MIN_OVER_MEDIAN)],
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
