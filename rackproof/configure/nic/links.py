"""Rails with routing tables of their own, bonds and VLANs, for a node's network service.

Debian and Ubuntu have systemd-networkd (netplan writes files for it, too), RHEL has NetworkManager and no networkd. One
of them configures the port; a node on which another tool configures it as well is refused.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from ipaddress import IPv4Interface
from operator import or_
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from rackproof.configure.carriers import Touched
from rackproof.configure.network import RELOAD, Link, Manager, Port, PortProblem, bring_up, connection_id, find_link
from rackproof.configure.nic.inputs import NO_INFINIBAND_BONDS, Bond, NicInputs
from rackproof.errors import DeclarationError
from rackproof.parse.bonding import Bond as BondState
from rackproof.parse.routes import Route, Rule
from rackproof.shell import wait_until

FOREIGN: Final = (
    "/etc/netplan/*", "/run/netplan/*", "/etc/NetworkManager/system-connections/*",
    "/run/NetworkManager/system-connections/*", "/etc/network/interfaces", "/etc/network/interfaces.d/*",
    "/etc/sysconfig/network-scripts/ifcfg-*", "/etc/systemd/network/*",
)  # fmt: skip
"""Folders where other tools configure ports; the kit's files name the kit in their first lines."""
WAIT_S: Final = 30
RULE_PRIORITY: Final = 1000


@dataclass(frozen=True, slots=True)
class RailRoute:
    """Routing table of a rail, with the rule that sends packets with its address there."""

    table: int
    source: str
    subnet: str
    gateway: str | None = None
    destinations: tuple[str, ...] = ()

    @property
    def priority(self) -> int:
        return RULE_PRIORITY + self.table


def shared_subnets(ports: Sequence[Port]) -> dict[str, tuple[str, ...]]:
    """Names of the ports by subnet, for subnets with more than one port."""
    by_subnet: dict[str, list[str]] = {}
    for port in ports:
        by_subnet.setdefault(str(IPv4Interface(port.address).network), []).append(port.name)
    return {subnet: tuple(names) for subnet, names in by_subnet.items() if len(names) > 1}


def rail_routes(
    ports: Sequence[Port], stack: NicInputs, always: bool = False, others: Sequence[Port] = ()
) -> dict[str, RailRoute]:
    """Tables of the rails that need one, by port: those that share a subnet, and those that are routed.

    ``always``: every rail has one. ``others``: ports that are no rails, whose numbers follow the rails'.

    Raises DeclarationError, one line, when the gateways are not one a rail; a node without rails may have those of
    its group.
    """
    if ports and stack.rail_gateways and len(stack.rail_gateways) != len(ports):
        raise DeclarationError(
            f"nic.rail_gateways: expected {len(ports)} entries, one a rail, actual {len(stack.rail_gateways)}"
        )
    shared = {name for names in shared_subnets((*ports, *others)).values() for name in names}
    routes = {}
    for number, port in enumerate((*ports, *others)):
        interface, rail = IPv4Interface(port.address), number < len(ports)
        gateway = stack.rail_gateways[number] if rail and stack.rail_gateways else None
        if gateway is not None and gateway not in interface.network:
            raise DeclarationError(f"nic.rail_gateways: {gateway} is not in {interface.network} of {port.name}")
        if gateway is None and port.name not in shared and not (rail and always):
            continue
        routes[port.name] = RailRoute(
            table=stack.rail_table + number,
            source=str(interface.ip),
            subnet=str(interface.network),
            gateway=str(gateway) if gateway else None,
            destinations=tuple(map(str, stack.rail_routes)) if gateway else (),
        )
    return routes


def missing_routes(wanted: Mapping[str, RailRoute], rules: Sequence[Rule], routes: Sequence[Route]) -> dict[str, str]:
    """Port: routes and rules of its table that the kernel lacks."""
    missing = {}
    for port, route in wanted.items():
        rule = next((rule for rule in rules if rule.source == route.source), None)
        if rule is None or rule.table != str(route.table):
            missing[port] = f"no rule from {route.source} to table {route.table}"
            continue
        destinations = {line.destination for line in routes if line.table == str(route.table) and line.device == port}
        needed = [
            route.subnet,
            *("default" if destination == "0.0.0.0/0" else destination for destination in route.destinations),
        ]
        if lost := [destination for destination in needed if destination not in destinations]:
            missing[port] = f"no route to {', '.join(lost)} in table {route.table}"
    return missing


