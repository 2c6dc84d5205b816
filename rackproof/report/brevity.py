"""Details that a certificate leaves to the evidence, so that a rack of 1,000 nodes has one of a few megabytes.

Every verdict and every number stays. Samples, conditions, messages and outputs stay with everything that did not pass,
and with the worst of what did; ``evidence.jsonl`` has them all, by the verdict's ``records``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any, Final, TypeVar

from rackproof.core.evidence import Scope
from rackproof.core.metrics import METRICS
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict, amended
from rackproof.report.schema import DeploySummary, MeasurementSummary, RawOutput

T = TypeVar("T")

DETAILED: Final = 16
"""Passing verdicts of a criterion, and measurements of a metric with the same labels, that keep their details; also
rows of a table of the page, if fewer have a finding."""
LISTED: Final = 500
"""Outputs that the certificate lists: as many as the page shows."""


def brief_verdicts(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Verdicts on criteria that pass keep their message, samples and outputs only among the ``DETAILED`` closest."""

    def kind(v: Verdict) -> str | None:
        return v.id if v.kind == "criterion" and v.status is Status.PASS else None

    far = _beyond(verdicts, kind, lambda v: 0.0 if v.distance_pct is None else v.distance_pct)
    return [amended(v, message="", samples=(), cv_pct=None, raw=()) if i in far else v for i, v in enumerate(verdicts)]


def brief_measurements(measurements: Sequence[MeasurementSummary]) -> list[MeasurementSummary]:
    """Measurements of members keep samples, conditions and outputs only among the ``DETAILED`` worst of their kind."""

    def kind(m: MeasurementSummary) -> Hashable:
        return None if m.scope is Scope.RACK or m.median is None else (m.metric, m.scope, *sorted(m.labels.items()))

    def goodness(m: MeasurementSummary) -> float:
        higher = m.metric not in METRICS or METRICS[m.metric].higher_is_better
        return (m.median or 0.0) * (1 if higher else -1)

    far = _beyond(measurements, kind, goodness)
    less: dict[str, Any] = {"samples": (), "conditions": {}, "raw": ()}
    return [m.model_copy(update=less) if i in far else m for i, m in enumerate(measurements)]


def _beyond(items: Sequence[T], kind: Callable[[T], Hashable], goodness: Callable[[T], float]) -> set[int]:
    """Positions of all items but the ``DETAILED`` worst of each kind; items whose kind is None are left out."""
    of_kind: dict[Hashable, list[int]] = {}
    for position, item in enumerate(items):
        if (key := kind(item)) is not None:
            of_kind.setdefault(key, []).append(position)
    return {
        position
        for positions in of_kind.values()
        if len(positions) > DETAILED
        for position in sorted(positions, key=lambda i: goodness(items[i]))[DETAILED:]
    }


def by_need(
    verdicts: Iterable[Verdict], measurements: Iterable[MeasurementSummary], deploys: Iterable[DeploySummary]
) -> dict[str, None]:
    """Names of outputs in the order of their priority: of verdicts other than PASS first."""
    verdicts = list(verdicts)
    needed: dict[str, None] = {}
    for passed in (False, True):
        for verdict in verdicts:
            if (verdict.status is Status.PASS) is passed:
                needed.update(dict.fromkeys(verdict.raw))
    for measurement in measurements:
        needed.update(dict.fromkeys(measurement.raw))
    for deploy in deploys:
        needed.update(dict.fromkeys(deploy.raw))
    return needed


def listed(outputs: Iterable[RawOutput], needed: Iterable[str]) -> Collection[str]:
    """sha256 of the ``LISTED`` outputs that are needed most, then of others."""
    known = dict.fromkeys(output.sha256 for output in outputs)
    return dict.fromkeys(list(dict.fromkeys([*(sha for sha in needed if sha in known), *known]))[:LISTED])
