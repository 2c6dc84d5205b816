"""Noise: the largest difference of two medians that is not a change.

A change must exceed two limits. The first is the samples' scatter: the 95 % interval of the difference of two medians,
from the pooled standard deviation and Student's t. The second is a threshold in percent of the better number, because
one number in twenty leaves its interval by chance. With one sample per run the scatter is unknown; the threshold is
then wider, and the remark has the reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

THRESHOLD_PCT = 5.0
"""With several samples in both runs: MLPerf Storage's limit for repeated runs."""
ONE_SAMPLE_PCT = 10.0
"""With one sample in a run."""

STUDENT_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t, two-sided 95 %, for 1 to 30 degrees of freedom; the last one is conservative for more."""

_MEDIAN = math.pi / 2
"""Variance of a median over that of a mean of as many samples; of two samples the median is the mean."""


class Noise(NamedTuple):
    """``width`` is in the unit of the samples, and equal for both runs."""

    width: float
    remark: str
    """Why the scatter is unknown; empty if it is known."""


def noise_between(
    before: Sequence[float], after: Sequence[float], better: float, threshold_pct: float | None = None
) -> Noise:
    """Noise of two sets of samples in one unit, neither empty. ``better`` is the better one of their medians.

    ``threshold_pct`` replaces both thresholds of this module.
    """
    measurable = min(len(before), len(after)) > 1
    percent = threshold_pct if threshold_pct is not None else THRESHOLD_PCT if measurable else ONE_SAMPLE_PCT
    return Noise(max(percent / 100 * abs(better), _scatter(before, after)), _remark(before, after))


def _scatter(before: Sequence[float], after: Sequence[float]) -> float:
    """Half the 95 % interval of the difference of the medians, variance pooled; 0 if neither side has two samples."""
    freedom = len(before) + len(after) - 2
    if freedom < 1:
        return 0.0
    variance = (_squares(before) + _squares(after)) / freedom
    of_medians = sum(sorted((_MEDIAN if len(samples) > 2 else 1.0) / len(samples) for samples in (before, after)))
    return STUDENT_95[min(freedom, len(STUDENT_95)) - 1] * math.sqrt(variance * of_medians)


def _squares(samples: Sequence[float]) -> float:
    mean = math.fsum(samples) / len(samples)
    return math.fsum((sample - mean) ** 2 for sample in samples)


def _remark(before: Sequence[float], after: Sequence[float]) -> str:
    match len(before) == 1, len(after) == 1:
        case True, True:
            return "one sample on each side, noise unknown"
        case True, False:
            return "one sample in A, its noise unknown"
        case False, True:
            return "one sample in B, its noise unknown"
    return ""
