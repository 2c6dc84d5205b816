"""Units of measurements and bars.

The list is closed on purpose: an open grammar reads ``mb/s`` as millibits a second. SI prefixes are decimal
(1 GB = 10^9 B), binary ones have the ``i`` (1 GiB = 2^30 B), ``b`` is a bit and ``B`` a byte.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from rackproof.core.nearest import suggestion
from rackproof.errors import RackproofError

if TYPE_CHECKING:
    from pint import UnitRegistry

_BYTES = ("B", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB")
_BITS = ("b", "kb", "Mb", "Gb", "Tb")

UNITS: tuple[str, ...] = (
    *("1", "ratio", "percent"),
    *("ns", "us", "ms", "s"),
    *("1/s", "IOPS", "kIOPS"),
    *_BYTES,
    *(f"{unit}/s" for unit in (*_BYTES, *_BITS)),
    *("GFLOPS", "TFLOPS", "PFLOPS"),
)

SHARES = frozenset({"ratio", "percent"})
"""Units of a share of something."""

_SIGNS = {"1": "", "ratio": "", "percent": "%", "us": "µs", "1/s": "/s"}

_DEFINITIONS = """
kilo- = 1e3 = k-
mega- = 1e6 = M-
giga- = 1e9 = G-
tera- = 1e12 = T-
peta- = 1e15 = P-
kibi- = 1024 = Ki-
mebi- = 1048576 = Mi-
gibi- = 1073741824 = Gi-
tebi- = 1099511627776 = Ti-
milli- = 1e-3 = m-
micro- = 1e-6 = u-
nano- = 1e-9 = n-
second = [time] = s
bit = [information] = b
byte = 8 * bit = B
operation = [operation]
FLOPS = operation / second
IOPS = 1 / second
ratio = []
percent = 0.01
"""


class UnitError(RackproofError, ValueError):
    """A unit is unknown, or cannot be converted into another. A ValueError for pydantic's validators."""


def convert(value: float, from_: str, to: str) -> float:
    """``value`` of unit ``from_`` in unit ``to``; the very same number where both are the same unit."""
    return value if from_ == to else value * factor(from_, to)


@cache
def factor(from_: str, to: str) -> float:
    """How many ``to`` one ``from_`` is. Raises UnitError where the two measure different things."""
    if not same_dimension(from_, to):
        raise UnitError(f"{from_} cannot be converted to {to}")
    registry = _registry()
    return float(registry.Quantity(1, _spelled(from_)).to(_spelled(to)).magnitude)


@cache
def same_dimension(a: str, b: str) -> bool:
    """Whether both units measure the same thing. Raises UnitError for an unknown unit.

    Bits have a dimension of their own here, so that a bandwidth is never mistaken for operations a second.
    """
    registry = _registry()
    check(a)
    check(b)
    first, second = (registry.Unit(_spelled(unit)).dimensionality for unit in (a, b))
    return bool(first == second)


def check(unit: str) -> None:
    """Raise UnitError, with the nearest known unit, where ``unit`` is unknown."""
    if unit not in UNITS:
        raise UnitError(f"unknown unit '{unit}'; {suggestion(unit, UNITS)}")


def sign(unit: str) -> str:
    """How a unit stands behind a number in a sentence: ``%`` for percent, nothing for a plain number."""
    return _SIGNS.get(unit, unit)


def _spelled(unit: str) -> str:
    return "" if unit == "1" else unit


@cache
def _registry() -> UnitRegistry[float]:
    # pint takes half a second to import and its own registry knows b as barn and bits as pure numbers.
    from pint import UnitRegistry

    registry: UnitRegistry[float] = UnitRegistry(None)
    for line in _DEFINITIONS.strip().splitlines():
        registry.define(line)
    return registry
