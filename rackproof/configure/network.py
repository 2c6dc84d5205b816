"""Fabric ports: assigns NICs to rails, compares them with their declaration and plans the changes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from rackproof.configure.carriers import Touched
from rackproof.configure.settings import NodeSettings
from rackproof.core.architecture import Fabric
from rackproof.core.plan import Change
from rackproof.core.port_names import rail_alias
from rackproof.errors import Refused
from rackproof.parse.netdev import parse_ip
from rackproof.parse.sections import sections_of
from rackproof.parse.text import text_from
from rackproof.shell import wait_until

Manager = Literal["networkd", "NetworkManager"]

ADDRESS_WAIT_S = 30
GUID_LENGTH = 23
"""Characters of eight bytes in hexadecimal with colons."""
ETHERNET_MAC_LENGTH = 17
"""Characters of six bytes in hexadecimal with colons."""


@dataclass(frozen=True, slots=True)
class Port:
    """Desired state of one port of a node. Exactly one of ``mac`` and ``path`` identifies the NIC."""

    name: str
    rdma: str
    """Name of the RDMA device; empty: not renamed."""
    address: str
    """Address with prefix length; empty: none."""
    mtu: int | None
    """None: set with the IPoIB mode, or not changed."""
    mac: str | None = None
    path: str | None = None
    bond: str | None = None
    """Bond that the port is a member of, and that brings it up."""


@dataclass(frozen=True, slots=True)
class Link:
    """A network interface as the kernel reports it."""

    name: str
    mac: str
    mtu: int
    up: bool
    addresses: tuple[str, ...]
    path: str | None = None
    upper: bool = False
    """A bond, a VLAN or another interface on top of a port, with the port's MAC address."""

    @property
    def infiniband(self) -> bool:
        return len(self.mac) > ETHERNET_MAC_LENGTH


def ports(fabric: Fabric, settings: NodeSettings) -> tuple[Port, ...]:
    """The fabric ports of one node, in the order of rails."""
    return tuple(
        Port(
            name=f"{fabric.interface_prefix}{rail}",
            rdma=f"{fabric.rdma_prefix}{rail}",
            address=str(settings.fabric_addresses[rail]),
            mtu=fabric.mtu if fabric.kind != "infiniband" else None,
            mac=settings.fabric_macs[rail] if settings.fabric_macs else None,
            path=settings.fabric_paths[rail] if settings.fabric_paths else None,
        )
        for rail in range(len(settings.fabric_addresses))
    )


def links_command(with_paths: bool) -> str:
    """Shell text that prints all interfaces; ``with_paths``: with udev's ID_PATH.

    udevadm's options ``--property`` and ``--value`` came with systemd 250 (its NEWS); Ubuntu 22.04 has 249.
    """
    command = "ip -j addr show && echo -- && "
    if with_paths:
        command += (
            "for i in /sys/class/net/*; do "
            'echo "${i##*/} $(udevadm info -q property -- "$i" | sed -n s/^ID_PATH=//p)"; done; '
        )
    return command + "true"


def parse_links(lines: Sequence[str]) -> tuple[Link, ...]:
    """Answer of ``links_command``.

    Raises ValueError on anything that is not such an answer.
    """
    devices, id_paths = sections_of(lines, 2)
    paths = dict(line.split(" ", 1) for line in id_paths if " " in line)
    return tuple(
        Link(
            name=device.name,
            # A member of a bond shows the MAC address of the bond; its permanent address identifies it.
            mac=(device.permanent_mac or device.mac or "").lower(),
            mtu=device.mtu_bytes,
            up="UP" in device.flags,
            addresses=tuple(
                f"{address.address}/{address.prefix_length}"
                for address in device.addresses or ()
                if address.family == "inet"
            ),
            path=paths.get(device.name) or None,
            upper="MASTER" in device.flags or device.stacked,
        )
        for device in parse_ip(text_from(devices))
        if device.kind in ("ether", "infiniband")
    )


def touched(changes: Sequence[PortChange]) -> Touched:
    """Devices that ``apply_script`` disturbs. A bond brings its members up."""
    return Touched(
        down=frozenset(change.link.name for change in changes if change.rename),
        reconfigured=frozenset(change.link.name for change in changes if not change.rename and not change.port.bond),
    )


class PortProblem(Refused):
    """A port cannot be brought to its declared state."""


@dataclass(frozen=True, slots=True)
class PortChange:
    port: Port
    link: Link
    rename: bool
    reasons: tuple[str, ...]

    @property
    def change(self) -> Change:
        return Change(what=self.port.name, why="; ".join(self.reasons))


def plan_ports(wanted: Sequence[Port], links: Sequence[Link]) -> tuple[PortChange, ...]:
    """Ports that differ from their declaration.

    Raises PortProblem when a NIC is missing, ambiguous or named twice, or when its name belongs to another NIC.
    """
    changes = []
    taken: dict[str, str] = {}
    for port in wanted:
        link = find_link(port, links)
        if first := taken.get(link.name):
            raise PortProblem(f"{port.name}: {link.name} is {first} already: the inventory names one NIC twice")
        taken[link.name] = port.name
        reasons = []
        if link.name != port.name:
            if any(other.name == port.name for other in links):
                raise PortProblem(f"{port.name}: another NIC has this name; reboot: udev assigns the new names at boot")
            reasons.append(f"{link.name} becomes {port.name}")
        if port.mtu is not None and link.mtu != port.mtu:
            reasons.append(f"MTU {link.mtu} becomes {port.mtu}")
        if not link.up:
            reasons.append("down")
        if port.address and port.address not in link.addresses:
            reasons.append(f"no address {port.address}")
        if reasons:
            changes.append(PortChange(port, link, link.name != port.name, tuple(reasons)))
    return tuple(changes)


