"""Times that ``date +%s.%N`` prints, in seconds since the epoch by the node's clock, and the kit's own comparison of
clocks: see ``rackproof/core/clocks.py``."""

from __future__ import annotations

import re
from typing import Final

from rackproof.core.clocks import HEAD, Clock, Clocks
from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, integer, real, whole_lines

_TOOL: Final = "clocks"
_NOT_READ: Final = " not read: "
_TIME: Final = re.compile(r"\d{1,11}\.\d{9}")
_FIRST: Final = re.compile(rb"(?m)^(\d{9,11}\.\d{1,9})\r?\n")


def time_of(line: str) -> float | None:
    """The time that is alone on a line; None for another line."""
    return float(line) if _TIME.fullmatch(line) else None


def parse_beginning(tool: str, text: str) -> float:
    """The time that is the first line. Raises ParseError."""
    first = text.partition("\n")[0]
    if (time := time_of(first)) is None:
        raise ParseError(tool, f"it does not report when it began: {first[:40]!r}")
    return time


def times_in(text: str) -> list[float]:
    """Times of all lines that are one."""
    return [time for line in text.splitlines() if (time := time_of(line)) is not None]


def first_time(data: bytes) -> float | None:
    """The first whole line that is a time, also of bash's EPOCHREALTIME; None before one is there."""
    match = _FIRST.search(data)
    return float(match[1]) if match else None


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
