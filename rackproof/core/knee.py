"""Latency against load: the knee, the highest rate, the Universal Scalability Law, the next load to measure. Pure.

The knee is the smallest load whose 99th percentile of latency is twice that of the lowest load. A hiccup looks like a
knee, so the lowest load and the one above the knee are measured twice, and the smaller percentile counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from rackproof.core.noise import STUDENT_95

FACTOR: Final = 2.0
"""99th percentile at the knee over that of the lowest load."""
LEAST_REQUESTS: Final = 500
"""Minimum number of requests of a step: five of them are above its 99th percentile."""
ATTEMPTS: Final = 3
"""Attempts at a load that does not obey Little's law, which is a disturbed machine."""
MOST_REPEATED: Final = ATTEMPTS + 1
"""Runs of one load at most: one that counts, and the attempts at its second measurement."""
LITTLE: Final = 0.05
"""Tolerance of rate × latency against requests in flight, as in ``judging.gates``."""
LEAST_LOADS: Final = 5
"""Minimum number of loads of a fit: three coefficients, and an estimate of their error."""
GROWTH: Final = 1.05
"""A rate that a larger load raises by less no longer grows: the highest rate is reached."""


@dataclass(frozen=True, slots=True)
class LoadStep:
    """One step of a search, all clients together."""

    load: int
    """Requests in flight of one client (closed loop), or the offered rate in % of the highest (open loop)."""
    rate: float
    """Requests a second that ended."""
    p99_s: float
    """99th percentile of the slowest client."""
    saturated: bool = False
    """Open loop: the storage did not keep up with the arrivals."""
    lawful: bool = True
    """Closed loop: Little's law holds for every client."""


class Knee(NamedTuple):
    load: float
    """Interpolated between the steps on both sides."""
    rate: float
    below: int
    above: int


@dataclass(frozen=True, slots=True)
class Search:
    """Loads that a search may choose."""

    lowest: int
    highest: int
    further: Callable[[int], int]
    """The next load while latency has not doubled."""
    between: Callable[[int, int], int | None]
    """The next load to measure between two loads; None: they are near enough."""
    to_the_peak: bool
    """Whether larger loads follow until the rate no longer grows."""

    @property
    def loads(self) -> tuple[int, ...]:
        """All loads that it may choose, each at most ``MOST_REPEATED`` times."""
        chain = [self.lowest]
        while chain[-1] < self.highest:
            chain.append(min(self.highest, self.further(chain[-1])))
        every, pairs = set(chain), list(pairwise(chain))
        while pairs:
            low, high = pairs.pop()
            if (middle := self.between(low, high)) is not None:
                every.add(middle)
                pairs += [(low, middle), (middle, high)]
        return tuple(sorted(every))

    def next(self, steps: Sequence[LoadStep]) -> int | None:
        """The load to measure next; None: the answer is clear."""
        if steps and not steps[-1].lawful:
            unlawful = [step for step in steps if step.load == steps[-1].load and not step.lawful]
            if len(unlawful) < ATTEMPTS:
                return steps[-1].load
        counts: dict[int, int] = {}
        for step in steps:
            counts[step.load] = counts.get(step.load, 0) + 1
        if counts.get(self.lowest, 0) < 2:
            return self.lowest
        best = smallest(steps)
        top = best[-1]
        pair = _bracket(best)
        if pair is not None:
            middle = self.between(pair[0].load, pair[1].load)
            if middle is not None:
                return middle
            if counts[pair[1].load] == 1:
                return pair[1].load
        growing = top.rate > GROWTH * max((step.rate for step in best[:-1]), default=0.0)
        if top.load < self.highest and (pair is None or (self.to_the_peak and growing)):
            return min(self.highest, self.further(top.load))
        return None


def closed_loop(processes: int, highest: int) -> Search:
    """Requests in flight of one client: 1, 4, 16 … until latency doubles, then the geometric mean of the two bounds.

    Above ``processes`` loads are multiples of it, because each process has the same depth.
    """

    def allowed(load: float) -> int:
        return round(load) if load <= processes else max(1, round(load / processes)) * processes

    def between(low: int, high: int) -> int | None:
        middle = allowed(math.sqrt(low * high))
        return middle if high > 1.25 * low and low < middle < high else None

    return Search(1, allowed(highest), lambda load: allowed(4 * load), between, to_the_peak=True)


def open_loop() -> Search:
    """Offered rates from 5 to 100 % of the highest rate, to within 5 points."""

    def between(low: int, high: int) -> int | None:
        return (low + high) // 2 if high - low > 5 else None

    return Search(5, 100, lambda load: 100, between, to_the_peak=False)


def smallest(steps: Iterable[LoadStep]) -> list[LoadStep]:
    """One step a load, in the order of loads: the one with the smaller percentile."""
    best: dict[int, LoadStep] = {}
    for step in steps:
        if (known := best.get(step.load)) is None or _order(step) < _order(known):
            best[step.load] = step
    return [best[load] for load in sorted(best)]


def _order(step: LoadStep) -> tuple[bool, bool, float]:
    return not step.lawful, step.saturated, step.p99_s


def knee_of(steps: Iterable[LoadStep]) -> Knee | None:
    """The knee; None: latency has not doubled at any load. Raises ValueError without a first latency."""
    best = smallest(steps)
    if not best or not best[0].p99_s > 0:
        raise ValueError("no latency at the lowest load")
    if best[0].saturated:
        raise ValueError(f"the storage does not keep up with {best[0].load} % of its own highest rate")
    pair = _bracket(best)
    if pair is None:
        return None
    below, above = pair
    limit = FACTOR * best[0].p99_s
    if above.p99_s < limit or above.load == below.load:
        return Knee(float(below.load), below.rate, below.load, above.load)  # saturated: no latency to interpolate with
    steep = above.p99_s / below.p99_s
    share = 0.0 if steep <= 1 else min(1.0, max(0.0, math.log(limit / below.p99_s) / math.log(steep)))
    load, rate = (a * (b / a) ** share for a, b in ((below.load, above.load), (below.rate, above.rate)))
    return Knee(load, rate, below.load, above.load)


