"""Units of measurements and bars.

The list is closed: an open grammar would read ``mb/s`` as millibits per second. SI prefixes are decimal
(1 GB = 10^9 B), binary ones have the ``i`` (1 GiB = 2^30 B), ``b`` is a bit and ``B`` a byte.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

from rackproof.core.nearest import suggestion
from rackproof.errors import RackproofError

_SHARE = {"1": Fraction(1), "ratio": Fraction(1), "percent": Fraction(1, 100)}
_TIME = {"ns": Fraction(1, 10**9), "us": Fraction(1, 10**6), "ms": Fraction(1, 1000), "s": Fraction(1)}
_RATE = {"1/s": Fraction(1), "IOPS": Fraction(1), "kIOPS": Fraction(1000)}
_BYTES = {
    **{unit: Fraction(8 * 1000**power) for power, unit in enumerate(("B", "kB", "MB", "GB", "TB"))},
    **{unit: Fraction(8 * 1024**power) for power, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), start=1)},
}
_BITS = {unit: Fraction(1000**power) for power, unit in enumerate(("b", "kb", "Mb", "Gb", "Tb"))}
_FLOPS = {"GFLOPS": Fraction(10**9), "TFLOPS": Fraction(10**12), "PFLOPS": Fraction(10**15)}

_TABLE: dict[str, tuple[str, Fraction]] = {
    unit: (dimension, factor)
    for dimension, units in (
        ("share", _SHARE),
        ("time", _TIME),
        ("rate", _RATE),
        ("information", _BYTES),
        ("bandwidth", {f"{unit}/s": factor for unit, factor in (_BYTES | _BITS).items()}),
        ("computation", _FLOPS),
    )
    for unit, factor in units.items()
}
"""Unit: dimension, and how many of the dimension's base unit (1, s, 1/s, bit, bit/s, FLOPS) it is."""

UNITS: tuple[str, ...] = tuple(_TABLE)

SHARES = frozenset({"ratio", "percent"})
"""Units of a share of something."""

_SIGNS = {"1": "", "ratio": "", "percent": "%", "us": "µs", "1/s": "/s"}


class UnitError(RackproofError, ValueError):
    """A unit is unknown, or cannot be converted into another. A ValueError for pydantic's validators."""


def convert(value: float, from_: str, to: str) -> float:
    """``value`` of unit ``from_`` in unit ``to``; unchanged where the units are equal."""
    return value if from_ == to else value * factor(from_, to)


@cache
def factor(from_: str, to: str) -> float:
    """How many ``to`` one ``from_`` is, correctly rounded. Raises UnitError where their dimensions differ."""
    if not same_dimension(from_, to):
        raise UnitError(f"{from_} cannot be converted to {to}")
    return float(_TABLE[from_][1] / _TABLE[to][1])


def same_dimension(a: str, b: str) -> bool:
    """Whether both units measure the same thing. Raises UnitError for an unknown unit.

    Bits have a dimension of their own, so that a bandwidth is never mistaken for operations a second.
    """
    check(a)
    check(b)
    return _TABLE[a][0] == _TABLE[b][0]


def check(unit: str) -> None:
    """Raise UnitError, with the nearest known unit, where ``unit`` is unknown."""
    if unit not in _TABLE:
        raise UnitError(f"unknown unit '{unit}'; {suggestion(unit, UNITS)}")


def sign(unit: str) -> str:
    """How a unit is written after a number in a sentence: ``%`` for percent, nothing for a plain number."""
    return _SIGNS.get(unit, unit)


@cache
def after(unit: str, blank: str = " ") -> str:
    """``sign`` with its blank: `` MB/s``, ``/s`` or nothing."""
    shown = sign(unit)
    return shown if not shown or shown.startswith("/") else f"{blank}{shown}"
