"""Numbers and lists in messages: rounding and shortening."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

_PREFIXES = ("", "k", "M", "G", "T", "P")


@lru_cache(maxsize=1024)  # bars and ceilings recur in every verdict
def significant(value: float, digits: int = 3, *, group: str = "", pad: bool = False, whole: bool = False) -> str:
    """``value`` rounded to ``digits`` significant digits, without an exponent: ``0.00712``, ``84.1``, ``1230``.

    ``group`` separates thousands. ``pad`` keeps zeros at the end (``0.500``), except for whole numbers below 1000.
    ``whole`` does not round digits before the decimal point (``1234``).
    """
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "∞" if value > 0 else "-∞"
    if value == int(value) and abs(value) < 1000:
        return str(int(value))
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    decimals = digits - 1 - exponent
    if whole:
        decimals = max(0, decimals)
    text = f"{round(value, decimals):,.{max(0, decimals)}f}".replace(",", group)
    return text if pad or "." not in text else text.rstrip("0").rstrip(".")


def exact(value: float | None) -> str:
    """All digits of a number, up to twelve, without an exponent: ``2500000``, ``1350932``, ``0.00001``."""
    return "no value" if value is None else significant(value, 12, whole=True)


def scaled(value: float, unit: str) -> str:
    """``22.2 TB``, ``656 MB/s``: three significant digits, with the shortest decimal prefix."""
    step = 0 if value < 1 else min(len(_PREFIXES) - 1, int(math.log10(value) / 3 + 1e-12))
    if round(value / 1000**step, 9) >= 999.5 and step < len(_PREFIXES) - 1:
        step += 1
    return f"{significant(value / 1000**step, group=',')} {_PREFIXES[step]}{unit}"


def shortened(text: str, most: int) -> str:
    """``text`` of at most ``most`` characters, the last of them "…" where some are left out."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def some(items: Sequence[str], most: int, separator: str = ", ") -> str:
    """``a, b and 3 more``, ``a; b; and 3 more``: the first ``most`` items and the number of the others."""
    shown, omitted = separator.join(items[:most]), len(items) - most
    joint = " " if separator == ", " else separator
    return f"{shown}{joint}and {omitted} more" if omitted > 0 else shown


def and_more(count: int, of: str = "") -> str:
    """`` (and 3 more)`` after the first of several; empty for 0. ``of`` names what is counted."""
    return f" (and {count} more{of})" if count > 0 else ""


def counted(count: int, singular: str, plural: str = "") -> str:
    """``1 node``, ``3 nodes``; ``plural`` where it is not the singular with an s: ``3 criteria``."""
    return f"{count} {singular if count == 1 else plural or f'{singular}s'}"


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows with columns padded to their longest cell, except the last column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    return ["  ".join([*map(str.ljust, row, widths), row[-1]]) for row in rows]
