"""``mlnx_qos -i PORT``: traffic classes of a Mellanox port."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, whole_lines

TOOL: Final = "mlnx_qos"
PRIORITIES: Final = 8


@dataclass(frozen=True, slots=True)
class Qos:
    trust: str | None
    """dscp or pcp; None where the tool does not print it."""
    pfc: frozenset[int]
    """Priorities with PFC enabled."""
    dscp_priority: dict[int, int] = field(hash=False)
    """Priority by DSCP; empty unless trust is dscp."""


def parse_mlnx_qos(output: str | bytes) -> Qos:
    """``mlnx_qos -i PORT``, whole or a part with the PFC configuration."""
    lines = whole_lines(TOOL, output)
    trust: str | None = None
    rows: dict[str, tuple[int, ...]] = {}
    mapped: dict[int, int] = {}
    within = False
    for line in lines:
        text = line.strip()
        if match := re.fullmatch(r"Priority trust state: (\S+)", text):
            if trust is not None:
                raise ParseError(TOOL, "describes more than one port")
            trust = match[1]
        elif match := re.fullmatch(r"prio:(\d) dscp:\s*((?:\d{1,2},)+)", text):
            for dscp in match[2].rstrip(",").split(","):
                if mapped.setdefault(int(dscp), int(match[1])) != int(match[1]):
                    raise ParseError(TOOL, f"dscp {dscp} belongs to two priorities")
        elif text == "PFC configuration:":
            within = True
        elif within and (match := re.fullmatch(r"(priority|enabled|buffer)((?:\s+\d+)+)", text)):
            if match[1] in rows:
                raise ParseError(TOOL, "describes more than one port")
            rows[match[1]] = tuple(map(int, match[2].split()))
    if rows.get("priority") != tuple(range(PRIORITIES)):
        raise ParseError(TOOL, f"no PFC configuration; the output ends with {excerpt(lines[-1])}")
    enabled, buffers = rows.get("enabled", ()), rows.get("buffer")
    if len(enabled) != PRIORITIES or not set(enabled) <= {0, 1} or (buffers and len(buffers) != PRIORITIES):
        raise ParseError(TOOL, f"the PFC configuration does not have one column for each of {PRIORITIES} priorities")
    if trust not in (None, "dscp", "pcp"):
        raise ParseError(TOOL, f"trust is neither dscp nor pcp: {excerpt(str(trust))}")
    return Qos(trust, frozenset(p for p, on in enumerate(enabled) if on), mapped)
