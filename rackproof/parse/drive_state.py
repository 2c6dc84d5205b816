"""Identity and I/O counters of block devices, as ``state.sh`` of the drives' benchmark prints them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import ended_lines, excerpt

END: Final = "end of devices"
_TOOL: Final = "state.sh"
_SECTOR: Final = 512
"""Bytes; /sys always counts in 512 B sectors."""
_READ, _WRITTEN = 2, 6
"""Columns of sectors in ``/sys/block/*/stat`` (Documentation/block/stat.rst), from 0."""


@dataclass(frozen=True, slots=True)
class BlockDevice:
    identity: str
    """Serial number or WWID; empty where the kernel knows none."""
    read_bytes: int
    """Since boot."""
    written_bytes: int


@dataclass(frozen=True, slots=True)
class DriveState:
    host: str
    """``uname -n``."""
    devices: Mapping[str, BlockDevice]


def parse_drive_state(output: str | bytes) -> DriveState:
    """Raises ParseError."""
    first, *lines = ended_lines(_TOOL, output, END) or [""]
    host = re.fullmatch(r"host (\S+) \d+\.\d+", first)
    if host is None or len(lines) % 2:
        raise ParseError(_TOOL, f"unexpected output, it begins with {excerpt(first)}")
    devices: dict[str, BlockDevice] = {}
    for line, identity in zip(lines[::2], lines[1::2], strict=True):
        match = re.fullmatch(r"device (nvme\d+(?:c\d+)?n\d+|sd[a-z]+)((?: +\d{1,20}){11,})", line)
        if match is None or not identity.startswith(" identity") or match[1] in devices:
            raise ParseError(_TOOL, f"unexpected line {excerpt(line)}")
        columns = [int(column) * _SECTOR for column in match[2].split()]
        words = " ".join(identity.split()[1:])
        devices[match[1]] = BlockDevice(words, columns[_READ], columns[_WRITTEN])
    return DriveState(host[1], devices)
