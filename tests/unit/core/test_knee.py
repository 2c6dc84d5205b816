"""Searches on synthetic storages with a known knee: it is found within 20 %, in fewer steps than a sweep."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.core.knee import (
    MOST_REPEATED,
    LoadStep,
    Search,
    closed_loop,
    fit_scalability,
    knee_of,
    little_error,
    open_loop,
    peak_of,
)

SERVICE_S = 0.001
Storage = Callable[[int], LoadStep]


def servers(count: int, noise: float = 0.0, seed: int = 0) -> Storage:
    """``count`` servers of one millisecond: latency doubles at twice as many requests in flight."""
    chance = random.Random(seed)  # noqa: S311

    def measure(load: int) -> LoadStep:
        mean = SERVICE_S * max(1.0, load / count)
        return LoadStep(load, load / mean, 3 * mean * (1 + noise * chance.uniform(-1, 1)))

    return measure


def queue(noise: float = 0.0, seed: int = 0) -> Storage:
    """M/M/1: latency is 1 / (1 - utilisation), so it has doubled at 52.5 % of the highest rate when 5 % is the base."""
    chance = random.Random(seed)  # noqa: S311

    def measure(percent: int) -> LoadStep:
        share = min(percent / 100, 0.999)
        p99 = SERVICE_S / (1 - share) * (1 + noise * chance.uniform(-1, 1))
        return LoadStep(percent, 1000 * share, p99, saturated=percent >= 100)

    return measure


def explore(search: Search, storage: Storage) -> list[LoadStep]:
    steps: list[LoadStep] = []
    while (load := search.next(steps)) is not None:
        steps.append(storage(load))
        assert len(steps) < 40, "the search does not end"
    return steps


@given(st.sampled_from([closed_loop(1, 1024), closed_loop(64, 1000), closed_loop(3, 7), open_loop()]), st.data())
def test_a_search_chooses_no_other_loads_and_none_more_often(search: Search, data: st.DataObject) -> None:
    """Whatever a storage answers."""
    steps: list[LoadStep] = []
    while (load := search.next(steps)) is not None:
        rate, p99 = data.draw(st.sampled_from([1, 50, 900])), data.draw(st.sampled_from([0.001, 0.0015, 0.004]))
        steps.append(LoadStep(load, rate * load, p99, lawful=data.draw(st.booleans())))
        assert load in search.loads
        assert [step.load for step in steps].count(load) <= MOST_REPEATED


@given(st.integers(2, 400), st.sampled_from([1, 4, 16]), st.integers(0, 9))
def test_a_closed_loop_finds_the_knee_within_20_percent(count: int, processes: int, seed: int) -> None:
    steps = explore(closed_loop(processes, 1024), servers(count, 0.03, seed))
    knee = knee_of(steps)
    assert knee is not None
    assert knee.load == pytest.approx(2 * count, rel=0.2)
    assert peak_of(steps).rate == pytest.approx(count / SERVICE_S, rel=0.1)
    assert all(step.load <= processes or step.load % processes == 0 for step in steps)


@given(st.integers(0, 99))
def test_an_open_loop_finds_the_knee_within_20_percent(seed: int) -> None:
    steps = explore(open_loop(), queue(0.03, seed))
    knee = knee_of(steps)
    assert knee is not None
    assert knee.rate == pytest.approx(525, rel=0.2)
    assert len(steps) < 20  # a sweep in steps of 5 % has 20


def test_a_search_needs_fewer_steps_than_a_sweep_of_its_resolution() -> None:
    steps = explore(closed_loop(1, 1024), servers(20))
    assert len(steps) < 12, steps
    assert max(step.load for step in steps) < 1024


@given(st.integers(2, 60), st.integers(2, 12))
def test_a_hiccup_is_no_knee(count: int, at: int) -> None:
    """One step with ten times the latency is measured again."""
    own, number = servers(count), [0]

    def measure(load: int) -> LoadStep:
        number[0] += 1
        step = own(load)
        return LoadStep(load, step.rate, step.p99_s * (10 if number[0] == at else 1))

    knee = knee_of(explore(closed_loop(1, 1024), measure))
    assert knee is not None
    assert knee.load == pytest.approx(2 * count, rel=0.2)


def test_a_storage_without_a_knee_has_none() -> None:
    steps = explore(closed_loop(8, 1024), servers(5000))
    assert knee_of(steps) is None
    assert max(step.load for step in steps) == 1024


def test_a_storage_that_does_not_keep_up_with_its_lowest_rate_has_no_knee() -> None:
    with pytest.raises(ValueError, match="does not keep up with 5 %"):
        knee_of([LoadStep(5, 40.0, 0.001, saturated=True), LoadStep(100, 40.0, 0.001, saturated=True)])
    with pytest.raises(ValueError, match="no latency"):
        knee_of([])


def test_a_saturated_step_counts_as_above_the_knee() -> None:
    knee = knee_of([LoadStep(5, 50.0, 0.001), LoadStep(50, 500.0, 0.001), LoadStep(55, 500.0, 0.001, saturated=True)])
    assert knee is not None
    assert (knee.load, knee.rate) == (50.0, 500.0)


@given(st.floats(10, 1e5), st.floats(0.0, 0.3), st.floats(1e-5, 1e-2))
def test_the_scalability_law_is_fitted_to_points_of_it(rate: float, contention: float, coherency: float) -> None:
    def throughput(n: int) -> float:
        return rate * n / (1 + contention * (n - 1) + coherency * n * (n - 1))

    law = fit_scalability([(n, throughput(n)) for n in (1, 2, 4, 8, 16, 32, 64, 128)])
    assert law is not None
    assert law.rate.value == pytest.approx(rate, rel=1e-4)
    assert law.contention.value == pytest.approx(contention, rel=1e-3, abs=1e-6)
    assert law.coherency.value == pytest.approx(coherency, rel=1e-3)
    assert law.error < 1e-6


def test_the_interval_holds_the_truth_and_grows_with_noise() -> None:
    chance = random.Random(7)  # noqa: S311
    widths = []
    for noise in (0.01, 0.1):
        points = [
            (n, 100 * n / (1 + 0.05 * (n - 1)) * (1 + noise * chance.uniform(-1, 1)))
            for n in (1, 1, 2, 4, 8, 16, 32, 64)
        ]
        law = fit_scalability(points)
        assert law is not None
        assert law.contention.low <= 0.05 <= law.contention.high
        widths.append(law.contention.high - law.contention.low)
    assert widths[0] < widths[1]


def test_few_points_have_no_fit() -> None:
    assert fit_scalability([(1, 10.0), (2, 20.0), (4, 30.0), (8, 40.0)]) is None


def test_littles_law() -> None:
    assert little_error(1000, 0.008, 8) == pytest.approx(0)
    assert little_error(1000, 0.010, 8) == pytest.approx(0.25)
    assert little_error(1000, 0.010, 0) == float("inf")
