"""Problems of bonds: members, speeds, and what LACP negotiated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from rackproof.parse.bonding import PORT_STATE, Bond, Member

LACP: Final = "802.3ad"
NO_PARTNER: Final = "00:00:00:00:00:00"
_CARRYING: Final = ("aggregation", "synchronisation", "collecting", "distributing")
_ALONE: Final = ("defaulted", "expired")
_SETTLED: Final = ("none", "monitoring")
"""Churn states without a problem: no churn, or the port has just begun to negotiate."""


_MODES: Final = {"802.3ad": LACP, "active-backup": "active-backup", "balance-xor": "(xor)"}
"""Part of the driver's name of a mode (``bond_mode_name`` in drivers/net/bonding/bond_main.c), by the inventory's."""


class Declared(NamedTuple):
    """A bond as the inventory declares it."""

    members: int
    mode: str
    hash_policy: str
    lacp_rate: str


def _unlike_declared(bond: Bond, declared: Declared) -> Iterator[str]:
    """Settings in the driver's report that differ from the inventory."""
    if _MODES[declared.mode] not in bond.mode:
        yield f"{bond.name}: expected mode {declared.mode}, actual {bond.mode}"
    for key, expected in _settings(declared).items():
        if (actual := bond.settings.get(key)) is not None and actual.partition(" ")[0] != expected:
            yield f"{bond.name}: expected {key} {expected}, actual {actual}"


def _settings(declared: Declared) -> dict[str, str]:
    """Declared settings by the driver's names."""
    settings = {} if declared.mode == "active-backup" else {"Transmit Hash Policy": declared.hash_policy}
    return settings | ({"LACP rate": declared.lacp_rate} if declared.mode == LACP else {})


def bond_problems(bond: Bond, declared: Declared | None = None) -> Iterator[str]:
    """Problems of a bond. ``declared``: the bond in the inventory, if it is there."""
    if declared is not None:
        yield from _unlike_declared(bond, declared)
    members = declared.members if declared is not None else 0
    names = ", ".join(member.name for member in bond.members) or "none"
    if len(bond.members) < 2:
        yield f"{bond.name}: expected at least two members, actual {names}"
    elif members and len(bond.members) != members:
        yield f"{bond.name}: expected {members} members, actual {names}"
    down = [member.name for member in bond.members if not member.up]
    if down or not bond.up:
        yield f"{bond.name}: expected every member up, actual {', '.join(down) or bond.name} down"
    up = [member for member in bond.members if member.up]
    if len({member.speed_mbps for member in up if member.speed_mbps is not None}) > 1:
        listed = ", ".join(f"{member.name} {member.speed_mbps} Mb/s" for member in bond.members)
        yield f"{bond.name}: expected one speed, actual {listed}"
    for member in up:
        if member.duplex == "half":
            yield f"{bond.name}: expected full duplex, actual half on {member.name}"
    if "active-backup" in bond.mode and bond.settings.get("Currently Active Slave") not in {m.name for m in up}:
        active = bond.settings.get("Currently Active Slave", "not reported")
        yield f"{bond.name}: expected an active member that is up, actual {active}"
    if LACP in bond.mode:
        yield from _lacp_problems(bond, up)


def bond_gaps(bond: Bond, declared: Declared | None = None) -> Iterator[str]:
    """Missing values in the driver's report, without which a bond is not proven healthy."""
    if declared is not None and (missing := [key for key in _settings(declared) if key not in bond.settings]):
        yield f"{bond.name}: the driver does not report {', '.join(missing)}"
    up = [member for member in bond.members if member.up]
    for member in up:
        if member.speed_mbps is None or member.duplex not in ("full", "half"):
            yield f"{bond.name}: the driver does not know speed and duplex of {member.name}"
    if LACP in bond.mode:
        states = [(m.lacp.aggregator, m.lacp.actor_state, m.lacp.partner_state) for m in up]
        if "Partner Mac Address" not in bond.settings or any(None in state for state in states):
            yield f"{bond.name}: the driver does not report LACP's partner and port states, which needs root"


def _lacp_problems(bond: Bond, up: list[Member]) -> Iterator[str]:
    partner, ports = bond.settings.get("Partner Mac Address"), bond.settings.get("Number of ports")
    if partner == NO_PARTNER:
        yield f"{bond.name}: expected an LACP partner, actual none (partner's MAC address is {NO_PARTNER})"
    aggregators = {member.name: member.lacp.aggregator for member in up if member.lacp.aggregator}
    if len(set(aggregators.values())) > 1:
        listed = ", ".join(f"{name} in {aggregator}" for name, aggregator in aggregators.items())
        yield f"{bond.name}: expected every member in one aggregator, actual {listed}"
    if ports is not None and ports != str(len(bond.members)):
        yield f"{bond.name}: expected {len(bond.members)} ports in the active aggregator, actual {ports}"
    for member in up:
        lacp = member.lacp
        sides = (("", lacp.actor_state, lacp.actor_churn), ("'s partner", lacp.partner_state, lacp.partner_churn))
        for owner, state, churn in sides:
            if state is not None and (wrong := _not_carrying(state)):
                yield f"{bond.name}: expected {member.name}{owner} to carry traffic, actual {', '.join(wrong)}"
            if churn is not None and churn not in _SETTLED:
                yield f"{bond.name}: expected no churn, actual {churn} on {member.name}{owner}"


def _not_carrying(state: int) -> list[str]:
    """Missing flags in a port's state, and the flag of a missing partner."""
    lacks = [f"no {name}" for name in _CARRYING if not state & PORT_STATE[name]]
    return [*lacks, *(name for name in _ALONE if state & PORT_STATE[name])]
