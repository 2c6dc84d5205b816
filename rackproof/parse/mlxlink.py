"""``mlxlink -d DEVICE -c``: state, signal quality and counters of a link."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, integer, last_words, real, whole_lines

TOOL: Final = "mlxlink"
_NOTHING: Final = ("N/A", "", "_")


@dataclass(frozen=True, slots=True)
class LinkReport:
    state: str
    """Active, Disable, Polling …"""
    physical_state: str | None
    """LinkUp, ETH_AN_FSM_ENABLE …; None where the tool prints N/A."""
    speed: str | None
    """``400GbE``, ``IB-NDR`` …"""
    width: str | None
    """``4x``."""
    status: int | None
    """Troubleshooting opcode; 0: no issue."""
    firmware: str | None
    effective_ber: float | None
    """After error correction."""


def parse_mlxlink(output: str | bytes) -> LinkReport:
    """Read the report of one port; terminal colours are stripped."""
    values: dict[str, str] = {}
    lines = whole_lines(TOOL, output)
    for line in lines:
        match = re.fullmatch(r"([A-Za-z][^:]*?)\s*:\s*(.*?)\s*", re.sub(r"\x1b\[[\d;]*m", "", line))
        if match is None:
            continue
        if match[1] in values and match[1] == "State":
            raise ParseError(TOOL, "describes more than one port")
        values.setdefault(match[1], match[2])
    state = values.get("State")
    if not state or not any("Operational Info" in line for line in lines):
        raise ParseError(TOOL, f"no state of a link; the output ends with {last_words(chr(10).join(lines))}")

    def reported(key: str) -> str | None:
        value = values.get(key, "")
        return None if value in _NOTHING else value

    status = reported("Status Opcode")
    return LinkReport(
        state=state,
        physical_state=reported("Physical state"),
        speed=reported("Speed"),
        width=reported("Width"),
        status=integer(TOOL, "Status Opcode", status) if status else None,
        firmware=reported("Firmware Version"),
        effective_ber=_rate("Effective Physical BER", reported("Effective Physical BER")),
    )


def _rate(key: str, text: str | None) -> float | None:
    if text is None:
        return None
    value = real(TOOL, key, text)
    if value > 1:
        raise ParseError(TOOL, f"{key} is not a rate: {excerpt(text)}")
    return value
