from __future__ import annotations

import subprocess
import sys

import pytest

from rackproof.core.metrics import METRICS
from rackproof.core.units import UNITS, UnitError, check, convert, same_dimension, sign


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
        (71.2, "percent", "ratio", 0.712),
        (1, "ratio", "percent", 100),
        (3, "1", "ratio", 3),
    ],
)
def test_converts(value: float, from_: str, to: str, expected: float) -> None:
    assert convert(value, from_, to) == pytest.approx(expected, rel=1e-12)


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
    with pytest.raises(UnitError) as caught:
        check(unit)
    assert str(caught.value).startswith(f"unknown unit '{unit}'; {hint}")
    with pytest.raises(UnitError):
        same_dimension(unit, "MB/s")


def test_every_metric_has_a_known_unit() -> None:
    for metric in METRICS.values():
        check(metric.unit)


def test_units_in_a_sentence() -> None:
    assert [sign(unit) for unit in ("percent", "ratio", "1", "us", "MB/s")] == ["%", "", "", "µs", "MB/s"]


def test_the_judge_can_be_imported_without_pint() -> None:
    """pint takes half a second to import, which ``rackproof --help`` must not pay."""
    program = "import sys, rackproof.core.judging.judge, rackproof.architectures; sys.exit('pint' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
