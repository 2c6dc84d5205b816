"""``dmidecode -t 17``: memory modules, as reported by the firmware."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, matched, whole_lines

_TOOL: Final = "dmidecode"
_MIB: Final = {"kB": 1 / 1024, "MB": 1, "GB": 1024, "TB": 1024 * 1024}
"""dmidecode's units are binary."""
_NOT_DRAM: Final = frozenset({"Flash", "ROM", "EPROM", "EEPROM", "FEPROM", "Logical non-volatile device"})


@dataclass(frozen=True, slots=True)
class MemoryModule:
    """One slot."""

    locator: str
    size_mib: int
    """0 where no module is installed."""
    speed_mts: int | None
    """Configured speed; None where the firmware does not report it."""
    part_number: str | None


def parse_memory_modules(body: str | bytes) -> tuple[MemoryModule, ...]:
    """Every slot for DRAM, in the firmware's order.

    The output has no end marker: the caller verifies that it is complete.
    """
    modules = []
    for record in _records(whole_lines(_TOOL, body)):
        if record.get("Type") in _NOT_DRAM:
            continue
        for key in ("Size", "Locator"):
            if key not in record:
                raise ParseError(_TOOL, f"a module has no {key}")
        size = _size(record["Size"])
        if size and "Type" not in record:
            raise ParseError(_TOOL, "a module has no Type")
        speed = record.get("Configured Memory Speed", record.get("Configured Clock Speed"))
        modules.append(
            MemoryModule(record["Locator"], size, _speed(speed) if size else None, record.get("Part Number"))
        )
    if not modules:
        raise ParseError(_TOOL, "no memory modules")
    return tuple(modules)


def _records(lines: list[str]) -> list[dict[str, str]]:
    records: list[dict[str, str]] = []
    inside = False
    for number, line in enumerate(lines):
        if re.match(r"Handle 0x[0-9A-Fa-f]+, DMI type \d+", line):
            inside = "DMI type 17," in line
            if inside:
                if lines[number + 1 : number + 2] != ["Memory Device"]:
                    raise ParseError(_TOOL, f"expected a memory device after {excerpt(line)}")
                records.append({})
        elif inside and (match := re.fullmatch(r"\t([^\t:][^:]*):(?: (.*))?", line)):
            records[-1].setdefault(match[1], (match[2] or "").strip())
    return records


def _size(text: str) -> int:
    if text == "No Module Installed":
        return 0
    match = matched(_TOOL, r"(\d{1,9}) (kB|MB|GB|TB)", text, "a size")
    return int(int(match[1]) * _MIB[match[2]])


def _speed(text: str | None) -> int | None:
    """Older versions call MT/s MHz."""
    if text is None or text == "Unknown":
        return None
    match = matched(_TOOL, r"(\d{1,6}) (?:MT/s|MHz)", text, "a speed")
    return int(match[1])
