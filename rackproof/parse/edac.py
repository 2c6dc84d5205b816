"""Error counters of memory controllers, from the kernel's EDAC drivers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import ended_lines, matched

EDAC: Final = (
    'set -- /sys/devices/system/edac/mc/mc[0-9]*; [ -e "$1" ] || shift; echo "controllers $#"; for c in "$@"; do'
    ' echo "${c##*/} corrected $(cat "$c/ce_count") uncorrected $(cat "$c/ue_count")'
    ' since $(cat "$c/seconds_since_reset")"; done; echo end of edac'
)


@dataclass(frozen=True, slots=True)
class Controller:
    """Counters of one memory controller since they were reset, at the latest when its driver was loaded."""

    name: str
    corrected: int
    uncorrected: int
    seconds: int


def parse_edac(output: str | bytes) -> tuple[Controller, ...]:
    """Output of ``EDAC``; empty without an EDAC driver. Raises ParseError unless every controller is listed."""
    lines = ended_lines("edac", output, "end of edac")
    head = re.fullmatch(r"controllers (\d{1,4})", lines.pop(0) if lines else "")
    if head is None:
        raise ParseError("edac", "expected the number of controllers")
    controllers = []
    for line in lines:
        match = matched(
            "edac",
            r"(mc\d+) corrected (\d{1,18}) uncorrected (\d{1,18}) since (\d{1,18})",
            line,
            "counters of a controller",
        )
        controllers.append(Controller(match[1], int(match[2]), int(match[3]), int(match[4])))
    if len({controller.name for controller in controllers}) != len(controllers):
        raise ParseError("edac", "a controller is listed twice")
    if len(controllers) != int(head[1]):
        raise ParseError("edac", f"lists {len(controllers)} of {head[1]} controllers")
    return tuple(controllers)
