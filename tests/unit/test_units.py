from __future__ import annotations

import pytest

from rackproof.core.metrics import METRICS
from rackproof.core.units import UNITS, UnitError, check, convert, factor, same_dimension, sign
from tests.unit.refusals import error_of


@pytest.mark.parametrize(
    ("value", "from_", "to", "expected"),
    [
        (1, "GB/s", "MB/s", 1000),
        (1, "Gb/s", "GB/s", 0.125),
        (8, "Mb/s", "MB/s", 1),
        (1, "MiB/s", "MB/s", 1.048576),
        (1, "GiB", "B", 2**30),
        (1, "GB", "B", 10**9),
        (1, "s", "us", 1e6),
        (1, "ms", "us", 1000),
        (1, "ns", "us", 1e-3),
        (2, "kIOPS", "1/s", 2000),
        (3, "IOPS", "1/s", 3),
        (1, "percent", "ratio", 0.01),
        (1, "ratio", "percent", 100),
        (3, "1", "ratio", 3),
        (1, "us", "ns", 1000),
        (1, "ns", "ms", 1e-6),
        (1, "kB", "GB", 1e-6),
        (1, "TiB/s", "Gb/s", 8796.093022208),
        (1, "PFLOPS", "GFLOPS", 1e6),
    ],
)
def test_converts_to_the_nearest_float(value: float, from_: str, to: str, expected: float) -> None:
    assert convert(value, from_, to) == expected


def test_every_conversion_is_the_inverse_of_its_reverse() -> None:
    for a in UNITS:
        for b in (unit for unit in UNITS if same_dimension(a, unit)):
            assert factor(a, b) * factor(b, a) == pytest.approx(1, rel=5e-16)


@pytest.mark.parametrize("unit", UNITS)
def test_the_same_unit_changes_no_digit(unit: str) -> None:
    assert convert(0.1 + 0.2, unit, unit) == 0.1 + 0.2
    assert same_dimension(unit, unit)


@pytest.mark.parametrize(
    ("a", "b"),
    [("MB/s", "1/s"), ("us", "MB/s"), ("GB", "GB/s"), ("percent", "MB/s"), ("1", "1/s"), ("1", "B"), ("us", "1/s")],
)
def test_different_things_do_not_convert(a: str, b: str) -> None:
    assert not same_dimension(a, b)
    with pytest.raises(UnitError, match=f"{a} cannot be converted to {b}"):
        convert(1.0, a, b)


@pytest.mark.parametrize(
    ("unit", "hint"),
    [
        ("mb/s", "did you mean 'MB/s' or 'Mb/s'?"),
        ("Gbit/s", "did you mean 'Gb/s'?"),
        ("MBs", "did you mean 'MB/s'?"),
        ("furlong", "known: "),
        ("", "known: "),
    ],
)
def test_unknown_units_are_refused_with_the_nearest(unit: str, hint: str) -> None:
    assert error_of(UnitError, check, unit).startswith(f"unknown unit '{unit}'; {hint}")
    with pytest.raises(UnitError):
        same_dimension(unit, "MB/s")


def test_every_metric_has_a_known_unit() -> None:
    for metric in METRICS.values():
        check(metric.unit)


def test_units_in_a_sentence() -> None:
    assert [sign(unit) for unit in ("percent", "ratio", "1", "us", "MB/s")] == ["%", "", "", "µs", "MB/s"]