def apply_routes(missing: Mapping[str, str], wanted: Mapping[str, RailRoute], manager: Manager) -> str:
    """Reconfigure ports from their files, and wait for their rules."""
    lines = ["set -eu", RELOAD[manager], *(bring_up(port, manager) for port in missing)]
    for port in missing:
        route = wanted[port]
        rule = f"ip -4 rule show from {route.source} table {route.table} | grep -q ."
        lines.append(_wait(rule, port, f"has no rule to table {route.table}"))
        table = f"ip -4 route show table {route.table} | grep -qF {shlex.quote(f'{route.subnet} dev {port}')}"
        lines.append(_wait(table, port, f"has no route to {route.subnet} in table {route.table}"))
    return "\n".join(lines)


def connection_uuid(name: str) -> str:
    """Connection UUID for NetworkManager: the same for a name on every run."""
    return str(uuid5(NAMESPACE_URL, f"rackproof:{name}"))


def keyfile(name: str) -> str:
    return f"/etc/NetworkManager/system-connections/{connection_id(name)}.nmconnection"


def vlans_of(stack: NicInputs, parent: str) -> tuple[str, ...]:
    return tuple(name for name, vlan in stack.vlans.items() if vlan.parent == parent)


def check_parents(stack: NicInputs, ports: Sequence[Port]) -> None:
    """Raises DeclarationError, one line: a VLAN without a parent, or a bond with a rail's name."""
    rails = {port.name for port in ports}
    known = {*rails, *stack.bonds, *stack.ports}
    for name in (*stack.bonds, *stack.vlans):
        if name in rails:
            raise DeclarationError(f"nic: {name} is the name of a rail")
    for name, vlan in stack.vlans.items():
        if vlan.parent not in known:
            raise DeclarationError(f"nic.vlans.{name}: {vlan.parent} is neither a rail, a port nor a bond of this node")
    for name, bond in stack.bonds.items():
        members = set(bond.macs) | set(bond.paths)
        taken = [port.name for port in ports if (port.mac or port.path) in members]
        if taken:
            raise DeclarationError(f"nic.bonds.{name}: {', '.join(taken)} is a rail; rails are not bonded")


@dataclass(frozen=True, slots=True)
class Upper:
    """Desired state of one bond or VLAN."""

    name: str
    mtu: int | None
    address: str | None
    members: tuple[tuple[str | None, str | None], ...] = ()
    """MAC address or path of each member of a bond."""
    mode: str | None = None
    """Mode of a bond."""
    settings: tuple[tuple[str, str], ...] = ()
    """Settings of a bond, named as the kernel's driver does."""
    parent: str | None = None
    """Interface that carries a VLAN."""


def uppers(stack: NicInputs) -> tuple[Upper, ...]:
    """Bonds first, because VLANs are built on them."""
    bonds = (_bond(name, bond, stack.members(name)) for name, bond in stack.bonds.items())
    parents: dict[str, int | None] = {name: port.mtu for name, port in stack.ports.items()}
    parents |= {name: bond.mtu for name, bond in stack.bonds.items()}
    vlans = (
        Upper(name, vlan.mtu or parents.get(vlan.parent), str(vlan.address), parent=vlan.parent)
        for name, vlan in stack.vlans.items()
    )
    return (*bonds, *vlans)


def _bond(name: str, bond: Bond, members: tuple[tuple[str | None, str | None], ...]) -> Upper:
    address = str(bond.address) if bond.address else None
    settings = [("MII Polling Interval (ms)", str(bond.miimon_ms))]
    if bond.mode == "802.3ad":
        settings.append(("LACP rate", bond.lacp_rate))
    if bond.mode != "active-backup":
        settings.append(("Transmit Hash Policy", bond.hash_policy))
    return Upper(name, bond.mtu, address, members, bond.mode, tuple(settings))


