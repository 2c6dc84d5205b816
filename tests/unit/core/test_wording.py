from __future__ import annotations

import pytest

from rackproof.core.wording import and_more, significant, some


@pytest.mark.parametrize(
    ("value", "plain", "padded", "whole"),
    [
        (0, "0", "0", "0"),
        (999, "999", "999", "999"),
        (1234.5, "1230", "1230", "1234"),
        (9.996, "10", "10.0", "10"),
        (99.96, "100", "100", "100"),
        (0.5, "0.5", "0.500", "0.5"),
        (-4.567, "-4.57", "-4.57", "-4.57"),
        (1.5e-7, "0.00000015", "0.000000150", "0.00000015"),
        (123456.7, "123000", "123000", "123457"),
        (float("-inf"), "-∞", "-∞", "-∞"),
        (float("nan"), "not a number", "not a number", "not a number"),
    ],
)
def test_three_significant_digits(value: float, plain: str, padded: str, whole: str) -> None:
    assert significant(value) == plain
    assert significant(value, pad=True) == padded
    assert significant(value, whole=True) == whole


def test_thousands_are_grouped() -> None:
    assert significant(51283, group=",") == "51,300"
    assert significant(1048576, group=" ") == "1 050 000"


def test_long_lists_are_cut() -> None:
    assert some([], 5) == ""
    assert some(["a", "b"], 2) == "a, b"
    assert some([str(n) for n in range(7)], 5) == "0, 1, 2, 3, 4 and 2 more"
    assert some(["a", "b", "c"], 1, "; ") == "a; and 2 more"
    assert (and_more(0), and_more(2)) == ("", " (and 2 more)")
    assert and_more(1, ": list") == " (and 1 more: list)"
