"""Each fault that group testing names must fail a criterion; each skipped pair must be covered by a job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rackproof.core import group_testing
from rackproof.core.architecture.criterion import Bar, Criterion, LinkShare, Reference, Severity
from rackproof.core.architecture.models import Architecture
from rackproof.core.architecture.plausibility import carried
from rackproof.core.architecture.problem import KeyPath, Problem
from rackproof.core.architecture.profiles import GroupTests, LinkProfile
from rackproof.core.evidence import Scope
from rackproof.core.metrics import METRICS
from rackproof.core.units import UnitError, convert, same_dimension
from rackproof.core.wording import significant

LEAST_SHARE: Final = 0.5
"""Least rate of group testing over the bar of a pair: a link that has lost half of its lanes must not pass a job."""


def unasked(links: LinkProfile | None, nodes: int) -> frozenset[str]:
    """Metrics whose criteria a rack of so many nodes does not have: it is too small for group testing, and every pair
    must have a number instead."""
    small = links is not None and links.groups is not None and links.grouped(nodes) is None
    return frozenset([group_testing.METRIC] if small else [])


def group_problems(architecture: Architecture, path: KeyPath, sizes: GroupTests) -> Iterator[Problem]:
    """Criteria that group testing would leave with gaps, or clear at a rate that proves little."""
    metric = group_testing.METRIC
    required = [c for c in architecture.criteria if c.severity is Severity.REQUIRED]
    if not any(c.metric == metric for c in required):
        yield Problem(path, f"what it names would fail nothing: no required criterion has the metric {metric}")
    standing = group_testing.stands_for(sizes.engine)
    for criterion in required:
        if criterion.scope is not Scope.PAIR or METRICS[criterion.metric].benchmark != "links":
            continue
        if criterion.metric not in standing:
            transport = group_testing.TRANSPORTS[sizes.engine]
            yield Problem(
                (*path, "engine"),
                f"jobs of {sizes.engine} run over {transport} and stand for no {criterion.metric}, which criterion"
                f" {criterion.id} requires of every pair",
            )
        elif (bar := _gigabytes(architecture, criterion)) is not None and sizes.least_gb_per_s < LEAST_SHARE * bar:
            yield Problem(
                (*path, "least_gb_per_s"),
                f"{sizes.least_gb_per_s:g} would clear pairs far below criterion {criterion.id}: expected at least"
                f" {significant(LEAST_SHARE * bar, 4)}, half of its bar",
            )


def _gigabytes(architecture: Architecture, criterion: Criterion) -> float | None:
    """The highest bar of a bandwidth in GB/s; None for other quantities, and for shares of other measurements."""
    bar, unit = criterion.pass_, METRICS[criterion.metric].unit
    values = [value for value in (bar.value, *bar.levels.values()) if value is not None]
    if bar.op != "ge" or not values or isinstance(bar.of, Reference) or not same_dimension(unit, "GB/s"):
        return None
    try:
        return _absolute(architecture, bar, max(values))
    except UnitError:
        return None  # the bar's unit is reported where units are


def _absolute(architecture: Architecture, bar: Bar, value: float) -> float | None:
    if not isinstance(bar.of, LinkShare):
        return convert(value, bar.unit, "GB/s")
    link = architecture.links.get(bar.of.link)
    whole = carried(link, bar.of.times, "GB/s") if link is not None else None
    return whole and convert(value, bar.unit, "ratio") * whole.value
