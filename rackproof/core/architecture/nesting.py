"""How much a YAML text is when its aliases are written out, counted before anything is built from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

MOST_NODES = 200_000
"""Mappings, lists and scalars of one file, aliases written out; the largest shipped file has a few thousand."""

DEEPEST = 100
"""Mappings and lists inside each other, those behind aliases included."""


class TooMuch(ValueError):
    """The text cannot be a reference architecture; ``line`` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(slots=True)
class _Part:
    """A mapping or a list that is still open, or what stands behind an anchor."""

    anchor: str | None
    nodes: int = 1
    height: int = 1
    """Levels, its own included; 0 for a scalar."""


def measure(text: str, loader: Any) -> None:
    """Look through the events of ``text``, which neither recurse nor build anything.

    Raises TooMuch, and yaml.YAMLError for what is no YAML.
    """
    behind: dict[str, _Part] = {}
    around: list[_Part] = []
    for event in yaml.parse(text, Loader=loader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.CollectionStartEvent):
            around.append(_Part(event.anchor))
            if len(around) > DEEPEST:
                raise TooMuch(line, f"nested deeper than {DEEPEST} levels")
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            part = around.pop()
        elif isinstance(event, yaml.ScalarEvent):
            part = _Part(event.anchor, height=0)
        elif isinstance(event, yaml.AliasEvent):
            if any(outer.anchor == event.anchor for outer in around):
                raise TooMuch(line, f"*{event.anchor} refers to itself")
            part = behind.get(event.anchor or "") or _Part(None, height=0)  # an unknown one is refused when it is built
        else:
            continue
        if part.anchor is not None:
            behind[part.anchor] = part
        if around:
            around[-1].nodes += part.nodes
            around[-1].height = max(around[-1].height, part.height + 1)
        if len(around) + part.height > DEEPEST:
            raise TooMuch(line, f"nested deeper than {DEEPEST} levels")
        if sum(outer.nodes for outer in around) > MOST_NODES:
            raise TooMuch(line, "aliases expand to too much" if behind else f"more than {MOST_NODES} entries")
