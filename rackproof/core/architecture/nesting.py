"""Size limits of a YAML text, checked before parsing it into objects, with aliases expanded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import yaml

from rackproof.errors import ArchitectureError

LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The safe loader of all YAML files. libyaml is ten times faster; messages of the pure parser differ slightly."""

DUMPER: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""The matching dumper, which writes the kit's architectures as the pure dumper does."""

MOST_NODES = 200_000
"""Mappings, lists and scalars of one file with its aliases expanded; the largest shipped file has a few thousand."""

DEEPEST = 100
"""Nesting depth of mappings and lists, aliases expanded."""


@dataclass(slots=True)
class _Part:
    """A mapping or a list that is still open, or the value of an anchor."""

    anchor: str | None
    nodes: int = 1
    height: int = 1
    """Levels, including its own; 0 for a scalar."""


def check_size(text: str, name: str) -> None:
    """Refuse a text that is too deep or too large once its aliases are expanded.

    Reads only YAML events, which build no objects; ``name`` is the file in errors. Raises
    ArchitectureError, and yaml.YAMLError for a text that is not YAML.
    """

    def too_much(line: int, reason: str) -> ArchitectureError:
        return ArchitectureError(f"{name}:{line}: {reason}")

    behind: dict[str, _Part] = {}
    enclosing: list[_Part] = []
    for event in yaml.parse(text, Loader=LOADER):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.CollectionStartEvent):
            enclosing.append(_Part(event.anchor))
            if len(enclosing) > DEEPEST:
                raise too_much(line, f"nested deeper than {DEEPEST} levels")
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            part = enclosing.pop()
        elif isinstance(event, yaml.ScalarEvent):
            part = _Part(event.anchor, height=0)
        elif isinstance(event, yaml.AliasEvent):
            if any(outer.anchor == event.anchor for outer in enclosing):
                raise too_much(line, f"*{event.anchor} refers to itself")
            part = behind.get(event.anchor or "") or _Part(None, height=0)  # an unknown one is refused when it is built
        else:
            continue
        if part.anchor is not None:
            behind[part.anchor] = part
        if enclosing:
            enclosing[-1].nodes += part.nodes
            enclosing[-1].height = max(enclosing[-1].height, part.height + 1)
        if len(enclosing) + part.height > DEEPEST:
            raise too_much(line, f"nested deeper than {DEEPEST} levels")
        if sum(outer.nodes for outer in enclosing) > MOST_NODES:
            raise too_much(line, "aliases expand to too much" if behind else f"more than {MOST_NODES} entries")
