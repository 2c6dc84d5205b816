"""chrony: ``chronyc -c tracking`` and ``chronyc -c sources`` (comma-separated, no header)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, integer, real, whole_lines

TOOL: Final = "chronyc"
_LEAP: Final = ("Normal", "Insert second", "Delete second", "Not synchronised")


@dataclass(frozen=True, slots=True)
class Tracking:
    reference_id: str
    """Hexadecimal; ``7F7F0101`` is the local clock, ``00000000`` no source."""
    reference: str
    """Name or address of the source; empty for the local clock."""
    stratum: int
    system_offset_s: float
    """Seconds that the system clock is behind true time; negative: ahead."""
    last_offset_s: float
    rms_offset_s: float
    leap_status: str

    @property
    def synchronised(self) -> bool:
        """The clock follows a source or the daemon's own local reference."""
        return self.leap_status != "Not synchronised" and self.stratum > 0 and self.reference_id != "00000000"


@dataclass(frozen=True, slots=True)
class Source:
    mode: str
    """``^`` server, ``=`` peer, ``#`` reference clock."""
    state: str
    """``*`` selected, ``+`` combined, ``-`` not combined, ``?`` unusable, ``x`` falseticker, ``~`` too variable."""
    name: str
    stratum: int
    reach: int
    """Register of the last eight polls; 255 when all succeeded."""
    offset_s: float
    """Offset of the last sample, adjusted for slews since; positive: the local clock is ahead of the source."""


def parse_chrony_tracking(output: str | bytes) -> Tracking:
    """Read ``chronyc -c tracking``; if the daemon does not respond, the error quotes chronyc."""
    rows = _rows(output, 14, rf".*,(?:{'|'.join(_LEAP)})")
    if len(rows) != 1:
        raise ParseError(TOOL, f"expected one line of tracking, got {len(rows)}")
    row = rows[0]
    if not re.fullmatch(r"[0-9A-F]{8}", row[0]) or row[13] not in _LEAP:
        raise ParseError(TOOL, f"expected a line of tracking, got {excerpt(','.join(row))}")
    real(TOOL, "reference time", row[3])
    return Tracking(
        reference_id=row[0],
        reference=row[1],
        stratum=integer(TOOL, "stratum", row[2]),
        system_offset_s=real(TOOL, "system time", row[4], minimum=None),
        last_offset_s=real(TOOL, "last offset", row[5], minimum=None),
        rms_offset_s=real(TOOL, "RMS offset", row[6]),
        leap_status=row[13],
    )


def parse_chrony_sources(output: str | bytes) -> tuple[Source, ...]:
    """Read ``chronyc -c sources``; raises for a daemon without sources, which prints nothing."""
    sources = []
    for row in _rows(output, 10, r".*\.\d{9}"):
        if row[0] not in "^=#" or row[1] not in "*+-?x~" or not all(row[:3]):
            raise ParseError(TOOL, f"expected a line about a source, got {excerpt(','.join(row))}")
        if not re.fullmatch(r"[0-7]{1,3}", row[5]):
            raise ParseError(TOOL, f"reach is not octal: {excerpt(row[5])}")
        sources.append(
            Source(
                mode=row[0],
                state=row[1],
                name=row[2],
                stratum=integer(TOOL, "stratum", row[3]),
                reach=int(row[5], 8),
                offset_s=real(TOOL, "offset", row[7], minimum=None),
            )
        )
    return tuple(sources)


def _rows(output: str | bytes, columns: int, closing: str) -> list[list[str]]:
    rows = []
    for line in whole_lines(TOOL, output, closing=closing):
        row = line.split(",")
        if len(row) != columns:
            raise ParseError(TOOL, f"unexpected line {excerpt(line, 160)}")
        rows.append(row)
    return rows
