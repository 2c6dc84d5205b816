"""The kit's own comparison of clocks: see ``rackproof/core/clocks.py``."""

from __future__ import annotations

from typing import Final

from rackproof.core.clocks import HEAD, Clock, Clocks
from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, integer, real, whole_lines

_TOOL: Final = "clocks"
_NOT_READ: Final = " not read: "


def parse_clocks(output: str | bytes) -> Clocks:
    """Offsets by node. Raises ParseError where clocks are missing."""
    lines = whole_lines(_TOOL, output)
    if lines[0] != HEAD:
        raise ParseError(_TOOL, f"the clocks of the nodes were not compared: {excerpt(lines[0])}")
    count = integer(_TOOL, "number of clocks", lines[-1].removesuffix(" clocks"))
    clocks: dict[str, Clock | str] = {}
    for line in lines[1:-1]:
        name, missing, why = line.partition(_NOT_READ)
        if missing:
            clocks[name] = why
            continue
        words = line.split(" ")
        if len(words) != 3:
            raise ParseError(_TOOL, f"expected a node and two offsets, got {excerpt(line)}")
        least, most = (real(_TOOL, f"offset of {words[0]}", word, minimum=None) for word in words[1:])
        if least > most:
            raise ParseError(_TOOL, f"offset of {words[0]}: at least {least:g} s and at most {most:g} s")
        clocks[words[0]] = Clock(least, most)
    if len(clocks) != count:
        raise ParseError(_TOOL, f"expected {count} clocks, actual {len(clocks)}")
    return clocks
