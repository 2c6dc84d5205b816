"""Identity and I/O counters of block devices, as ``state.sh`` of the drives' benchmark prints them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rackproof.parse.block import moved_bytes
from rackproof.parse.errors import ParseError
from rackproof.parse.text import ended_lines, excerpt

END: Final = "end of devices"
_TOOL: Final = "state.sh"
_FIO: Final = re.compile(r"^-- fio (\d{1,3})$", re.MULTILINE)


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
        words = " ".join(identity.split()[1:])
        devices[match[1]] = BlockDevice(words, *moved_bytes(_TOOL, match[2].split()))
    return DriveState(host[1], devices)


def split_state(output: str) -> tuple[str, str]:
    """The state with which an output begins, for ``parse_drive_state``, and what follows it."""
    state, end, rest = output.partition(f"{END}\n")
    return state + end, rest


def split_fio(output: str) -> tuple[str, int, str] | None:
    """fio's output before the line ``-- fio STATUS``, its exit status, and the text after; None without the line."""
    match = _FIO.search(output)
    return match and (output[: match.start()], int(match[1]), output[match.end() + 1 :])
