from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from itertools import zip_longest
from pathlib import Path

import pytest

from rackproof.core import wording
from rackproof.core.wording import and_more, exact, significant, some
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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2_500_000, "2500000"),
        (1350932.0, "1350932"),
        (1e15 + 1, "1000000000000001"),
        (204.5, "204.5"),
        (0.1 + 0.2, "0.3"),
        (1e-5, "0.00001"),
        (1234567.25, "1234567.25"),
        (None, "no value"),
    ],
)
def test_no_digit_of_a_declared_number_is_lost(value: float | None, text: str) -> None:
    assert exact(value) == text


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


def bare(nodes: Iterable[ast.AST]) -> list[int]:
    """Lines with a bare ``:g``, which has an exponent from a million on and rounds to six digits. Seconds and percent,
    which never come near that, may have it: by the text after it, or by the end of the value's name."""
    lines = []
    for node in nodes:
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        for part, after in zip_longest(parts, parts[1:]):
            if isinstance(part, ast.FormattedValue) and part.format_spec and ast.unparse(part.format_spec) == "f'g'":
                unit = after.value if isinstance(after, ast.Constant) else ""
                if not re.match(r" (s|%)(?!\w)", str(unit)) and not re.search(
                    r"(_s|_pct)$", ast.unparse(part.value), re.IGNORECASE
                ):
                    lines.append(part.lineno)
    return lines


@pytest.mark.parametrize("rule", [rounded, bare])
def test_numbers_are_rounded_in_one_place(rule: Callable[[Iterable[ast.AST]], list[int]]) -> None:
    """``1.23e+03 MB/s`` is no number for people."""
    package = Path(wording.__file__).parents[1]
    own = {
        f"{path.relative_to(package)}:{line}"
        for path in package.rglob("*.py")
        if path != Path(wording.__file__)
        for line in rule(nodes_of(path))
    }
    assert own == set(), "use significant, exact or scaled of rackproof/core/wording.py"


@pytest.mark.parametrize(
    ("source", "lines"),
    [("f'{x:.3g}'", [1]), ("f'{x:,.{n}g} B'", [1]), ("f'{x:.2e}'", [1]), ("f'{x:g} {x:.3f} {x!r:>4}'", [])],
)
def test_the_rule_sees_formats_with_digits(source: str, lines: list[int]) -> None:
    assert rounded(ast.walk(ast.parse(source))) == lines


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("f'{x:g}'", [1]), ("f'{x:g} B'", [1]), ("f'{x:g} samples'", [1]), ("f'{x.times:g}{unit}'", [1]),
        ("f'{x:g} s, {y:g} % of {limit_s:g}, {LEAST_PCT:g} or {x:.3f}'", []),
    ],
)  # fmt: skip
def test_the_rule_sees_numbers_with_an_exponent(source: str, lines: list[int]) -> None:
    assert bare(ast.walk(ast.parse(source))) == lines
