"""``/proc/net/bonding/*``: bonds and their members."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, whole_lines

TOOL = "bonding"
HEAD = "bond "
"""Prefix of the line that names a bond, printed before the driver's report."""


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    up: bool
    speed_mbps: int | None
    """None where the driver prints Unknown."""


@dataclass(frozen=True, slots=True)
class Bond:
    name: str
    mode: str
    up: bool
    members: tuple[Member, ...]
    settings: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Fields of the bond itself, as printed: ``Transmit Hash Policy``: ``layer3+4 (1)``."""


def parse_bonds(output: str) -> tuple[Bond, ...]:
    """Every bond: a line ``bond NAME``, then the driver's report. Raises ParseError."""
    reports: dict[str, list[str]] = {}
    name = None
    for line in whole_lines(TOOL, output) if output else ():
        if re.fullmatch(rf"{HEAD}\S+", line):
            name = line.removeprefix(HEAD)
            if name in reports:
                raise ParseError(TOOL, f"{name} is reported twice")
            reports[name] = []
        elif name is None:
            raise ParseError(TOOL, f"expected a bond, got {excerpt(line)}")
        else:
            reports[name].append(line)
    return tuple(_bond(name, lines) for name, lines in reports.items())


def _bond(name: str, lines: list[str]) -> Bond:
    starts = [index for index, line in enumerate(lines) if line.startswith("Slave Interface:")]
    head = _fields(lines[: starts[0] if starts else len(lines)])
    if not lines or not lines[0].startswith("Ethernet Channel Bonding Driver"):
        raise ParseError(TOOL, f"{name}: expected a report of the bonding driver")
    members = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        fields = _fields(lines[start:end])
        speed = re.fullmatch(r"(\d+) Mbps", fields.get("Speed", ""))
        members.append(
            Member(fields["Slave Interface"], _up(name, fields), int(speed[1]) if speed else None),
        )
    if "Bonding Mode" not in head:
        raise ParseError(TOOL, f"{name}: has no Bonding Mode")
    return Bond(name, head["Bonding Mode"], _up(name, head), tuple(members), head)


def _up(name: str, fields: dict[str, str]) -> bool:
    status = fields.get("MII Status")
    if status not in ("up", "down", "going down", "going back"):
        raise ParseError(TOOL, f"{name}: unknown MII Status {status!r}")
    return status == "up"


def _fields(lines: list[str]) -> dict[str, str]:
    """First value of each key: the LACP details of a member repeat some keys."""
    fields: dict[str, str] = {}
    for line in lines:
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    return fields
