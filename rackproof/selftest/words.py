"""Answers in which one word is unknown: a state, a mode, a yes or no, replaced by a word that no parser knows.

In JSON every string and truth value is a word; in lines and XML the text after ``:``, ``=`` or a tag, and every word of
``STATES``. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from rackproof.core.grouping import grouped
from rackproof.selftest.partial import ABSENT, DIGITS, Document, Json, document_of

UNKNOWN: Final = "Grumbling"
_LONGEST: Final = 60
"""Characters before a word that distinguish places."""

STATES: Final = (
    r"(?<![\w.+/-])(?:up|down|UP|DOWN|[Oo]nline|ok|OK|HEALTH_OK|[Ee]nabled|[Dd]isabled|[Aa]ctive|ACTIVE|inactive|loaded"
    r"|running|Live|Pass|PASS|[Nn]one|[Yy]es|[Nn]o|on|off|[Ff]ull|[Nn]ormal|Success|Completed|synced|in_sync|clean"
    r"|Supported|FULL|LISTEN|ESTAB|READY|Ready|ONLINE|NORMAL|VALID|Match|stable|present|UpToDate|primary|static|LINK_UP"
    r"|LinkUp|PORT_ACTIVE|[Cc]onnected|Granted|idle|IDLE|installed|true|false|[Gg]ood|[Hh]ealthy|Default|[Oo]ptimal"
    r"|mounted|Not affected|Mitigation|Not [Aa]ctive|active\+clean|up:active|ro|rw)(?![\w/]|[ \t]*[:=])"
)
_VALUE: Final = (
    r"(?<=[:=>])[ \t]*[\"']?(?P<value>[A-Za-z][A-Za-z_+-]*(?: [A-Za-z][a-z_+-]*){0,2})(?=[\"']?(?:$|[,;)\]\s<]))"
)
_WORD: Final = re.compile(f"{_VALUE}|(?P<state>{STATES})", re.MULTILINE)
_OF_JSON: Final = re.compile(r'true|false|"[A-Za-z](?:[A-Za-z_ +:-]*[A-Za-z])?"')


class Variant(NamedTuple):
    label: str
    """The text up to the word, or its path in the document."""
    text: str
    """The answer with the unknown word."""


def variants(text: str) -> Iterator[Variant]:
    """The answer with one unknown word; the first, middle and last of places that differ only in numbers."""
    document = document_of(text)
    places = _of_document(document) if isinstance(document, Json) else _of_text(text)
    for alike_ones in grouped((alike, (label, place)) for alike, label, place in places).values():
        for index in sorted({0, len(alike_ones) // 2, len(alike_ones) - 1}):
            label, place = alike_ones[index]
            if isinstance(place, slice):
                yield Variant(label, text[: place.start] + UNKNOWN + text[place.stop :])
            elif isinstance(place, tuple):
                yield Variant(label, document.rendered({place: f'"{UNKNOWN}"'}))


def _of_document(document: Document) -> Iterator[tuple[str, str, object]]:
    for place in document.places():
        if _OF_JSON.fullmatch(place.text) and not ABSENT.fullmatch(place.text):
            yield f"{place.alike} {place.text}", place.label, place.path


def _of_text(text: str) -> Iterator[tuple[str, str, object]]:
    for match in _WORD.finditer(text):
        begin, end = match.span(match.lastgroup or 0)
        if ABSENT.fullmatch(match[0].strip()) and match.lastgroup == "value":
            continue
        line = text[text.rfind("\n", 0, begin) + 1 : end]
        yield DIGITS.sub("#", line[-_LONGEST:]), line.strip(), slice(begin, end)
