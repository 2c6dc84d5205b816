"""Architectures that extend others: merging a file with its parent.

Mappings merge key by key, and a key set to null is null. The lists ``criteria``, ``curves`` and ``outliers`` merge by
``id``: an entry with a parent's id changes that entry, a new one is added, ``drop`` removes one. Any other list
replaces the parent's. A parent's ``overrides`` apply until the child overrides the same entry (null: removes the
parent's override) or drops it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rackproof.core.architecture.document import Document, complaint
from rackproof.core.architecture.problem import KeyPath, Problem, known
from rackproof.errors import ArchitectureError

BY_ID = ("criteria", "curves", "outliers")

_THRESHOLDS = ("pass", "efficiency_min", "r2_min", "rel_pct")
"""Keys of entries that ``overrides`` change."""

Origins = dict[KeyPath, tuple["Document | Merged", KeyPath]]


class Merged:
    """A child's document merged over its parent's, with the file and line of every value.

    Raises ArchitectureError where ``drop`` names what the parent does not have, where the child has no identity of
    its own, or where it has a duplicate entry.
    """

    def __init__(self, parent: Document | Merged, child: Document) -> None:
        self.name = child.name
        self._origins: Origins = {}
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

    def known_part(self, path: KeyPath) -> KeyPath:
        """The longest prefix of ``path`` that is in one of the files."""
        while path and path not in self._origins:
            path = path[:-1]
        return path

    def place(self, path: KeyPath) -> tuple[str, int]:
        """File and line of ``path``, or of its nearest existing parent."""
        document, own = self._origins.get(self.known_part(path), (self._child, ()))
        return document.place(own)

    def sentence(self, wrong: list[Problem]) -> str:
        """One line: the first of the problems, and how many more there are."""
        return complaint(self, wrong)

    def _refuse(self, wrong: list[Problem]) -> None:
        if wrong:
            raise ArchitectureError(complaint(self._child, wrong))

    def _identity(self) -> tuple[str, ...]:
        """The child's own id: certificates could not tell two files with one id apart."""
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
            seen: dict[str, int] = {}
            for index, entry in enumerate(_entries(self._child.data, section)):
                if (name := _id(entry)) is None:
                    continue
                if name in seen:
                    line = self._child.place((section, seen[name], "id"))[1]
                    yield Problem((section, index, "id"), f"'{name}' is in line {line} already")
                seen.setdefault(name, index)

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

    def _mapping(self, base: Any, over: Any, here: KeyPath, below: KeyPath, above: KeyPath) -> Any:
        """``below`` and ``above`` are the paths of the two in their own files."""
        if not (isinstance(base, dict) and isinstance(over, dict)):
            self._note(over, here, self._child, above)
            return over
        self._origins[here] = (self._child, above)
        merged: dict[Any, Any] = {}
        for key in (*base, *(key for key in over if key not in base)):
            at, low, high = (*here, key), (*below, key), (*above, key)
            if key not in over:
                if key in BY_ID and not here and isinstance(base[key], list):
                    merged[key] = self._entries(base[key], [], key)
                else:
                    self._note(base[key], at, self._parent, low)
                    merged[key] = base[key]
            elif key not in base:
                self._note(over[key], at, self._child, high)
                merged[key] = over[key]
            elif key in BY_ID and not here:
                merged[key] = self._entries(base[key], over[key], key)
            elif key == "overrides" and not here:
                merged[key] = self._overrides(base[key], over[key])
            else:
                merged[key] = self._mapping(base[key], over[key], at, low, high)
        return merged

    def _overrides(self, base: Any, over: Any) -> Any:
        """Both files' overrides; an entry of the child replaces the parent's: a reason belongs to one change."""
        here: KeyPath = ("overrides",)
        if not (isinstance(base, dict) and isinstance(over, dict)):
            self._note(over, here, self._child, here)
            return over
        self._origins[here] = (self._child, here)
        merged = {id_: value for id_, value in {**base, **over}.items() if value is not None}
        for id_, value in merged.items():
            self._note(value, (*here, id_), self._child if id_ in over else self._parent, (*here, id_))
        return merged

    def _entries(self, base: Any, over: Any, section: str) -> Any:
        """The parent's entries in their order, with the child's changes, then the child's own."""
        if not (isinstance(base, list) and isinstance(over, list)):
            self._note(over, (section,), self._child, (section,))
            return over
        origin = self._child if over else self._parent
        self._origins[(section,)] = (origin, (section,))
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
        seen = {_id(entry) for entry in base}
        for index, entry in enumerate(over):
            if _id(entry) is None or _id(entry) not in seen or positions[_id(entry)] != index:
                self._note(entry, (section, len(merged)), self._child, (section, index))
                merged.append(entry)
        return merged

    def _note(self, value: Any, here: KeyPath, document: Document | Merged, own: KeyPath) -> None:
        """Everything at and below ``here`` comes from ``own`` of one document."""
        self._origins[here] = (document, own)
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            self._note(inner, (*here, key), document, (*own, key))


def parent_of(document: Document) -> str | None:
    """The value of ``extends``. Raises ArchitectureError where it is not a string."""
    data = document.data
    if not isinstance(data, dict) or data.get("extends") is None:
        return None
    if not isinstance(data["extends"], str):
        raise ArchitectureError(
            complaint(document, [Problem(("extends",), f"expected an id or a path, actual {data['extends']!r}")])
        )
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
    """The entries of one of the three lists; empty where it is no list, which the models report."""
    listed = data.get(section)
    return listed if isinstance(listed, list) else []


def _id(entry: Any) -> Any:
    name = entry.get("id") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else None
