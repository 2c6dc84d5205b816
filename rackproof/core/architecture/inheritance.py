"""Architectures that extend others: merging a file with its parent.

Mappings merge key by key. A key of the file's choice (a storage, a job, a check) that is set to null is taken away, any
other one is null. The lists ``criteria``, ``curves`` and ``outliers`` merge by ``id``: an entry with a parent's id
changes that entry, a new one is added, ``drop`` removes one. Any other list replaces the parent's. A parent's
``overrides`` apply until the child overrides the same entry (null: removes the parent's override) or drops it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rackproof.core.architecture.document import Document, Placed
from rackproof.core.architecture.free_keys import has_free_keys
from rackproof.core.architecture.models import Architecture
from rackproof.core.architecture.problem import KeyPath, Problem, known

BY_ID = ("criteria", "curves", "outliers")

_THRESHOLDS = ("pass", "efficiency_min", "r2_min", "rel_pct")
"""Keys of entries that ``overrides`` change."""

Origins = dict[KeyPath, tuple["Document | Merged", KeyPath]]


class Merged(Placed):
    """A child's document merged over its parent's, with the file and line of every value.

    Raises ArchitectureError if ``drop`` names an unknown entry, or if the child has no id and version or has a
    duplicate entry.
    """

    def __init__(self, parent: Document | Merged, child: Document) -> None:
        self.name = child.name
        self._known: Origins = {}
        self._parent, self._child = parent, child
        self.ids: tuple[str, ...] = (*self._identity(), *_ids(parent))
        """Ids of the child and of its ancestors, nearest first."""
        self.dropped: dict[str, Any] = {**_drops(parent), **_drops(child)}
        """Entries of ``drop`` of the child and of its ancestors, by id."""
        self._refuse([*self._repeated(), *self._contradictions()])
        changed = dict(child.data)
        dropped = list(self._dropped(changed.get("drop")))
        base = {key: value for key, value in parent.data.items() if key not in ("extends", "drop")}
        for section in BY_ID:
            if isinstance(base.get(section), list):
                base[section] = [entry for entry in base[section] if _id(entry) not in dropped]
        if isinstance(base.get("overrides"), dict):
            base["overrides"] = {id_: over for id_, over in base["overrides"].items() if id_ not in dropped}
        self.data: Any = self._mapping(base, changed, (), (), ())

    def place(self, path: KeyPath) -> tuple[str, int]:
        document, own = self._known.get(self.known_part(path), (self._child, ()))
        return document.place(own)

    def _refuse(self, wrong: list[Problem]) -> None:
        if wrong:
            raise self._child.refused(wrong)

    def _identity(self) -> tuple[str, ...]:
        """Id of the child, unlike its ancestors', which certificates could not distinguish."""
        own = self._child.data.get("metadata")
        if not isinstance(own, dict):
            self._refuse([Problem(("metadata",), "expected an id and a version of its own, not only its parent's")])
        for key in ("id", "version"):
            if own.get(key) is None:
                self._refuse([Problem(("metadata", key), f"expected one of its own, not {self._parent.name}'s")])
        if own["id"] in _ids(self._parent):
            self._refuse([Problem(("metadata", "id"), f"'{own['id']}' is the id of a file that it extends")])
        return (str(own["id"]),)

    def _repeated(self) -> Iterator[Problem]:
        for section in BY_ID:
            positions: dict[str, int] = {}
            for index, entry in enumerate(_entries(self._child.data, section)):
                if (name := _id(entry)) is None:
                    continue
                if name in positions:
                    line = self._child.place((section, positions[name], "id"))[1]
                    yield Problem((section, index, "id"), f"'{name}' is in line {line} already")
                positions.setdefault(name, index)

    def _contradictions(self) -> Iterator[Problem]:
        """Thresholds that the child changes while the parent's override still applies."""
        theirs, own = self._parent.data.get("overrides"), self._child.data.get("overrides")
        for section in BY_ID:
            for index, entry in enumerate(_entries(self._child.data, section)):
                changed = [key for key in _THRESHOLDS if isinstance(entry, dict) and key in entry]
                name = _id(entry)
                if changed and isinstance(theirs, dict) and name in theirs and name not in (own or ()):
                    yield Problem(
                        (section, index, changed[0]),
                        f"{self._parent.name} overrides it; override it here too, or remove that override with null",
                    )

    def _dropped(self, entries: Any) -> Iterator[str]:
        names = [name for section in BY_ID for e in _entries(self._parent.data, section) if (name := _id(e))]
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if (name := _id(entry)) is not None:
                self._refuse(list(known(("drop", index, "id"), name, names, f"entry of {self._parent.name}")))
                yield name

    def _mapping(self, base: Any, over: Any, key_path: KeyPath, below: KeyPath, above: KeyPath) -> Any:
        """``below`` and ``above``: paths of base and child in their files."""
        if not (isinstance(base, dict) and isinstance(over, dict)):
            self._note(over, key_path, self._child, above)
            return over
        self._known[key_path] = (self._child, above)
        merged: dict[Any, Any] = {}
        for key in (*base, *(key for key in over if key not in base)):
            at, low, high = (*key_path, key), (*below, key), (*above, key)
            if key not in over:
                if key in BY_ID and not key_path and isinstance(base[key], list):
                    merged[key] = self._entries(base[key], [], key)
                else:
                    self._note(base[key], at, self._parent, low)
                    merged[key] = base[key]
            elif key not in base:
                self._note(over[key], at, self._child, high)
                merged[key] = over[key]
            elif key in BY_ID and not key_path:
                merged[key] = self._entries(base[key], over[key], key)
            elif key == "overrides" and not key_path:
                merged[key] = self._overrides(base[key], over[key])
            elif over[key] is None and has_free_keys(Architecture, key_path):
                continue
            else:
                merged[key] = self._mapping(base[key], over[key], at, low, high)
        return merged

    def _overrides(self, base: Any, over: Any) -> Any:
        """Overrides of both files; the child's entry replaces the parent's, because a reason belongs to one change."""
        key_path: KeyPath = ("overrides",)
        if not (isinstance(base, dict) and isinstance(over, dict)):
            self._note(over, key_path, self._child, key_path)
            return over
        self._known[key_path] = (self._child, key_path)
        merged = {id_: value for id_, value in {**base, **over}.items() if value is not None}
        for id_, value in merged.items():
            self._note(value, (*key_path, id_), self._child if id_ in over else self._parent, (*key_path, id_))
        return merged

    def _entries(self, base: Any, over: Any, section: str) -> Any:
        """The parent's entries in order, with the child's changes, then the child's entries."""
        if not (isinstance(base, list) and isinstance(over, list)):
            self._note(over, (section,), self._child, (section,))
            return over
        origin = self._child if over else self._parent
        self._known[(section,)] = (origin, (section,))
        theirs = {_id(e): i for i, e in enumerate(_entries(self._parent.data, section)) if _id(e)}
        positions = {_id(e): i for i, e in enumerate(over) if _id(e)}
        merged: list[Any] = []
        for entry in base:
            at, name = (section, len(merged)), _id(entry)
            low = (section, theirs.get(name, 0))
            if name in positions:
                merged.append(self._mapping(entry, over[positions[name]], at, low, (section, positions[name])))
            else:
                self._note(entry, at, self._parent, low)
                merged.append(entry)
        parent_ids = {_id(entry) for entry in base}
        for index, entry in enumerate(over):
            if _id(entry) is None or _id(entry) not in parent_ids or positions[_id(entry)] != index:
                self._note(entry, (section, len(merged)), self._child, (section, index))
                merged.append(entry)
        return merged

    def _note(self, value: Any, key_path: KeyPath, document: Document | Merged, own: KeyPath) -> None:
        """All values at and below ``key_path`` are those at ``own`` in one document."""
        self._known[key_path] = (document, own)
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            self._note(inner, (*key_path, key), document, (*own, key))


def parent_of(document: Document) -> str | None:
    """The value of ``extends``. Raises ArchitectureError if it is not a string."""
    data = document.data
    if not isinstance(data, dict) or data.get("extends") is None:
        return None
    if not isinstance(data["extends"], str):
        actual = f"expected an id or a path, actual {data['extends']!r}"
        raise document.refused([Problem(("extends",), actual)])
    return data["extends"]


def _ids(document: Document | Merged) -> tuple[str, ...]:
    if isinstance(document, Merged):
        return document.ids
    metadata = document.data.get("metadata")
    return (str(metadata["id"]),) if isinstance(metadata, dict) and "id" in metadata else ()


def _drops(document: Document | Merged) -> dict[str, Any]:
    if isinstance(document, Merged):
        return document.dropped
    listed = document.data.get("drop") if isinstance(document.data, dict) else None
    return {id_: entry for entry in (listed if isinstance(listed, list) else ()) if (id_ := _id(entry)) is not None}


def _entries(data: dict[str, Any], section: str) -> list[Any]:
    """Entries of one of the three lists; empty if it is not a list, which the models report."""
    listed = data.get(section)
    return listed if isinstance(listed, list) else []


def _id(entry: Any) -> Any:
    name = entry.get("id") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else None
