"""pydantic's validation errors as messages about an architecture file."""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rackproof.core.architecture import Architecture
from rackproof.core.architecture.document import Placed
from rackproof.core.architecture.problem import KeyPath, Problem
from rackproof.core.nearest import nearest, suggestion

_EXPECTED = {
    "string_type": "text",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
    "tuple_type": "a list",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "string_too_short": "at least {min_length} characters",
    "string_pattern_mismatch": "text that matches {pattern}",
    "too_short": "at least {min_length} of them",
}


def model_problems(error: ValidationError, document: Placed) -> list[Problem]:
    """One problem for each path, in pydantic's order."""
    expected: dict[KeyPath, list[str]] = {}
    actual: dict[KeyPath, str] = {}
    messages: dict[KeyPath, str] = {}
    missing: list[KeyPath] = []
    misspelled: set[KeyPath] = set()
    for details in error.errors(include_url=False):
        path, kind = tuple(details["loc"]), details["type"]
        if kind == "missing":
            missing.append(path)
            continue
        # pydantic's path also names the alternatives of a union
        path = document.known_part(path)
        if kind == "extra_forbidden":
            keys = keys_at(path[:-1])
            messages[path] = f"unknown key; {suggestion(str(path[-1]), keys)}"
            misspelled.update((*path[:-1], key) for key in nearest(str(path[-1]), keys))
        elif kind in _EXPECTED:
            expected.setdefault(path, []).append(_EXPECTED[kind].format(**details.get("ctx", {})))
            actual[path] = _actual(details)
        else:
            messages.setdefault(path, details["msg"].removeprefix("Value error, "))
    # A misspelled required key is reported once.
    messages.update((path, "required key is missing") for path in missing if path not in misspelled)
    for path, alternatives in expected.items():
        types = " or ".join(dict.fromkeys(alternatives))
        messages.setdefault(path, f"expected {types}, actual {actual[path]}")
    return [Problem(path, message) for path, message in messages.items()]


def keys_at(path: KeyPath, model: type[BaseModel] = Architecture) -> tuple[str, ...]:
    """Allowed keys at ``path`` in a file of this model, as files spell them; empty if any key is allowed."""
    kinds: list[Any] = [model]
    for key in path:
        kinds = [inner for kind in kinds for inner in _inside(kind, key)]
    names = (
        field.alias or name
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, BaseModel)
        for name, field in kind.model_fields.items()
    )
    return tuple(dict.fromkeys(names))


def _inside(kind: Any, key: str | int) -> Iterator[Any]:
    """The type below ``key`` in a value of type ``kind``."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            if key in (name, field.alias):
                yield from _alternatives(field.annotation)
        return
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is dict:
        yield from _alternatives(arguments[1])
    elif origin is tuple:
        yield from _alternatives(arguments[0])


def _alternatives(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for argument in get_args(annotation):
            yield from _alternatives(argument)
    else:
        yield annotation


def _actual(details: ErrorDetails) -> str:
    value = details["input"]
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    text = text if len(text) <= 60 else f"{text[:57]}…"
    return f"{text} (quote it)" if details["type"] == "string_type" else text