def peak_of(steps: Iterable[LoadStep]) -> LoadStep:
    """The step with the highest rate; of equal ones that with the smallest load."""
    return max(steps, key=lambda step: (step.rate, -step.load))


def _bracket(best: Sequence[LoadStep]) -> tuple[LoadStep, LoadStep] | None:
    """The last load before latency has doubled, and the first one where it has."""
    limit = FACTOR * best[0].p99_s
    for below, above in pairwise(best):
        if above.saturated or above.p99_s >= limit:
            return below, above
    return None


def little_error(rate: float, mean_s: float, outstanding: float) -> float:
    """Relative deviation from Little's law, requests in flight = rate × latency."""
    return rate * mean_s / outstanding - 1 if outstanding > 0 else math.inf


class Interval(NamedTuple):
    """An estimate with its 95 % confidence interval."""

    value: float
    low: float
    high: float


class Scalability(NamedTuple):
    """X(N) = rate × N / (1 + contention × (N - 1) + coherency × N × (N - 1)), Gunther's Universal Scalability Law."""

    rate: Interval
    """Requests a second with one request in flight."""
    contention: Interval
    coherency: Interval
    error: float
    """Root mean square of the relative deviations of the steps."""

    @property
    def peak(self) -> float | None:
        """Requests in flight with the highest rate; None where the rate only approaches a limit."""
        kappa = self.coherency.value
        return math.sqrt(max(0.0, 1 - self.contention.value) / kappa) if kappa > 0 else None

    @property
    def figures(self) -> Mapping[str, object]:
        """As recorded among conditions."""
        names = ("rate", "contention", "coherency")
        fits: dict[str, object] = {name: list(getattr(self, name)) for name in names}
        return fits | {"peak": self.peak, "error": self.error}


def fit_scalability(points: Iterable[tuple[float, float]]) -> Scalability | None:
    """Least squares of N / X = a + b (N - 1) + c N (N - 1), with relative errors. None with fewer than ``LEAST_LOADS``.

    ``points``: requests in flight and rate. Negative coefficients are noise: their term is left out.
    """
    usable = [(n, x) for n, x in points if n >= 1 and x > 0]
    if len({n for n, _ in usable}) < LEAST_LOADS:
        return None
    terms: tuple[int, ...] = (0, 1, 2)
    while True:
        solved = _least_squares(usable, terms)
        if solved is None:
            return None
        values, spread, error = solved
        negative = [term for term, value in zip(terms, values, strict=True) if value < 0 and term]
        if not negative:
            break
        terms = tuple(term for term in terms if term not in negative)
    of_term = dict(zip(terms, zip(values, spread, strict=True), strict=True))
    a, a_off = of_term[0]
    if a <= 0:
        return None

    def share(term: int) -> Interval:
        """b / a or c / a; relative deviations are added in quadrature."""
        value, off = of_term.get(term, (0.0, 0.0))
        width = value / a * math.hypot(off / value, a_off / a) if value else 0.0
        return Interval(value / a, max(0.0, value / a - width), value / a + width)

    rate = Interval(1 / a, 1 / (a + a_off), 1 / (a - a_off) if a_off < a else math.inf)
    return None if math.isinf(rate.high) else Scalability(rate, share(1), share(2), error)


def _least_squares(
    points: Sequence[tuple[float, float]], terms: Sequence[int]
) -> tuple[list[float], list[float], float] | None:
    """Coefficients of the terms, half widths of their intervals, relative error. None for a singular system."""
    rows = [[(1.0, n - 1, n * (n - 1))[term] * x / n for term in terms] for n, x in points]  # divided by N / X
    size = len(terms)
    normal = [[math.fsum(row[i] * row[k] for row in rows) for k in range(size)] for i in range(size)]
    inverse = _inverse(normal)
    if inverse is None:
        return None
    sums = [math.fsum(row[i] for row in rows) for i in range(size)]
    values = [math.fsum(inverse[i][k] * sums[k] for k in range(size)) for i in range(size)]
    squares = math.fsum((1 - math.fsum(v * r for v, r in zip(values, row, strict=True))) ** 2 for row in rows)
    free = len(rows) - size
    quantile = STUDENT_95[min(free, len(STUDENT_95)) - 1]
    spread = [quantile * math.sqrt(max(0.0, inverse[i][i]) * squares / free) for i in range(size)]
    return values, spread, math.sqrt(squares / len(rows))


def _inverse(matrix: Sequence[Sequence[float]]) -> list[list[float]] | None:
    """Gauss and Jordan, on a matrix scaled to ones in its diagonal; None if it is singular."""
    size = len(matrix)
    scale = [math.sqrt(matrix[i][i]) for i in range(size)]
    if min(scale) <= 0:
        return None
    work = [
        [matrix[i][k] / scale[i] / scale[k] for k in range(size)] + [float(i == k) for k in range(size)]
        for i in range(size)
    ]
    for column in range(size):
        pivot = max(range(column, size), key=lambda i: abs(work[i][column]))
        if abs(work[pivot][column]) < 1e-12:
            return None
        work[column], work[pivot] = work[pivot], work[column]
        work[column] = [number / work[column][column] for number in work[column]]
        for i in range(size):
            if i != column:
                work[i] = [a - work[i][column] * b for a, b in zip(work[i], work[column], strict=True)]
    return [[work[i][size + k] / scale[i] / scale[k] for k in range(size)] for i in range(size)]
