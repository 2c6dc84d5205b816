"""``dcb`` of iproute2: traffic classes of a port with the in-tree driver, in the record of ``mlnx_qos``.

``rackproof-port`` reads these two lines the same way: the driver trusts DSCP as soon as one entry exists.
"""

from __future__ import annotations

import re
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.mlnx_qos import PRIORITIES, Qos
from rackproof.parse.text import excerpt, whole_lines

TOOL: Final = "dcb"
BEGINNING: Final = "dcb"
"""First line of the output of ``command``."""


def command(port: str) -> str:
    """Command for a port whose name is already quoted. Exit status 0: both queries succeeded."""
    show = "timeout 30 dcb"
    return f"echo {BEGINNING}; {show} pfc show dev {port} prio-pfc && {show} -N app show dev {port} dscp-prio"


def parse_dcb(output: str | bytes) -> Qos:
    """``dcb pfc show dev PORT prio-pfc`` and ``dcb -N app show dev PORT dscp-prio``, one after the other.

    A port without DSCP entries prints no second line. The caller verifies that the output is complete.
    """
    first, *lines = whole_lines(TOOL, output)
    if first != BEGINNING or not lines:
        raise ParseError(TOOL, f"expected the output of dcb, got {excerpt(first)}")
    pfc = _pairs(lines[0], "prio-pfc", r"([0-7]):(on|off)")
    if [priority for priority, _ in pfc] != [str(n) for n in range(PRIORITIES)]:
        raise ParseError(TOOL, f"expected pauses of {PRIORITIES} priorities, got {excerpt(lines[0])}")
    mapped: dict[int, int] = {}
    if len(lines) > 2:
        raise ParseError(TOOL, f"unexpected line {excerpt(lines[2])}")
    for dscp, priority in _pairs(lines[1], "dscp-prio", r"(\d{1,2}):([0-7])") if lines[1:] else ():
        if mapped.setdefault(int(dscp), int(priority)) != int(priority):
            raise ParseError(TOOL, f"dscp {dscp} belongs to two priorities")
    paused = frozenset(int(priority) for priority, on in pfc if on == "on")
    return Qos("dscp" if mapped else "pcp", paused, mapped)


def _pairs(line: str, name: str, pattern: str) -> list[tuple[str, str]]:
    words = line.split()
    matches = [re.fullmatch(pattern, word) for word in words[1:]]
    if words[:1] != [name] or not all(matches):
        raise ParseError(TOOL, f"expected {name}, got {excerpt(line)}")
    return [(match[1], match[2]) for match in matches if match]
