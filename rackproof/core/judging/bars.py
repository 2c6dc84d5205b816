"""Compare numbers with bars, and format both."""

from __future__ import annotations

from typing import NamedTuple

from rackproof.core.architecture import Bar
from rackproof.core.status import Status
from rackproof.core.units import after
from rackproof.core.wording import significant

_ROUNDING = 1e-9
"""Relative tolerance of the bar for unit conversions."""

_SIGNS = {"ge": "≥", "le": "≤", "eq": "="}


class Comparison(NamedTuple):
    """``edge`` is the bar's value; of a range, the nearer end."""

    status: Status
    edge: float
    distance_pct: float | None
    """Distance from the edge in percent of it, positive if passed; None if the edge is 0."""


def compare(bar: Bar, value: float) -> Comparison:
    """PASS, WARN or FAIL for a finite ``value`` in the bar's unit. A NaN reaches no bar."""
    if bar.op == "range":
        low, high = _limit(bar.low), _limit(bar.high)
        inside = _at_least(value, low, bar.tolerance_pct) and _at_most(value, high, bar.tolerance_pct)
        edge = low if value - low <= high - value else high
        good = value - low if edge == low else high - value
        return Comparison(Status.PASS if inside else Status.FAIL, edge, _percent(good, edge))
    limit = _limit(bar.value)
    if bar.op == "eq":
        reached = _at_least(value, limit, bar.tolerance_pct) and _at_most(value, limit, bar.tolerance_pct)
        return Comparison(Status.PASS if reached else Status.FAIL, limit, _percent(-abs(value - limit), limit))
    reaches, good = (_at_least, value - limit) if bar.op == "ge" else (_at_most, limit - value)
    status = Status.PASS if reaches(value, limit, bar.tolerance_pct) else Status.FAIL
    if status is Status.PASS and bar.warn is not None and not reaches(value, bar.warn, 0.0):
        status = Status.WARN
    return Comparison(status, limit, _percent(good, limit))


def settled(bar: Bar, level: str | None) -> Bar:
    """The bar with the value of ``level``. Raises ValueError if it lacks that level."""
    if not bar.levels:
        return bar
    if level not in bar.levels:
        raise ValueError(f"a bar without a value for level {level}; the architecture was not checked")
    return bar.model_copy(update={"value": bar.levels[level]})


def level_reached(bar: Bar, value: float) -> str | None:
    """The highest level that ``value`` reaches; None without one."""
    reaches = _at_least if bar.op == "ge" else _at_most
    reached = [name for name, limit in bar.levels.items() if reaches(value, limit, bar.tolerance_pct)]
    return reached[-1] if reached else None


def bar_text(bar: Bar, level: str | None = None) -> str:
    """``≥ 60 %``, ``2 to 5 ms``, with the tolerance where there is one, and ``level`` where the bar has levels."""
    if bar.op == "range":
        text = f"{number_text(_limit(bar.low))} to {amount(_limit(bar.high), bar.unit)}"
    else:
        text = f"{_SIGNS[bar.op]} {amount(_limit(bar.value), bar.unit)}"
    text += f" (tolerance {number_text(bar.tolerance_pct)} %)" if bar.tolerance_pct else ""
    return text + (f" ({level})" if bar.levels else "")


def amount(value: float, unit: str, other_than: float | None = None) -> str:
    """``71.2 %``: number and unit, with enough digits to differ from ``other_than``."""
    return number_text(value, other_than) + after(unit)


def number_text(value: float, other_than: float | None = None) -> str:
    """Three significant digits, all of them before the decimal point: 1234, 84.1, 0.00712.

    Digits are added until the text differs from that of ``other_than``.
    """
    text, digits = significant(value, whole=True), 3
    if other_than is None or value == other_than:
        return text
    while digits < 12 and text == significant(other_than, digits, whole=True):
        digits += 1
        text = significant(value, digits, whole=True)
    return text


def _limit(value: float | None) -> float:
    if value is None:
        raise ValueError("a bar without a value; the architecture was not checked")
    return value


def _at_least(value: float, limit: float, tolerance_pct: float) -> bool:
    return value >= limit - abs(limit) * (tolerance_pct / 100 + _ROUNDING)


def _at_most(value: float, limit: float, tolerance_pct: float) -> bool:
    return value <= limit + abs(limit) * (tolerance_pct / 100 + _ROUNDING)


def _percent(good: float, edge: float) -> float | None:
    if edge == 0:
        return None
    return 0.0 if good == 0 else 100.0 * good / abs(edge)  # never -0.0
