"""Quantities for the page: three significant digits, a unit, narrow spaces between thousands."""

from __future__ import annotations

from datetime import UTC, datetime

from rackproof.core import wording
from rackproof.core.units import after

NARROW = "\u202f"
"""Narrow no-break space: between groups of digits."""
NBSP = "\u00a0"
MINUS = "\u2212"
ABSENT = "–"


def significant(value: float) -> str:
    """``1234.5`` as ``1 230``, ``0.98765`` as ``0.988``; whole numbers below 1000 have no decimals."""
    return wording.significant(value, group=NARROW, pad=True).replace("-", MINUS)


def quantity(value: float | None, unit: str | None) -> str:
    """Number and unit with a no-break space; ``–`` without a number."""
    return ABSENT if value is None else significant(value) + after(unit or "", NBSP)


def distance(percent: float | None) -> str:
    """Distance from the threshold with its sign: ``+12.3 %``."""
    if percent is None:
        return ABSENT
    text = significant(percent)
    return f"{text if percent < 0 else '+' + text}{NBSP}%"


def size(count: int) -> str:
    """Bytes in binary units with three significant digits: ``64 KiB``, ``1.46 KiB``."""
    for factor, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= factor:
            return f"{significant(count / factor)}{NBSP}{name}"
    return f"{count}{NBSP}B"


def duration(seconds: float | None) -> str:
    """``0.42 s``, ``6 min 12 s``, ``1 h 04 min``."""
    if seconds is None:
        return ABSENT
    if seconds < 60:
        return f"{significant(seconds)}{NBSP}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}{NBSP}min {rest:02d}{NBSP}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}{NBSP}h {minutes:02d}{NBSP}min"


def moment(text: str) -> str:
    """``2026-11-21T10:04:05Z`` as ``2026-11-21 10:04:05 UTC``; other texts unchanged."""
    time = parsed(text)
    return time.strftime("%Y-%m-%d %H:%M:%S UTC") if time else text


def between(started: str, finished: str) -> float | None:
    """Seconds between two times; None when either is not ISO 8601."""
    first, last = parsed(started), parsed(finished)
    return (last - first).total_seconds() if first and last else None


def parsed(text: str) -> datetime | None:
    """A time; UTC where it names no zone. None for another text."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
