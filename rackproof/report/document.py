"""The written form of a certificate: a value that many entries share is written once.

A rack of 1,000 nodes has half a million verdicts. In the lists of ``TABLES`` an object stands for several entries:
fields that they share, and under ``each`` a list with an item per entry for every other field. Names are node sets
(``gpu-[0001-1000]``) where that gives the same names in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from json.encoder import encode_basestring
from typing import Any, Final

from rackproof.core.evidence import Scope, subject_of
from rackproof.core.rack import expand, fold

Entry = dict[str, Any]

EACH: Final = "each"
_NUMBERS: Final = (
    "message", "value", "measured", "ceiling", "distance_pct", "samples", "cv_pct", "level",
)  # fmt: skip
"""Fields of verdicts on criteria that differ between almost all subjects."""
TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "verdicts": ("subject", "records", "raw"),
    "measurements": ("members", "median", "samples", "raw", "conditions", "reason"),
    "raw": ("node", "sha256", "bytes", "elapsed_s"),
    "nodes": ("node",),
}
"""Fields under ``each``, if the entries differ in them; an entry with other values elsewhere is in another object."""
_NAMES: Final = ("subject", "node")


def written(document: Mapping[str, Any]) -> dict[str, Any]:
    """The written form of a certificate, or of verdicts alone, as plain JSON."""
    changed: dict[str, Any] = {"verdicts": _folded("verdicts", document["verdicts"])}
    if "evidence" in document:
        plain = ({k: v for k, v in m.items() if k != "subject"} for m in document["measurements"])
        changed |= {
            "measurements": _folded("measurements", plain),
            "deploys": [deploy | {"nodes": _folded("nodes", deploy["nodes"])} for deploy in document["deploys"]],
            "evidence": document["evidence"] | {"raw": _folded("raw", document["evidence"]["raw"])},
        }
    return {**document, **changed}


def plain(document: Mapping[str, Any]) -> dict[str, Any]:
    """The certificate, or the verdicts, of a written form. Raises ValueError for another document."""
    try:
        changed: dict[str, Any] = {"verdicts": list(_unfolded(document["verdicts"]))}
        changed["verdicts"].sort(key=lambda verdict: (verdict["kind"], verdict["id"], verdict["subject"]))
        if "evidence" in document:
            numbers = _unfolded(document["measurements"])
            changed |= {
                "measurements": [m | {"subject": subject_of(Scope(m["scope"]), m["members"])} for m in numbers],
                "deploys": [deploy | {"nodes": list(_unfolded(deploy["nodes"]))} for deploy in document["deploys"]],
                "evidence": document["evidence"] | {"raw": list(_unfolded(document["evidence"]["raw"]))},
            }
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"the document is no certificate: {error!r}") from None
    return {**document, **changed}


def _folded(table: str, entries: Iterable[Entry]) -> list[Entry]:
    """Neighbouring entries in one object; verdicts also from any place, because ``plain`` sorts them again."""

    def shared(entry: Entry) -> str:
        own = _own(table, entry)
        brief = not entry.get("message", "")  # its empty fields are shared, too
        return json.dumps([brief, *(value for key, value in entry.items() if key not in own)])

    groups: dict[object, list[Entry]] = {}
    for number, (same, neighbours) in enumerate(groupby(entries, shared)):
        groups.setdefault(same if table == "verdicts" else number, []).extend(neighbours)
    return [_object(_own(table, group[0]), group) for group in groups.values()]


def _own(table: str, entry: Entry) -> tuple[str, ...]:
    return (*TABLES[table], *_NUMBERS) if entry.get("kind") == "criterion" else TABLES[table]


def _object(own: Sequence[str], group: Sequence[Entry]) -> Entry:
    first = group[0]
    if len(group) == 1:
        return first
    differing = [key for key in own if any(entry[key] != first[key] for entry in group)]
    shared = {key: value for key, value in first.items() if key not in differing}
    columns = {key: [entry[key] for entry in group] for key in differing}
    return shared | {EACH: {key: _names(tuple(items)) if key in _NAMES else items for key, items in columns.items()}}


@lru_cache(maxsize=512)
def _names(names: tuple[str, ...]) -> tuple[str, ...] | str:
    try:
        text = fold(names)
        return text if expand(text) == names else names
    except ValueError:
        return names


def _unfolded(objects: Iterable[Entry]) -> Iterator[Entry]:
    """Raises ValueError for lists of different lengths."""
    for item in objects:
        if EACH not in item:
            yield item
            continue
        shared = {key: value for key, value in item.items() if key != EACH}
        columns = {key: expand(items) if isinstance(items, str) else items for key, items in item[EACH].items()}
        for row in zip(*columns.values(), strict=True):
            yield shared | dict(zip(columns, row, strict=True))


def to_json(document: Mapping[str, Any]) -> bytes:
    """Bytes of the file: sorted keys, a line for each field and for each array without objects, newline at the end."""
    return (_text(document) + "\n").encode()


def _text(value: Any, indent: str = "") -> str:
    if isinstance(value, str):
        return encode_basestring(value)
    inner = indent + "  "
    if isinstance(value, Mapping) and value:
        fields = (f"{inner}{encode_basestring(str(key))}: {_text(value[key], inner)}" for key in sorted(value))
        return "{\n" + ",\n".join(fields) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
        return "[\n" + ",\n".join(f"{inner}{_text(item, inner)}" for item in value) + f"\n{indent}]"
    return _ENCODER.encode(value)


_ENCODER: Final = json.JSONEncoder(sort_keys=True, ensure_ascii=False, allow_nan=False)
