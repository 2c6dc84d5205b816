"""The emulated accelerator against theory, on a clock of the test's own."""

from __future__ import annotations

import heapq

from hypothesis import given
from hypothesis import strategies as st

from rackproof.bench.ingest.accelerator_node import Accelerator, Window, accelerate


class Pipeline:
    """Workers that take ``delay_s`` for a batch and may be ``slots`` batches ahead. Whoever sleeps on this clock wakes
    ``late_s`` too late."""

    def __init__(self, workers: int, slots: int, delay_s: float, late_s: float) -> None:
        self.now_s, self.delay_s, self.late_s = 0.0, delay_s, late_s
        self.ready = [(delay_s * number, worker) for worker in range(workers) for number in range(1, slots + 1)]
        heapq.heapify(self.ready)
        self.busy_until = dict.fromkeys(range(workers), delay_s * slots)

    def sleep_until(self, moment_s: float) -> None:
        if moment_s > self.now_s:
            self.now_s = moment_s + self.late_s

    def take(self, limit_s: float) -> tuple[int, float] | None:
        """The earliest batch; its worker begins another one as soon as it can."""
        arrived_s, worker = heapq.heappop(self.ready)
        if arrived_s > limit_s:
            return None
        self.now_s = max(self.now_s, arrived_s)
        self.busy_until[worker] = max(self.busy_until[worker], self.now_s) + self.delay_s
        heapq.heappush(self.ready, (self.busy_until[worker], worker))
        return worker, arrived_s


def utilisation(workers: int, slots: int, delay_s: float, step_s: float, late_s: float = 0.0) -> float:
    pipeline = Pipeline(workers, slots, delay_s, late_s)
    longest = max(delay_s, step_s)
    window = Window(20 * longest, 1020 * longest)
    accelerator = Accelerator(step_s, window)
    accelerate(accelerator, pipeline.take, pipeline.sleep_until)
    return accelerator.busy_s / (window.end_s - window.begin_s)


@given(st.integers(1, 8), st.floats(0.01, 2.0), st.floats(0.01, 2.0))
def test_utilisation_is_that_of_theory_within_one_percent(workers: int, delay_s: float, step_s: float) -> None:
    """A pipeline gives workers / delay batches a second; an accelerator that waits for none takes 1 / step."""
    theory = min(1.0, workers * step_s / delay_s)
    assert abs(utilisation(workers, 4, delay_s, step_s) - theory) <= 0.01


@given(st.integers(1, 8), st.floats(0.05, 0.9))
def test_waking_late_costs_nothing_while_batches_wait(workers: int, share: float) -> None:
    assert utilisation(workers, 4, share * workers, 1.0, late_s=0.05) > 0.99


def test_only_the_window_counts() -> None:
    accelerator = Accelerator(2.0, Window(5.0, 10.0))
    assert [accelerator.take(moment) for moment in (0.0, 0.0, 4.0, 9.5, 9.5)] == [2.0, 4.0, 6.0, 11.5, 13.5]
    assert accelerator.busy_s == 1.0 + 0.5
    assert accelerator.steps == 1


def test_an_accelerator_without_batches_is_never_busy() -> None:
    accelerator = Accelerator(1.0, Window(0.0, 10.0))
    accelerate(accelerator, lambda limit_s: None, lambda moment_s: None)
    assert accelerator.busy_s == 0.0