MODES: Final = {
    "802.3ad": "IEEE 802.3ad Dynamic link aggregation",
    "active-backup": "fault-tolerance (active-backup)",
    "balance-xor": "load balancing (xor)",
}
"""Report of the kernel's bonding driver by mode."""


@dataclass(frozen=True, slots=True)
class UpperChange:
    upper: Upper
    members: tuple[str, ...]
    """Present names of the members."""
    reasons: tuple[str, ...]
    recreated: bool = False
    """An existing bond keeps its mode, its settings and foreign members whatever its file says."""
    joining: tuple[str, ...] = ()
    """Members that are not in the bond yet, or not in the new one."""

    @property
    def touched(self) -> Touched:
        """Devices that ``apply_uppers`` disturbs: networkd configures the parent of a new VLAN again."""
        parent = frozenset({self.upper.parent} if self.upper.parent else ())
        return Touched(down=frozenset({self.upper.name, *self.joining}), reconfigured=parent)


def members_of(upper: Upper, links: Sequence[Link]) -> tuple[str, ...]:
    """Raises PortProblem when a member is missing, not unique or InfiniBand."""
    members = [
        find_link(Port(f"{upper.name}: member {k}", "", "", upper.mtu or 0, mac, path), links)
        for k, (mac, path) in enumerate(upper.members, 1)
    ]
    if wrong := [link.name for link in members if link.infiniband]:
        raise PortProblem(f"nic.bonds.{upper.name}: {', '.join(wrong)}: {NO_INFINIBAND_BONDS}")
    return tuple(link.name for link in members)


def plan_uppers(
    wanted: Sequence[Upper], links: Sequence[Link], bonds: Mapping[str, BondState]
) -> tuple[UpperChange, ...]:
    """Differences from the desired state. Raises PortProblem when a member is missing or belongs to another bond."""
    by_name = {link.name: link for link in links}
    changes = []
    for upper in wanted:
        reasons: list[str] = []
        only_recreated: list[str] = []
        joining: tuple[str, ...] = ()
        members = members_of(upper, links)
        link, bond = by_name.get(upper.name), bonds.get(upper.name)
        if upper.mode:
            for other in bonds.values():
                if other.name != upper.name and (theirs := {member.name for member in other.members} & set(members)):
                    raise PortProblem(f"{upper.name}: {', '.join(sorted(theirs))} belongs to {other.name}")
            members_now = {member.name for member in bond.members} if bond else set()
            joining = tuple(name for name in members if name not in members_now)
            if joining:
                reasons.append(f"without {', '.join(joining)}")
            only_recreated = _other_settings(upper, bond) if bond else []
            if extra := sorted(members_now - set(members)):
                only_recreated.append(f"with {', '.join(extra)}")
            joining = members if only_recreated else joining
            reasons += only_recreated
            reasons += [
                f"MTU {by_name[name].mtu} of {name} becomes {upper.mtu}"
                for name in members
                if by_name[name].mtu != upper.mtu
            ]
        if link is None:
            reasons.append("does not exist")
        else:
            if upper.mtu and link.mtu != upper.mtu:
                reasons.append(f"MTU {link.mtu} becomes {upper.mtu}")
            if upper.address and upper.address not in link.addresses:
                reasons.append(f"no address {upper.address}")
            if not link.up:
                reasons.append("down")
        if reasons:
            changes.append(UpperChange(upper, members, tuple(reasons), bool(only_recreated), joining))
    return tuple(changes)


def touched(changes: Sequence[UpperChange]) -> Touched:
    return reduce(or_, (change.touched for change in changes), Touched())


def with_paths(wanted: Sequence[Upper]) -> bool:
    """Whether members are identified by their paths."""
    return any(path for upper in wanted for _, path in upper.members)


def _other_settings(upper: Upper, bond: BondState) -> list[str]:
    """Differences between a bond and its file; settings that its driver does not report are not compared."""
    differences = [] if bond.mode == MODES[upper.mode or ""] else [f"mode is {bond.mode}"]
    for key, value in upper.settings:
        actual = bond.settings.get(key)
        # A name with its number: layer3+4 (1).
        if actual is not None and actual.split(" (")[0] != value:
            differences.append(f"{key} is {actual}")
    return differences


