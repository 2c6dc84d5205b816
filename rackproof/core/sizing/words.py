"""Format quantities of the sizing model: three significant digits, with the shortest prefix."""

from __future__ import annotations

from rackproof.core.units import after, convert
from rackproof.core.wording import scaled, significant


def number(value: float) -> str:
    """``51,300``, ``84.1``, ``0.00712``."""
    return significant(value, group=",")


def count(value: float, singular: str, plural: str | None = None) -> str:
    """``1 chassis``, ``2 nodes``."""
    return f"{number(value)} {singular if value == 1 else plural or f'{singular}s'}"


def percent(share: float) -> str:
    return f"{number(100 * share)} %"


def bandwidth(value: float) -> str:
    """B/s as ``656 MB/s``."""
    return scaled(value, "B/s")


def size(value: float) -> str:
    """Bytes as ``22.2 TB``."""
    return scaled(value, "B")


def duration(seconds: float) -> str:
    """``5 ms``, ``225 s``, ``62.6 min``, ``10.4 h``, ``3.2 days``."""
    for limit, divisor, name in ((1e-3, 1e-6, "µs"), (1, 1e-3, "ms"), (600, 1, "s"), (7200, 60, "min")):
        if seconds < limit:
            return f"{number(seconds / divisor)} {name}"
    return f"{number(seconds / 3600)} h" if seconds < 172800 else f"{number(seconds / 86400)} days"


def in_unit(value: float, unit: str, shown: str, exact: bool = False) -> str:
    """An input in its usual unit; ``exact`` keeps up to seven digits."""
    return significant(convert(value, unit, shown), 7 if exact else 3, group=",") + after(shown)


def listed(items: list[str] | tuple[str, ...]) -> str:
    """``a, b and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""
