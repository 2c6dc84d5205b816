"""ethtool: settings of a port (``ethtool DEV``) and its driver (``ethtool -i DEV``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, integer, last_words, whole_lines

TOOL: Final = "ethtool"


@dataclass(frozen=True, slots=True)
class PortSettings:
    """None: not reported, or ``Unknown!`` as virtual devices and dead links say."""

    device: str
    link_detected: bool
    speed_mbps: int | None
    """Mb/s."""
    duplex: str | None
    """Full or Half."""
    autonegotiation: bool | None
    port: str | None
    """FIBRE, Twisted Pair, Direct Attach Copper …"""
    lanes: int | None
    supported_modes: tuple[str, ...]
    """``100000baseCR4/Full`` …; empty where none are reported."""
    advertised_modes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DriverInfo:
    driver: str
    version: str | None
    firmware: str | None
    """As printed, with the PSID where the driver adds it: ``28.44.1036 (MT_0000000834)``."""
    bus: str | None
    """PCI address; None for devices without one."""


_SETTINGS: Final = re.compile(r"Settings for (\S+):\s*")
_KEY: Final = re.compile(r"\s+([A-Z][\w -]*?):(?:\s+(.*?))?\s*")


def parse_ethtool(output: str | bytes) -> PortSettings:
    """Read the settings of one port; ``Link detected`` closes them and must be there."""
    device: str | None = None
    values: dict[str, list[str]] = {}
    key: str | None = None
    lines = whole_lines(TOOL, output, closing=r"\s+Link detected: (?:yes|no)(?: \(.*\))?")
    for line in lines:
        if header := _SETTINGS.fullmatch(line):
            if device is not None:
                raise ParseError(TOOL, "settings of more than one port")
            device = header[1]
        elif device is None:
            continue
        elif match := _KEY.fullmatch(line):
            key = match[1]
            if key in values:
                raise ParseError(TOOL, f"{key} is reported twice")
            values[key] = [match[2] or ""]
        elif key and line.startswith((" ", "\t")):
            values[key].append(line.strip())
    if device is None or "Link detected" not in values:
        raise ParseError(TOOL, f"no settings of a port; the output ends with {last_words(chr(10).join(lines))}")
    speed, lanes, auto = (_single(values, name) for name in ("Speed", "Lanes", "Auto-negotiation"))
    detected = _single(values, "Link detected") or ""
    return PortSettings(
        device=device,
        link_detected=_yes_or_no("Link detected", detected.split(" (")[0], "yes", "no"),  # "no (No cable)"
        speed_mbps=_speed(speed) if speed else None,
        duplex=_single(values, "Duplex"),
        autonegotiation=_yes_or_no("Auto-negotiation", auto, "on", "off") if auto else None,
        port=_single(values, "Port"),
        lanes=integer(TOOL, "lanes", lanes) if lanes else None,
        supported_modes=_modes(values.get("Supported link modes", [])),
        advertised_modes=_modes(values.get("Advertised link modes", [])),
    )


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
    """Pauses of the whole link, as set."""

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
        raise ParseError(TOOL, f"no statistics: {excerpt(header)}")
    for line in lines:
        match = re.fullmatch(r"\s+(\S.*?): (\d{1,20})", line)
        if match is None or match[1] in values:
            raise ParseError(TOOL, f"unexpected line {excerpt(line)}")
        values[match[1]] = int(match[2])
    if not values:
        raise ParseError(TOOL, "no counter listed")
    return values


def _single(values: dict[str, list[str]], key: str) -> str | None:
    text = (values.get(key) or [""])[0]
    return None if not text or text.startswith(("Unknown", "Not reported")) else text


def _speed(text: str) -> int:
    match = re.fullmatch(r"(\d{1,9})Mb/s", text)
    if match is None:
        raise ParseError(TOOL, f"speed is not in Mb/s: {excerpt(text)}")
    return int(match[1])


def _yes_or_no(what: str, text: str, yes: str, no: str) -> bool:
    if text not in (yes, no):
        raise ParseError(TOOL, f"{what} is neither {yes} nor {no}: {excerpt(text)}")
    return text == yes


def _modes(lines: list[str]) -> tuple[str, ...]:
    words = [word for line in lines for word in line.split()]
    return tuple(words) if all("/" in word or "base" in word for word in words) else ()
