"""JSON documents in a tool's output, read with type checks."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from rackproof.core.wording import exact
from rackproof.parse.errors import ParseError
from rackproof.parse.text import first_words, last_words, text_of

LINE_BEGINS_OBJECT: Final = re.compile(r"(?m)^[ \t]*(?=\{)")
LINE_BEGINS_ARRAY: Final = re.compile(r"(?m)^[ \t]*(?=\[)")

_MISSING: Final = object()
_BITS: Final = 64
"""The largest counters have so many; a longer integer is damage, and may not become a float."""


@dataclass(frozen=True, slots=True)
class Json:
    """One JSON object and its path, so that errors can name the key."""

    tool: str
    where: str
    values: dict[str, Any]

    def _get(self, key: str) -> Any:
        value = self.values.get(key, _MISSING)
        if value is _MISSING:
            self.refuse(key, "is missing")
        return value

    def refuse(self, key: str, complaint: str) -> NoReturn:
        raise ParseError(self.tool, f"{self.where}{key} {complaint}")

    def has(self, key: str) -> bool:
        return self.values.get(key) is not None

    def number(self, key: str, *, minimum: float | None = 0.0) -> float:
        value = self._get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(key, "is not a number")
        try:
            value = float(value)
        except OverflowError:
            self.refuse(key, "is out of range")
        if not math.isfinite(value):
            self.refuse(key, "is not finite")
        if minimum is not None and value < minimum:
            self.refuse(key, f"is {exact(value)}, below {exact(minimum)}")
        return value

    def integer(self, key: str, *, minimum: int | None = 0) -> int:
        value = self._get(key)
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(key, "is not an integer")
        if value.bit_length() > _BITS:
            self.refuse(key, "is out of range")
        if minimum is not None and value < minimum:
            self.refuse(key, f"is below {minimum}")
        return value

    def string(self, key: str) -> str:
        """A string, not empty."""
        value = self._get(key)
        if not isinstance(value, str) or not value.strip():
            self.refuse(key, "is not a string")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        value = self._get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.refuse(key, "is not a list of strings")
        return tuple(value)

    def child(self, key: str) -> Json:
        return self._wrap(key, self._get(key))

    def children(self, key: str) -> list[Json]:
        value = self._get(key)
        if not isinstance(value, list):
            self.refuse(key, "is not a list")
        return [self._wrap(f"{key}[{index}]", item) for index, item in enumerate(value)]

    def _wrap(self, key: str, value: Any) -> Json:
        if not isinstance(value, dict):
            self.refuse(key, "is not an object")
        return Json(self.tool, f"{self.where}{key}.", value)


@dataclass(frozen=True, slots=True)
class EmbeddedDocument:
    """A document and the text around it (warnings, notes, progress)."""

    value: Any
    before: str
    after: str


def find_json(
    tool: str, output: str | bytes, accept: Callable[[Any], bool], *, start: re.Pattern[str] = LINE_BEGINS_OBJECT
) -> EmbeddedDocument:
    """The only JSON document that ``accept`` recognises, beginning where a match of ``start`` ends.

    Raises ParseError for no document, a truncated one, or a second one.
    """
    text = text_of(tool, output)
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    document: EmbeddedDocument | None = None
    complaint = f"the output has no JSON document; it ends with {last_words(text)}"
    position = 0
    while match := start.search(text, position):
        begin = match.end()
        try:
            value, end = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError) as error:
            complaint = f"JSON document is cut off or damaged ({error})"
            position = begin + 1
            continue
        position = end
        if not accept(value):
            continue
        if document is not None:
            raise ParseError(tool, "more than one JSON document")
        document = EmbeddedDocument(value, text[:begin], text[end:])
    if document is None:
        before = first_words(text)
        raise ParseError(tool, complaint + (f"; it begins with {before}" if before else ""))
    return document


def find_object(tool: str, output: str | bytes, *keys: str, start: re.Pattern[str] = LINE_BEGINS_OBJECT) -> Json:
    """The only JSON object that has one of these keys; any object without keys. Raises ParseError as ``find_json``."""

    def accept(value: Any) -> bool:
        return isinstance(value, dict) and (not keys or any(key in value for key in keys))

    return Json(tool, "", find_json(tool, output, accept, start=start).value)


def find_array(tool: str, output: str | bytes, name: str) -> list[Json]:
    """Objects of the only JSON array; ``name`` is its name in errors. Raises ParseError."""
    document = find_json(tool, output, lambda value: isinstance(value, list), start=LINE_BEGINS_ARRAY)
    return Json(tool, "", {name: document.value}).children(name)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")
