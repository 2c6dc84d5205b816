"""Texts that are no architecture: every one of them is refused in one line, at once, and never with a traceback."""

from __future__ import annotations

import time
from functools import partial

import pytest

from rackproof.architectures import parse
from rackproof.errors import ArchitectureError
from tests.unit.refusals import error_of

complaint = partial(error_of, ArchitectureError, parse, name="a.yaml")


def lol(levels: int, width: int = 9) -> str:
    """Every line names the one before it ``width`` times."""
    lines = ["a0: &a0 [lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [(lol(10), 7), ("<<: &a {x: &x [1, 2, 3]}\n" + lol(9, 20), 6), (lol(3, 500), 3)],
    ids=["lists", "after a merge key", "wide"],
)
def test_aliases_that_expand_to_too_much(text: str, line: int) -> None:
    began = time.monotonic()
    assert complaint(text) == f"a.yaml:{line}: aliases expand to too much"
    assert time.monotonic() - began < 60


def test_a_text_without_aliases_has_a_bound_too() -> None:
    assert complaint("a: [" + "1, " * 200_001 + "1]\n") == "a.yaml:1: more than 200000 entries"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("&r\nroles: *r\n", "a.yaml:2: *r refers to itself"),
        ("&a [*a]\n", "a.yaml:1: *a refers to itself"),
        ("metadata: &m\n  sources: {x: [*m]}\n", "a.yaml:2: *m refers to itself"),
        ("a: &a {<<: *a}\n", "a.yaml:1: *a refers to itself"),
        ("a: *b\n", "a.yaml:1: not YAML: found undefined alias"),
        ("a: " + "[" * 3000 + "]" * 3000, "a.yaml:1: nested deeper than 100 levels"),
        ("{a: " * 101 + "1" + "}" * 101, "a.yaml:1: nested deeper than 100 levels"),
        (
            "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 110)),
            "a.yaml:100: nested deeper than 100 levels",
        ),
    ],
    ids=["root", "list", "mapping", "merge", "undefined", "lists", "mappings", "through aliases"],
)
def test_circles_and_depth(text: str, message: str) -> None:
    assert complaint(text) == message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("!!timestamp foo", "'foo' is no timestamp"),
        ("!!bool maybe", "'maybe' is no bool"),
        ("!!int abc", "'abc' is no int"),
        ('!!int ""', "'' is no int"),
        ("!!float x", "'x' is no float"),
        ("2026-13-01", "'2026-13-01' is no timestamp"),
    ],
)
def test_a_scalar_that_its_type_does_not_take_is_shown_with_its_line(value: str, message: str) -> None:
    refusal = complaint(f"apiVersion: refarch/v1\nlevel: {value}\n")

    assert refusal == f"a.yaml:2: not YAML: {message}"


def test_anchors_and_merge_keys_are_welcome() -> None:
    text = "apiVersion: refarch/v1\nmetadata: &m {id: a}\nroles: {gpu: {<<: *m}}\n"
    assert "roles.gpu.id: unknown key" in complaint(text)
