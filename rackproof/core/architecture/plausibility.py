"""Bars against link capacity: none above it, none too low to fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rackproof.core.architecture.criterion import Alternative, Bar, Ceiling, Criterion, LinkShare
from rackproof.core.architecture.entries import SPREADS
from rackproof.core.architecture.models import Architecture, Link
from rackproof.core.architecture.problem import KeyPath, Problem, known
from rackproof.core.metrics import METRICS
from rackproof.core.units import UnitError, convert, same_dimension
from rackproof.core.wording import exact, significant

LOWEST_SHARE = 0.01
"""Share of the ceiling; a lower bar is a mistake in the unit and cannot fail."""

_ROUNDING = 1e-9


class Carried(NamedTuple):
    """Capacity of a link in ``unit``, and its calculation."""

    value: float
    unit: str
    arithmetic: str


def carried(link: Link, times: float, unit: str) -> Carried | None:
    """``times`` of a link in another unit of the same dimension; None where its rate is unpublished.

    Raises UnitError where the two units measure different things.
    """
    if link.each.value is None:
        return None
    value = convert(link.count * link.each.value * times, link.each.unit, unit)
    parts = [exact(count) for count in (times, link.count) if count != 1]
    product = " × ".join([*parts, f"{exact(link.each.value)} {link.each.unit}"])
    result = f"{significant(value, 4)} {unit}"
    return Carried(value, unit, f"{link.title}: {product}" + (f" = {result}" if product != result else ""))


def ceiling_of(architecture: Architecture, criterion: Criterion) -> Carried | None:
    """The physical ceiling of a criterion in its metric's own unit, where the file names one that is published.

    For links between nodes that is the fabric's line rate, unless the criterion names another ceiling.
    """
    unit = METRICS[criterion.metric].unit
    named = criterion.ceiling
    if named is not None:
        return carried(architecture.links[named.link], named.times, unit)
    return _line_rate(architecture, criterion.metric)


def _line_rate(architecture: Architecture, metric: str) -> Carried | None:
    unit, fabric = METRICS[metric].unit, architecture.fabric
    if metric.startswith("link.") and same_dimension(unit, "Gb/s") and fabric and fabric.line_rate_gbps:
        return Carried(
            convert(fabric.line_rate_gbps, "Gb/s", unit),
            unit,
            f"fabric.line_rate_gbps: {exact(fabric.line_rate_gbps)} Gb/s",
        )
    return None


def plausibility_problems(architecture: Architecture) -> Iterator[Problem]:
    """Bars that no link can reach, or that every link reaches."""
    for name, link in architecture.links.items():
        path = ("links", name, "each")
        try:
            fits = same_dimension(link.each.unit, "b/s")
        except UnitError:
            continue  # reported with the other figures
        if not fits:
            yield Problem((*path, "unit"), f"expected a bandwidth, actual {link.each.unit}")
        if link.each.value is not None and link.each.value <= 0:
            yield Problem((*path, "value"), f"expected more than 0, actual {exact(link.each.value)}")
    for index, criterion in enumerate(architecture.criteria):
        if criterion.metric in METRICS:
            yield from _criterion(architecture, ("criteria", index), criterion)


def _criterion(architecture: Architecture, base: KeyPath, criterion: Criterion) -> Iterator[Problem]:
    ceiling = criterion.ceiling
    if ceiling is not None:
        path = (*base, "ceiling", "link")
        wrong = list(known(path, ceiling.link, architecture.links, "link")) or list(
            _unlike(architecture, path, criterion.metric, ceiling)
        )
        if wrong:
            yield from wrong
            return
    try:
        limit = ceiling_of(architecture, criterion)
    except UnitError:
        limit = None  # the link's unit is reported where units are
    yield from _bar(architecture, (*base, "pass"), criterion, limit)
    for index, other in enumerate(criterion.any_of):
        if other.metric in METRICS:
            # alternatives share the criterion's ceiling where both have the same dimension
            same = limit is not None and same_dimension(METRICS[other.metric].unit, limit.unit)
            own = limit if same else _line_rate(architecture, other.metric)
            yield from _bar(architecture, (*base, "any_of", index, "pass"), other, own)


def _bar(
    architecture: Architecture, base: KeyPath, asked: Criterion | Alternative, limit: Carried | None
) -> Iterator[Problem]:
    bar = asked.pass_
    if isinstance(bar.of, LinkShare):
        if bar.of.link in architecture.links:
            yield from _unlike(architecture, (*base, "of", "link"), asked.metric, bar.of)
            yield from _shares(base, bar)
    elif bar.of is None and asked.reduce not in SPREADS and limit is not None:
        try:
            yield from _against(base, bar, limit)
        except UnitError:
            return  # the bar's unit is reported where units are


def _unlike(architecture: Architecture, path: KeyPath, metric: str, link: Ceiling | LinkShare) -> Iterator[Problem]:
    own, other = METRICS[metric].unit, architecture.links[link.link].each.unit
    try:
        fits = same_dimension(own, other)
    except UnitError:
        return
    if not fits:
        yield Problem(path, f"{metric} is in {own}, the link in {other}")


def bounds(bar: Bar) -> Iterator[tuple[KeyPath, float]]:
    """Every number of a bar and its path."""
    for key in ("value", "low", "high", "warn"):
        number = getattr(bar, key)
        if number is not None:
            yield (key,), number
    for name, number in bar.levels.items():
        yield ("levels", name), number


def _against(base: KeyPath, bar: Bar, limit: Carried) -> Iterator[Problem]:
    for path, number in bounds(bar):
        value = convert(number, bar.unit, limit.unit)
        shown = f"{exact(number)} {bar.unit}"
        if bar.unit != limit.unit:
            shown += f" = {significant(value, 4)} {limit.unit}"
        if value > limit.value * (1 + _ROUNDING):
            yield Problem((*base, *path), f"{shown} is more than its link can carry ({limit.arithmetic})")
        elif bar.op != "le" and value < limit.value * LOWEST_SHARE:
            share = 100 * value / limit.value
            yield Problem(
                (*base, *path), f"{shown} is {significant(share, 2)} % of what its link can carry ({limit.arithmetic})"
            )


def _shares(base: KeyPath, bar: Bar) -> Iterator[Problem]:
    for path, number in bounds(bar):
        try:
            share = convert(number, bar.unit, "percent")
        except UnitError:
            return
        if share > 100 * (1 + _ROUNDING):
            yield Problem((*base, *path), f"{share:g} % of a link is more than it can carry")
        elif bar.op != "le" and share < 100 * LOWEST_SHARE:
            yield Problem((*base, *path), f"{share:g} % of a link cannot be missed; expected at least 1 %")
