"""Answers that lack one entry, or one value of which is N/A.

A place is a value of an answer; its entry is the line, or the element of a JSON or XML document, that holds it. Only
judged places matter: those where another plausible value makes the check fail. A check that judges a value must not
pass without it. Pure.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rackproof.core.evidence import CheckOutcome
from rackproof.core.grouping import grouped

Path = tuple[Any, ...]
Edits = Mapping[Path, str | None]
"""New values by path; None removes the value or the entry."""


@dataclass(frozen=True)
class Place:
    """A value of an answer."""

    path: Path
    """Where it is; depends on the kind of the document."""
    entries: tuple[Path, ...]
    """The entries that hold it: the line, or the element and the elements around it."""
    label: str
    """Text that names it: the line, or the path of tags or keys, and the value."""
    text: str
    """Its value."""
    alike: str
    """Class of the place: places of one class are read alike."""


class Document(Protocol):
    """An answer, taken apart."""

    def places(self) -> Iterator[Place]: ...

    def rendered(self, edits: Edits) -> str:
        """The answer with other values."""
        ...


_NUMBER: Final = r"-?\d+(?:\.\d+)?"
_WHOLE_NUMBER: Final = re.compile(_NUMBER)
_TOKEN: Final = re.compile(r"[^\s:=,;|\"'()\[\]{}<>]+")
DIGITS: Final = re.compile(r"(?i)(?<![a-z])[0-9a-f]*\d[0-9a-f]*|\d+")
ABSENT: Final = re.compile(r"(?i)\"?\[?(?:N/A|Not Supported|none|null)\]?\"?|")
"""Values that are already not available."""


class Lines:
    """Lines; their values are numbers and the last word."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines(keepends=True)

    def places(self) -> Iterator[Place]:
        for number, line in enumerate(self.lines):
            tokens = list(_TOKEN.finditer(line))
            alike = DIGITS.sub("#", line)
            for index, token in enumerate(tokens):
                if index == len(tokens) - 1 or _WHOLE_NUMBER.fullmatch(token[0]):
                    place = number, token.start(), token.end()
                    yield Place(place, ((number,),), line.strip(), token[0], f"{index} {alike}")

    def rendered(self, edits: Edits) -> str:
        lines = list(self.lines)
        # From the end of each line, so that offsets stay valid.
        for path, value in sorted(edits.items(), reverse=True):
            line = lines[path[0]]
            lines[path[0]] = "" if len(path) == 1 else line[: path[1]] + (value or "") + line[path[2] :]
        return "".join(lines)


class Json:
    """A JSON document, with text around it."""

    def __init__(self, before: str, text: str, after: str) -> None:
        self.before, self.text, self.after = before, text, after

    def places(self) -> Iterator[Place]:
        yield from self._below(json.loads(self.text), (), ())

    def _below(self, value: Any, path: Path, around: tuple[Path, ...]) -> Iterator[Place]:
        if isinstance(value, dict | list):
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                inside = (*path, key)
                yield from self._below(item, inside, (inside, *around))
        elif path:
            label = ".".join(map(str, path))
            alike = ".".join("*" if isinstance(key, int) else str(key) for key in path)
            yield Place(path, around, f"{label} {json.dumps(value)}", json.dumps(value), alike)

    def rendered(self, edits: Edits) -> str:
        document = json.loads(self.text)
        for path, value in edits.items():
            holder = document
            for key in path[:-1]:
                holder = holder[key]
            if value is None:
                del holder[path[-1]]
            else:
                holder[path[-1]] = _json_value(value)
        return self.before + json.dumps(document) + self.after


def _json_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


class Xml:
    """An XML document."""

    def __init__(self, text: str) -> None:
        at = text.index("<!DOCTYPE") if "<!DOCTYPE" in text else 0
        self.head = text[: text.index("<", at + 1)] if at else ""
        self.root = ET.fromstring(text)  # noqa: S314  (recorded by the kit)

    def places(self) -> Iterator[Place]:
        yield from self._below(self.root, (), (), "")

    def _below(self, element: ET.Element, path: Path, around: tuple[Path, ...], tags: str) -> Iterator[Place]:
        for index, child in enumerate(element):
            inside, names = (*path, index), f"{tags}/{DIGITS.sub('#', child.tag)}"
            if len(child):
                yield from self._below(child, inside, (inside, *around), names)
            else:
                value = (child.text or "").strip()
                yield Place(inside, (inside, *around), f"{names[1:]} {value}", value, names)

    def rendered(self, edits: Edits) -> str:
        undo: list[Callable[[], None]] = []
        for path, value in sorted(edits.items(), reverse=True):
            holder = self.root
            for index in path[:-1]:
                holder = holder[index]
            child, at = holder[path[-1]], path[-1]
            if value is None:
                holder.remove(child)
                undo.append(lambda holder=holder, child=child, at=at: holder.insert(at, child))  # type: ignore[misc]
            else:
                undo.append(lambda child=child, old=child.text: setattr(child, "text", old))  # type: ignore[misc]
                child.text = value
        text = self.head + ET.tostring(self.root, encoding="unicode") + "\n"
        for step in reversed(undo):
            step()
        return text


