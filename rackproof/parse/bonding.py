"""``/proc/net/bonding/*``: bonds and their members."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, integer, whole_lines

TOOL = "bonding"
HEAD = "bond "
"""Prefix of the line that names a bond, printed before the driver's report."""


@dataclass(frozen=True, slots=True)
class Lacp:
    """LACP state of one member, from its driver; None for a missing line, as without CAP_NET_ADMIN."""

    aggregator: str | None = None
    actor_state: int | None = None
    """Bits of the port's own state, see ``PORT_STATE``."""
    partner_state: int | None = None
    actor_churn: str | None = None
    partner_churn: str | None = None


PORT_STATE: Final = {
    "aggregation": 0x04,
    "synchronisation": 0x08,
    "collecting": 0x10,
    "distributing": 0x20,
    "defaulted": 0x40,
    "expired": 0x80,
}
"""Bits of a port's state (IEEE 802.1AX, Actor_State). The last two mean that no partner answers."""


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    up: bool
    speed_mbps: int | None
    """None where the driver prints Unknown."""
    duplex: str | None = None
    """As printed: full, half, Unknown."""
    lacp: Lacp = Lacp()


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
        lacp = _lacp(name, fields, lines[start:end])
        speed = re.fullmatch(r"(\d+) Mbps", fields.get("Speed", ""))
        members.append(
            Member(
                fields["Slave Interface"],
                _up(name, fields),
                int(speed[1]) if speed else None,
                fields.get("Duplex"),
                lacp,
            ),
        )
    if "Bonding Mode" not in head:
        raise ParseError(TOOL, f"{name}: has no Bonding Mode")
    return Bond(name, head["Bonding Mode"], _up(name, head), tuple(members), head)


def _up(name: str, fields: dict[str, str]) -> bool:
    status = fields.get("MII Status")
    if status not in ("up", "down", "going down", "going back"):
        raise ParseError(TOOL, f"{name}: unknown MII Status {status!r}")
    return status == "up"


def _lacp(name: str, fields: dict[str, str], lines: list[str]) -> Lacp:
    """The details of the port itself and of its partner have the same keys."""
    own = next((k for k, line in enumerate(lines) if line.startswith("details actor lacp pdu")), len(lines))
    theirs = next((k for k, line in enumerate(lines) if line.startswith("details partner lacp pdu")), len(lines))
    actor, partner = _fields(lines[own:theirs]), _fields(lines[theirs:])
    states = [details.get("port state") for details in (actor, partner)]
    actor_state, partner_state = (None if s is None else integer(TOOL, f"{name}: port state", s) for s in states)
    return Lacp(
        fields.get("Aggregator ID"),
        actor_state,
        partner_state,
        fields.get("Actor Churn State"),
        fields.get("Partner Churn State"),
    )


def _fields(lines: list[str]) -> dict[str, str]:
    """First value of each key: the LACP details of a member repeat some keys."""
    fields: dict[str, str] = {}
    for line in lines:
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    return fields
