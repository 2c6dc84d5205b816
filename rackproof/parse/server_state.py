"""Bytes that a storage server's drives have read and its ports have sent since it was booted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rackproof.parse.answer import parse_answer
from rackproof.parse.block import moved_bytes
from rackproof.parse.client_transfer import PortBytes, port_bytes_in
from rackproof.parse.errors import ParseError
from rackproof.parse.sections import named_sections
from rackproof.parse.text import excerpt

_TOOL: Final = "server state"
_PATH: Final = re.compile(r"(nvme\d+)c\d+(n\d+)")
"""One of several ways to an NVMe drive. Older kernels count the ways, newer ones the drive as well."""


@dataclass(frozen=True, slots=True)
class ServerState:
    drives: Mapping[str, int]
    """Bytes read, by name of the whole drive."""
    ports: PortBytes


def parse_server_state(output: str | bytes) -> ServerState:
    """Raises ParseError for a state that is cut off or unreadable, or without a drive or port."""
    sections = named_sections(_TOOL, output)
    drives: dict[str, int] = {}
    ways: dict[str, int] = {}
    for line in sections.get("drives", ()):
        name, *stat = line.split()
        if len(stat) < 11:
            raise ParseError(_TOOL, f"expected a drive and its counters, got {excerpt(line)}")
        read, _ = moved_bytes(_TOOL, stat)
        if way := _PATH.fullmatch(name):
            ways["".join(way.groups())] = ways.get("".join(way.groups()), 0) + read
        else:
            drives[name] = read
    drives |= {name: max(read, drives.get(name, 0)) for name, read in ways.items()}
    if not drives:
        raise ParseError(_TOOL, "the server shows no drive")
    ports = "".join(f"{line}\n" for line in sections.get("ports", ()))
    return ServerState(drives, port_bytes_in(parse_answer(_TOOL, ports)))
