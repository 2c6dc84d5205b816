"""ethtool: a port's driver (``-i``), pauses (``-a``) and counters (``-S``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, last_words, whole_lines

TOOL: Final = "ethtool"


@dataclass(frozen=True, slots=True)
class DriverInfo:
    driver: str
    version: str | None
    firmware: str | None
    """As printed, with the PSID where the driver adds it: ``28.44.1036 (MT_0000000834)``."""
    bus: str | None
    """PCI address; None for devices without one."""


def parse_ethtool_driver(output: str | bytes) -> DriverInfo:
    """Read ``ethtool -i``."""
    values: dict[str, str] = {}
    lines = whole_lines(TOOL, output, closing=r"supports-[a-z-]+: (?:yes|no)")
    for line in lines:
        match = re.fullmatch(r"([a-z][a-z-]*):\s*(.*?)\s*", line)
        if match is None or match[1] in values:
            raise ParseError(TOOL, f"unexpected line {excerpt(line)}")
        values[match[1]] = match[2]
    if not values.get("driver") or not {"version", "firmware-version", "bus-info"} <= values.keys():
        raise ParseError(TOOL, f"no driver information; the output ends with {last_words(chr(10).join(lines))}")
    version, firmware, bus = (
        None if values[key] in ("", "N/A") else values[key] for key in ("version", "firmware-version", "bus-info")
    )
    return DriverInfo(driver=values["driver"], version=version, firmware=firmware, bus=bus)


@dataclass(frozen=True, slots=True)
class Pause:
    """Configured pause frames of the whole link (IEEE 802.3x)."""

    device: str
    receive: bool
    transmit: bool


def parse_ethtool_pause(output: str | bytes) -> Pause:
    """Read ``ethtool -a``."""
    header, *lines = whole_lines(TOOL, output)
    device = re.fullmatch(r"Pause parameters for (\S+):\s*", header)
    matches = (re.fullmatch(r"([A-Z][\w ]*):\s*(on|off)", line) for line in lines)
    values = {match[1]: match[2] for match in matches if match}
    if device is None or not {"RX", "TX"} <= values.keys():
        raise ParseError(
            TOOL, f"no pause parameters; the output ends with {last_words(chr(10).join([header, *lines]))}"
        )
    return Pause(device[1], values["RX"] == "on", values["TX"] == "on")


def parse_ethtool_statistics(output: str | bytes) -> dict[str, int]:
    """Read ``ethtool -S``: counters of one port by name."""
    values: dict[str, int] = {}
    header, *lines = whole_lines(TOOL, output)
    if header.strip() != "NIC statistics:":
        raise ParseError(TOOL, f"expected statistics, got {excerpt(header)}")
    for line in lines:
        match = re.fullmatch(r"\s+(\S.*?): (\d{1,20})", line)
        if match is None or match[1] in values:
            raise ParseError(TOOL, f"unexpected line {excerpt(line)}")
        values[match[1]] = int(match[2])
    if not values:
        raise ParseError(TOOL, "no counter listed")
    return values