def apply_uppers(changes: Sequence[UpperChange], manager: Manager) -> str:
    """Bring bonds and VLANs up from existing files, and wait until the kernel has them."""
    lines = [
        "set -eu",
        *(f"ip link delete dev {shlex.quote(change.upper.name)}" for change in changes if change.recreated),
    ]
    lines.append(RELOAD[manager])
    for change in changes:
        name = shlex.quote(change.upper.name)
        if manager == "NetworkManager":
            lines.append(bring_up(change.upper.name, manager))
            for k, member in enumerate(change.members, 1):
                if member not in change.joining:
                    continue
                connection = shlex.quote(connection_id(f"{change.upper.name}-{k}"))
                lines.append(f"nmcli --wait 60 connection up {connection} ifname {shlex.quote(member)} >/dev/null")
        else:
            for member in change.joining:
                # The bonding driver takes no port that is up.
                lines += [f"ip link set dev {shlex.quote(member)} down", bring_up(member, manager)]
            lines.append(f"[ ! -e /sys/class/net/{name} ] || {bring_up(change.upper.name, manager)}")
    for change in changes:
        lines.append(
            _wait(f"test -e /sys/class/net/{shlex.quote(change.upper.name)}", change.upper.name, "is not there")
        )
        for member in change.members:
            test = f"grep -qw {shlex.quote(member)} /sys/class/net/{shlex.quote(change.upper.name)}/bonding/slaves"
            lines.append(_wait(test, change.upper.name, f"does not take {member}"))
        if change.upper.mode:
            report = f"/proc/net/bonding/{shlex.quote(change.upper.name)}"
            for key, value in (("Bonding Mode", MODES[change.upper.mode]), *change.upper.settings):
                begin, whole = shlex.quote(f"{key}:"), shlex.quote(f"{key}: {value}")
                test = f"! grep -qF {begin} {report} || grep -qF {whole} {report}"
                lines.append(_wait(test, change.upper.name, f"does not report {key}: {value}"))
        if change.upper.mtu:
            for name in (change.upper.name, *change.members):
                lines.append(f"ip link set dev {shlex.quote(name)} mtu {change.upper.mtu}")
        if change.upper.address:
            test = (
                f"ip -4 -o addr show dev {shlex.quote(change.upper.name)}"
                f" | grep -qF {shlex.quote(f'inet {change.upper.address} ')}"
            )
            lines.append(_wait(test, change.upper.name, f"has no address {change.upper.address}"))
    return "\n".join(lines)


def _wait(test: str, name: str, problem: str) -> str:
    message = f"{name} {problem} after {WAIT_S} s; see: journalctl -u systemd-networkd -u NetworkManager"
    return wait_until(f"{test} 2>/dev/null", WAIT_S, message)


def foreign_command(names: Mapping[str, Sequence[str]]) -> str:
    """Command that searches other tools' files for these ports: port, and its names and MAC address."""
    lines = []
    for port, words in names.items():
        patterns = " ".join(f"-e {shlex.quote(word)}" for word in words)
        lines.append(
            f"grep -lsiwF {patterns} -- {' '.join(FOREIGN)} | while read -r f; do"
            f' head -n3 "$f" | grep -q \'Managed by rackproof\' || echo {shlex.quote(port)} "$f"; done'
        )
    return "; ".join(lines) + "; "


def parse_foreign(lines: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Port and file, pair by pair. Raises ValueError."""
    pairs = []
    for line in lines:
        port, _, path = line.partition(" ")
        if not path.startswith("/"):
            raise ValueError(f"no file: {line!r}")
        pairs.append((port, path))
    return tuple(pairs)


def foreign_problem(pairs: Sequence[tuple[str, str]]) -> str | None:
    """One line that names ports and files; None if no other tool manages them."""
    if not pairs:
        return None
    files: dict[str, list[str]] = {}
    for port, path in pairs:
        files.setdefault(path, []).append(port)
    named = "; ".join(f"{path}: {', '.join(dict.fromkeys(ports))}" for path, ports in files.items())
    return f"ports that something else manages, too ({named}): take them out there, and let this node's tool apply it"