JSON: Final = re.compile(r"(?s)(\s*)([\[{].*[\]}])(\n(?:status \d+\n)?)")


def document_of(text: str) -> Document:
    """The answer as XML, JSON or lines."""
    try:
        if text.lstrip().startswith("<?xml"):
            return Xml(text)
        if match := JSON.fullmatch(text):
            json.loads(match[2])
            return Json(match[1], match[2], match[3])
    except (ET.ParseError, ValueError):
        pass
    return Lines(text)


def sampled(document: Document) -> list[Place]:
    """The first, the middle and the last place of each class with a value; in an XML document the middle one."""
    classes = grouped((place.alike, place) for place in document.places() if not ABSENT.fullmatch(place.text))
    chosen: list[Place] = []
    for alike in classes.values():
        middle, last = len(alike) // 2, len(alike) - 1
        # Documents of GPUs are large, and checks read all GPUs alike.
        chosen += [alike[index] for index in ([middle] if isinstance(document, Xml) else sorted({0, middle, last}))]
    return chosen


_OPPOSITES: Final = {
    "yes": "no", "enabled": "disabled", "on": "off", "up": "down", "rw": "ro", "active": "inactive", "true": "false",
    "pass": "fail", "installed": "config-files", "not active": "active", "y": "n", "full": "half", "good": "bad",
    "online": "offline", "running": "exited",
}  # fmt: skip
_PAIRS: Final = _OPPOSITES | {value: key for key, value in _OPPOSITES.items() if key != "not active"}


def others(text: str) -> tuple[str, str]:
    """Two other plausible values: a small and a large number of the same form, or other words."""
    if re.search(r"\d", text) and re.fullmatch(rf"\D{{0,3}}{_NUMBER}\W?\s?[\w/.]{{0,6}}", text):
        return re.sub(_NUMBER, "0", text, count=1), re.sub(_NUMBER, "9876543", text, count=1)
    bare = text.strip('"')
    other = '"Xyzzy"' if text.startswith('"') else "Xyzzy"
    if bare.lower() not in _PAIRS:
        return other, other
    pair = _PAIRS[bare.lower()]
    return text.replace(bare, pair.capitalize() if bare[:1].isupper() else pair), other


def judged(places: Sequence[Place], outcome: Callable[[Edits, int], CheckOutcome], checks: int) -> list[list[Place]]:
    """For each of ``checks`` checks, by number, the places where another plausible value makes it fail.

    Whole groups are tried at once: where a check passes with another value in each place of a group, it judges none of
    them. All checks try a group before the next one, since they parse the same text.
    """
    judging: list[dict[Path, Place]] = [{} for _ in range(checks)]
    choices = [(place, others(place.text)) for place in places]
    # parsers refuse many words, and few numbers
    numbers = [(place, pair) for place, pair in choices if re.search(r"\d", pair[0])]
    words = [(place, pair) for place, pair in choices if not re.search(r"\d", pair[0])]
    for group in (numbers, words):
        _search([(place, first) for place, (first, _) in group], range(checks), outcome, judging)
        seconds = [(place, second) for place, (first, second) in group if second != first]
        _search(seconds, range(checks), outcome, judging)
    return [list(places.values()) for places in judging]


def _search(
    group: Sequence[tuple[Place, str]],
    checks: Iterable[int],
    outcome: Callable[[Edits, int], CheckOutcome],
    judging: Sequence[dict[Path, Place]],
) -> None:
    suspects = []
    for check in checks:
        edits = {place.path: value for place, value in group if place.path not in judging[check]}
        if not edits or (seen := outcome(edits, check)) is CheckOutcome.PASSED:
            continue
        if len(edits) > 1:
            suspects.append(check)
        elif seen is CheckOutcome.FAILED:
            judging[check] |= {place.path: place for place, _ in group if place.path in edits}
    if suspects:
        half = len(group) // 2
        _search(group[:half], suspects, outcome, judging)
        _search(group[half:], suspects, outcome, judging)
