"""``mlxconfig query``: settings of an adapter's firmware, in force and at the next boot."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, whole_lines

TOOL: Final = "mlxconfig"
_COLUMNS: Final = {"Default": "default", "Current": "current", "Next Boot": "next_boot"}


@dataclass(frozen=True, slots=True)
class Setting:
    """Values as printed, ``ETH(2)``; None for a column that was not queried."""

    default: str | None
    current: str | None
    next_boot: str


@dataclass(frozen=True, slots=True)
class Firmware:
    device: str
    """PCI address, or a name below /dev/mst."""
    type: str
    """``ConnectX7``."""
    part: str
    settings: dict[str, Setting] = field(hash=False)
    unreadable: dict[str, str] = field(default_factory=dict, hash=False)
    """Settings whose columns cannot be told apart, with the rest of their line."""


def parse_mlxconfig(output: str | bytes) -> Firmware:
    """Read the settings of one device. With ``-e`` there are three columns, without it only the next boot's."""
    about: dict[str, str] = {}
    columns: list[str] | None = None
    settings: dict[str, Setting] = {}
    unreadable: dict[str, str] = {}
    lines = whole_lines(TOOL, output)
    for line in lines:
        if match := re.fullmatch(r"(Device type|Name|Description|Device):\s+(.*?)\s*", line):
            if match[1] in about:
                raise ParseError(TOOL, "describes more than one device")
            about[match[1]] = match[2]
        elif match := re.fullmatch(r"Configurations:\s+(.*?)\s*", line):
            columns = [_COLUMNS.get(name, "") for name in re.split(r"\s{2,}", match[1])]
            if columns[-1] != "next_boot" or "" in columns:
                raise ParseError(TOOL, f"unknown columns {excerpt(match[1])}")
        elif columns and (
            match := re.fullmatch(r"\*?\s+(?:RO\s+)?([A-Z][A-Z0-9_]+(?:\[[\d.]+\])?)\s+(\S.*?)\s*", line)
        ):
            values = re.split(r"\s{2,}", match[2])
            if len(values) != len(columns):  # a value that fills its column leaves one blank, or none
                values = match[2].split()
            if match[1] in settings or match[1] in unreadable:
                raise ParseError(TOOL, f"unexpected line {excerpt(line)}")
            if len(values) != len(columns):
                unreadable[match[1]] = match[2]
                continue
            row = dict(zip(columns, values, strict=True))
            settings[match[1]] = Setting(row.get("default"), row.get("current"), row["next_boot"])
    if columns is None or not (settings or unreadable) or "Device" not in about:
        raise ParseError(TOOL, f"no settings; the output ends with {excerpt(lines[-1])}")
    return Firmware(about["Device"], about.get("Device type", ""), about.get("Name", ""), settings, unreadable)


def same_value(printed: str, wanted: str) -> bool:
    """Whether ``wanted`` names the printed value: ``ETH(2)`` equals ``ETH``, ``2`` and ``ETH(2)``."""
    name, _, number = printed.rstrip(")").partition("(")
    return wanted.lower() in {word.lower() for word in (printed, name, number) if word}
