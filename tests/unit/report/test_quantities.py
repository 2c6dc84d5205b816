from __future__ import annotations

import pytest

from rackproof.report.quantities import between, distance, duration, moment, quantity, significant, size


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (7, "7"),
        (999, "999"),
        (1234.5, "1\u202f230"),
        (1048576, "1\u202f050\u202f000"),
        (0.98765, "0.988"),
        (99.96, "100"),
        (9.996, "10.0"),
        (0.0009996, "0.00100"),
        (98.76, "98.8"),
        (123.4, "123"),
        (-4.567, "\u22124.57"),
        (0.1362, "0.136"),
        (1.5e-7, "0.000000150"),
        (float("inf"), "∞"),
        (float("nan"), "not a number"),
    ],
)
def test_three_significant_digits(value: float, text: str) -> None:
    assert significant(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (61.23, "percent", "61.2\u00a0%"),
        (402.1, "us", "402\u00a0µs"),
        (911.6, "1/s", "912/s"),
        (0.0, "1", "0"),
        (38.2, "MB/s", "38.2\u00a0MB/s"),
        (None, "MB/s", "–"),
    ],
)
def test_quantity_keeps_its_unit(value: float | None, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


def test_distance_has_a_sign() -> None:
    assert distance(12.345) == "+12.3\u00a0%"
    assert distance(-31.76) == "\u221231.8\u00a0%"
    assert distance(0.0) == "+0\u00a0%"
    assert distance(None) == "–"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0\u00a0B"), (1000, "1000\u00a0B"), (1024, "1\u00a0KiB"), (1500, "1.46\u00a0KiB"), (4194304, "4\u00a0MiB")],
)
def test_size(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4213, "0.421\u00a0s"), (352.4, "5\u00a0min 52\u00a0s"), (3840, "1\u00a0h 04\u00a0min"), (None, "–")],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_moment_is_utc() -> None:
    assert moment("2026-11-21T12:04:05+02:00") == "2026-11-21 10:04:05 UTC"
    assert moment("2026-11-21T10:04:05.25Z") == "2026-11-21 10:04:05 UTC"
    assert moment("yesterday") == "yesterday"


def test_between() -> None:
    assert between("2026-11-21T10:04:05Z", "2026-11-21T10:10:17Z") == 372
    assert between("?", "2026-11-21T10:10:17Z") is None
