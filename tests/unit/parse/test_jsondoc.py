from __future__ import annotations

from typing import Any

import pytest

from rackproof.parse import ParseError
from rackproof.parse.jsondoc import Json, find_json


def find(text: str) -> Any:
    return find_json("tool", text, lambda value: isinstance(value, dict) and "id" in value).value


def test_a_document_is_cut_out_of_the_text_around_it() -> None:
    document = find_json("tool", 'note: {odd}\n{"id": 1}\nbye\n', lambda value: "id" in value)
    assert document.value == {"id": 1}
    assert document.before == "note: {odd}\n"
    assert document.after == "\nbye\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no braces here\n", "no JSON document"),
        ('{"other": {"id": 1}}', "no JSON document"),
        ('{"id": 1, "rest": [1, 2', "cut off or damaged"),
        ('{"x": [\n{"id": 1}', "parse"),
        ('{"id": 1}\n{"id": 2}\n', "more than one"),
        ('{"id": NaN}', "cut off or damaged"),
        ('{"id": ' + "[" * 100_000, "cut off or damaged"),
        ('{"id": ' + "9" * 5000 + "}", "cut off or damaged"),
    ],
)
def test_a_missing_damaged_or_ambiguous_document_is_refused(text: str, reason: str) -> None:
    if reason == "parse":  # a piece of a cut-off document is a document of its own only if accept says so
        assert find(text) == {"id": 1}
        return
    with pytest.raises(ParseError, match=reason):
        find(text)


READ: list[tuple[str, Any]] = [
    ("number", True),
    ("number", "1"),
    ("number", None),
    ("number", -1),
    ("number", 1e400),
    ("number", 10**400),
    ("integer", 1.0),
    ("integer", False),
    ("integer", -1),
    ("integer", 1 << 64),
    ("string", ""),
    ("string", 5),
    ("strings", "abc"),
    ("strings", ["a", 1]),
    ("child", []),
    ("children", {}),
    ("children", [1]),
]


@pytest.mark.parametrize(("method", "value"), READ)
def test_values_of_another_type_are_refused_by_name(method: str, value: Any) -> None:
    with pytest.raises(ParseError, match=r"tool: outer\.key"):
        getattr(Json("tool", "outer.", {"key": value}), method)("key")


@pytest.mark.parametrize("method", ["number", "integer", "string", "strings", "child", "children"])
def test_a_missing_key_is_named(method: str) -> None:
    with pytest.raises(ParseError, match="key is missing"):
        getattr(Json("tool", "", {}), method)("key")
