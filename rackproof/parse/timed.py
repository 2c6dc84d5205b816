"""Readings of one node in a row, each with the time at which it was complete."""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

from rackproof.parse.errors import ParseError
from rackproof.parse.memory import remembered
from rackproof.parse.sections import named_sections
from rackproof.parse.text import integer

_END: Final = b"-- end\n"


class Timed(NamedTuple):
    """One reading: what its own parser reads, and milliseconds since 1970 by the node's clock."""

    time_ms: int
    text: bytes


@remembered(1024)  # several figures of a run need the same readings
def parse_timed(tool: str, output: bytes) -> tuple[Timed, ...]:
    """Readings in their order. Raises ParseError for an answer that is cut off, empty or without times."""
    *texts, rest = output.split(_END)
    if rest or not texts:
        raise ParseError(tool, "the answer is cut off")
    readings = tuple(_timed(tool, text + _END) for text in texts)
    if any(late.time_ms < early.time_ms for early, late in pairwise(readings)):
        raise ParseError(tool, "the node's clock went back between two readings")
    return readings


def _timed(tool: str, text: bytes) -> Timed:
    times = named_sections(tool, text).get("time", [])
    if len(times) != 1:
        raise ParseError(tool, f"expected the time of a reading, got {len(times)} lines")
    return Timed(integer(tool, "time of a reading", times[0]), text)
