from __future__ import annotations

from typing import Any

import pytest

from rackproof.core.architecture import Bar
from rackproof.core.judging.bars import amount, bar_text, compare, number_text
from rackproof.core.status import Status


def bar(**fields: Any) -> Bar:
    return Bar.model_validate({"unit": "MB/s"} | fields)


@pytest.mark.parametrize(
    ("fields", "value", "status", "distance"),
    [
        ({"op": "ge", "value": 20}, 20.0, "PASS", 0.0),
        ({"op": "ge", "value": 20}, 19.99, "FAIL", -0.05),
        ({"op": "ge", "value": 20}, 30.0, "PASS", 50.0),
        ({"op": "ge", "value": 20, "warn": 25}, 24.9, "WARN", 24.5),
        ({"op": "ge", "value": 20, "warn": 25}, 25.0, "PASS", 25.0),
        ({"op": "ge", "value": 20, "tolerance_pct": 5}, 19.0, "PASS", -5.0),
        ({"op": "ge", "value": 20, "tolerance_pct": 5}, 18.9, "FAIL", -5.5),
        ({"op": "ge", "value": 20, "tolerance_pct": 5, "warn": 25}, 19.5, "WARN", -2.5),
        ({"op": "le", "value": 10}, 10.0, "PASS", 0.0),
        ({"op": "le", "value": 10}, 10.01, "FAIL", -0.1),
        ({"op": "le", "value": 10, "warn": 8}, 9.0, "WARN", 10.0),
        ({"op": "le", "value": 10, "warn": 8}, 8.0, "PASS", 20.0),
        ({"op": "le", "value": 10, "tolerance_pct": 10}, 11.0, "PASS", -10.0),
        ({"op": "eq", "value": 0}, 0.0, "PASS", None),
        ({"op": "eq", "value": 0}, 1.0, "FAIL", None),
        ({"op": "eq", "value": 0, "tolerance_pct": 20}, 1e-6, "FAIL", None),
        ({"op": "eq", "value": 8}, 8.0, "PASS", 0.0),
        ({"op": "eq", "value": 8, "tolerance_pct": 10}, 7.3, "PASS", -8.75),
        ({"op": "range", "low": 4, "high": 8}, 4.0, "PASS", 0.0),
        ({"op": "range", "low": 4, "high": 8}, 8.0, "PASS", 0.0),
        ({"op": "range", "low": 4, "high": 8}, 5.0, "PASS", 25.0),
        ({"op": "range", "low": 4, "high": 8}, 3.0, "FAIL", -25.0),
        ({"op": "range", "low": 4, "high": 8}, 10.0, "FAIL", -25.0),
        ({"op": "range", "low": 4, "high": 8, "tolerance_pct": 10}, 8.8, "PASS", -10.0),
        ({"op": "ge", "value": 0}, 5.0, "PASS", None),
    ],
)
def test_numbers_against_bars(fields: dict[str, Any], value: float, status: str, distance: float | None) -> None:
    result = compare(bar(**fields), value)
    assert result.status.value == status
    assert result.distance_pct == (None if distance is None else pytest.approx(distance))


@pytest.mark.parametrize("fields", [{"op": "ge", "value": 0}, {"op": "le", "value": 9}, {"op": "eq", "value": 0}])
def test_a_nan_reaches_no_bar(fields: dict[str, Any]) -> None:
    assert compare(bar(**fields), float("nan")).status is Status.FAIL
    assert compare(bar(op="range", low=0, high=9), float("nan")).status is Status.FAIL


def test_a_bar_without_its_value_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="not checked"):
        compare(bar(op="ge"), 1.0)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"op": "ge", "value": 60, "unit": "percent"}, "≥ 60 %"),
        ({"op": "le", "value": 2.5, "unit": "us"}, "≤ 2.5 µs"),
        ({"op": "eq", "value": 0, "unit": "1"}, "= 0"),
        ({"op": "ge", "value": 200, "unit": "1/s"}, "≥ 200/s"),
        ({"op": "range", "low": 2, "high": 5, "unit": "ms"}, "2 to 5 ms"),
        ({"op": "ge", "value": 0.5, "unit": "ratio", "tolerance_pct": 5}, "≥ 0.5 (tolerance 5 %)"),
    ],
)
def test_bars_in_words(fields: dict[str, Any], text: str) -> None:
    assert bar_text(bar(**fields)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (118.2, "118"),
        (84.1234, "84.1"),
        (1234.4, "1234"),
        (999.9, "1000"),
        (123456.7, "123457"),
        (0.00712, "0.00712"),
        (1e-7, "0.0000001"),
        (60.0, "60"),
    ],
)
def test_numbers_have_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert number_text(value) == text


def test_a_number_that_misses_the_bar_never_reads_like_the_bar() -> None:
    assert amount(59.96, "percent", 60.0) == "59.96 %"
    assert amount(59.99999, "percent", 60.0) == "59.99999 %"
    assert amount(60.0, "percent", 60.0) == "60 %"
    assert amount(999999.6, "1/s", 1000000.0) == "999999.6/s"
