"""Statistics of samples and of groups of members.

No function takes the best of several tries: the best run of a broken link looks like a good link.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median

from rackproof.core.architecture import Reduce, Statistic

ALONE = "a comparison between members needs at least two of them"
PERCENTILES = {
    Statistic.P1: (1, 100),
    Statistic.P5: (5, 20),
    Statistic.P10: (10, 10),
    Statistic.P90: (90, 10),
    Statistic.P95: (95, 20),
    Statistic.P99: (99, 100),
}
"""By statistic: percent, and the minimum number of samples."""

_OF_SAMPLES: Mapping[Statistic, Callable[[Sequence[float]], float]] = {
    Statistic.MEDIAN: median,
    Statistic.MEAN: fmean,
    Statistic.MIN: min,
    Statistic.MAX: max,
}
_OF_MEMBERS: Mapping[Reduce, Callable[[Sequence[float]], float]] = {
    Reduce.MIN: min,
    Reduce.MAX: max,
    Reduce.MEDIAN: median,
    Reduce.SUM: math.fsum,
}


def samples_needed(statistic: Statistic) -> int:
    """Minimum number of samples of a statistic; with fewer, a percentile is just the minimum or maximum."""
    return PERCENTILES[statistic][1] if statistic in PERCENTILES else 1


def statistic_of(samples: Sequence[float], statistic: Statistic) -> float:
    """The statistic of the samples of a measurement. Raises ValueError for fewer than ``samples_needed``."""
    if statistic in _OF_SAMPLES:
        return _OF_SAMPLES[statistic](samples)
    percent, needed = PERCENTILES[statistic]
    if len(samples) < needed:
        raise ValueError(f"{statistic} needs {needed} samples, actual {len(samples)}")
    # nearest rank; in integers, because 0.95 × 20 is not 19 for every rounding
    rank = -(-percent * len(samples) // 100)
    return sorted(samples)[rank - 1]


def cv_pct(samples: Sequence[float]) -> float | None:
    """Coefficient of variation, sample standard deviation over mean, in percent.

    None for fewer than two samples: one sample says nothing about scatter. Zero where every sample is zero.
    """
    if len(samples) < 2:
        return None
    if samples.count(samples[0]) == len(samples):
        return 0.0
    mean = math.fsum(samples) / len(samples)
    # statistics.stdev goes through fractions and is fifty times slower
    squares = math.fsum([(sample - mean) ** 2 for sample in samples])
    return 100.0 * math.sqrt(squares / (len(samples) - 1)) / abs(mean) if mean else math.inf


def reduce_members(values: Sequence[float], reduce: Reduce) -> float:
    """One number for a group; the ``…_over_median`` reductions are ratios. The order of ``values`` does not matter.

    Raises ValueError for ``each``, for no values, for a ratio of fewer than two members, and ZeroDivisionError
    for a ratio over a median of zero.
    """
    if not values:
        raise ValueError("no members to reduce")
    if reduce is Reduce.EACH:
        raise ValueError("'each' gives one number per member, not one for the group")
    if reduce in _OF_MEMBERS:
        return _OF_MEMBERS[reduce](values)
    if len(values) < 2:
        raise ValueError(ALONE)
    return ratio_of(extreme_of(values, reduce), median(values))


def extreme_of(values: Sequence[float], reduce: Reduce) -> float:
    """Numerator of a ratio over the median."""
    if reduce is Reduce.SPREAD_OVER_MEDIAN:
        return max(values) - min(values)
    return min(values) if reduce is Reduce.MIN_OVER_MEDIAN else max(values)


def ratio_of(part: float, whole: float) -> float:
    """``part / whole``; raises ZeroDivisionError where ``whole`` is 0 or the ratio overflows."""
    ratio = part / whole
    if not math.isfinite(ratio):
        raise ZeroDivisionError("the ratio overflows: the whole is nearly 0")
    return ratio