def in_use(wanted: Sequence[Port], links: Sequence[Link]) -> str | None:
    """Why ports may not be renamed, in one line: the deploy itself may use an address that is not declared."""
    problems = [
        f"{port.name}: {link.name} is in use with {', '.join(link.addresses)}"
        for port, link in _known(wanted, links)
        if link.name != port.name and link.addresses
    ]
    if not problems:
        return None
    return (
        f"{'; '.join(problems)}: only a port without addresses is renamed; remove its addresses, or remove the port"
        " from nic.ports"
    )


def _known(ports: Sequence[Port], links: Sequence[Link]) -> Iterator[tuple[Port, Link]]:
    """Ports and their interfaces; ``plan_ports`` reports those without one."""
    for port in ports:
        with suppress(PortProblem):
            yield port, find_link(port, links)


def find_link(port: Port, links: Sequence[Link]) -> Link:
    """The interface of a port. Raises PortProblem when there is not exactly one."""
    what = f"MAC address {port.mac}" if port.mac else f"path {port.path}"
    matching = [
        link
        for link in links
        if (same_mac(link.mac, port.mac) and not link.upper if port.mac else link.path == port.path)
    ]
    # A bridge on top of the port has the same MAC address; the declared name identifies the port.
    if len(matching) > 1 and any(link.name == port.name for link in matching):
        matching = [link for link in matching if link.name == port.name]
    if len(matching) != 1:
        present = ", ".join(f"{link.name} {link.mac if port.mac else link.path}" for link in links)
        raise PortProblem(
            f"{port.name}: expected one NIC with {what}, actual {len(matching)}; present: {present or 'none'}"
        )
    return matching[0]


def words_of(ports: Sequence[Port], links: Sequence[Link]) -> dict[str, list[str]]:
    """By port: the words that configuration files may name it by (declared name, current name, MAC address)."""
    words = {port.name: [port.name] for port in ports}
    for port, link in _known(ports, links):
        words[port.name] += [word for word in (link.name, port.mac or link.mac) if word != port.name]
    return words


def same_mac(actual: str, wanted: str) -> bool:
    """Whether two MAC addresses are of the same port. Of InfiniBand addresses only the GUID, the last eight bytes, is
    permanent."""
    return actual == wanted or (len(actual) > len(wanted) == GUID_LENGTH and actual.endswith(f":{wanted}"))


RELOAD: Final[Mapping[Manager, str]] = {"networkd": "networkctl reload", "NetworkManager": "nmcli connection reload"}
"""By network service of a node: the command that reads its files again."""


def connection_id(name: str) -> str:
    """NetworkManager's name of an interface's connection."""
    return f"rackproof-{name}"


def bring_up(interface: str, manager: Manager) -> str:
    """Shell line with which the network service configures an interface from its file."""
    if manager == "NetworkManager":
        return f"nmcli --wait 60 connection up {shlex.quote(connection_id(interface))} >/dev/null"
    return f"networkctl reconfigure {shlex.quote(interface)}"


def apply_script(changes: Sequence[PortChange], manager: Manager = "networkd") -> str:
    """Shell script that renames and configures ports and waits until the kernel shows their addresses.

    The configuration files must already exist: ``manager`` reads them now, udev at boot.
    """
    tool = "nmcli device show" if manager == "NetworkManager" else "networkctl status"
    lines = ["set -eu"]
    for change in changes:
        name = shlex.quote(change.port.name)
        if change.rename:
            old = shlex.quote(change.link.name)
            lines += [f"ip link set dev {old} down", f"ip link set dev {old} name {name}"]
    lines.append("udevadm settle --timeout=30")
    lines.append(RELOAD[manager])
    for change in changes:
        name = shlex.quote(change.port.name)
        mtu = "" if change.port.mtu is None else f"mtu {change.port.mtu} "
        lines.append(f"ip link set dev {name} {mtu}up")
        if not change.port.bond:
            lines.append(bring_up(change.port.name, manager))
    for change in changes:
        if not change.port.address:
            continue
        name, address = shlex.quote(change.port.name), shlex.quote(f"inet {change.port.address} ")
        message = f"{change.port.name}: {change.port.address} did not appear; see: {tool}"
        lines.append(wait_until(f"ip -4 -o addr show dev {name} | grep -qF {address}", ADDRESS_WAIT_S, message))
    return "\n".join(lines)


def hosts_block(addresses: Mapping[str, Sequence[str]], control: Mapping[str, str | None], prefix: str) -> str:
    """Lines of /etc/hosts: ``name-<prefix>K`` is a node's address on rail k, its own name the ``control`` address.

    ``prefix``: prefix of the ports' names. A node without a control address gets no line for its own name.
    """
    lines = []
    for name, rails in addresses.items():
        own = control[name]
        if own and own not in rails:
            lines.append(f"{own} {name}")
        for rail, address in enumerate(rails):
            alias = rail_alias(name, prefix, rail)
            lines.append(f"{address} {name} {alias}" if address == own else f"{address} {alias}")
    return "\n".join(lines) + "\n"
