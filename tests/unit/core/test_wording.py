from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from rackproof.core import wording
from rackproof.core.wording import and_more, significant, some
from tests.unit.sources import nodes_of


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


def rounded(nodes: Iterable[ast.AST]) -> list[int]:
    """Lines with a format that rounds to digits and has an exponent beyond them (``:.3g``, ``:.2e``)."""
    specs = (node.format_spec for node in nodes if isinstance(node, ast.FormattedValue))
    return [spec.lineno for spec in specs if spec is not None and re.search(r"\.(\d+|\{.+\})[eg]'$", ast.unparse(spec))]


def test_numbers_are_rounded_in_one_place() -> None:
    """``1.23e+03 MB/s`` is no number for people."""
    package = Path(wording.__file__).parents[1]
    own = {
        f"{path.relative_to(package)}:{line}"
        for path in package.rglob("*.py")
        if path != Path(wording.__file__)
        for line in rounded(nodes_of(path))
    }
    assert own == set(), "use significant or scaled of rackproof/core/wording.py"


@pytest.mark.parametrize(
    ("source", "lines"),
    [("f'{x:.3g}'", [1]), ("f'{x:,.{n}g} B'", [1]), ("f'{x:.2e}'", [1]), ("f'{x:g} {x:.3f} {x!r:>4}'", [])],
)
def test_the_rule_sees_formats_with_digits(source: str, lines: list[int]) -> None:
    assert rounded(ast.walk(ast.parse(source))) == lines
