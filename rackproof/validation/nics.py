"""Readings of NIC ports, and expectations for several ports at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from testinfra.host import Host

from rackproof.core.architecture import Architecture, Nic
from rackproof.core.port_names import names_by_purpose
from rackproof.core.rack import Node
from rackproof.parse.gids import GidTable
from rackproof.parse.nic_ports import INTERFACES, RDMA_DEVICES, Port, parse_ports
from rackproof.parse.sysfs import GREP_DONE, files_in
from rackproof.remote.recording import Unmeasured
from rackproof.validation.checks import announce, answered, expect_all, read, shown
from rackproof.validation.expected import hardware, nic_of


def ports_on(host: Host) -> tuple[Port, ...]:
    """Every port of the node."""
    announce(host, RDMA_DEVICES, INTERFACES)
    return parse_ports(read(host, RDMA_DEVICES), read(host, INTERFACES))


def sysfs_files(host: Host, command: str) -> dict[str, tuple[str, ...]]:
    """Lines of the files that a ``sysfs_command`` prints, by path; empty where it matches no file."""
    return files_in(answered(host, command, "grep", good=GREP_DONE))


def expected_ports_on(host: Host, arch: Architecture, node: Node, purpose: str) -> tuple[Nic, ExpectedPorts]:
    """The architecture's entry for the ports of a purpose, and the matching ports."""
    nic = nic_of(arch, node, purpose)
    expected = hardware(arch, node, "nics")
    entries: Iterable[Nic] = expected.nics if expected else ()
    try:
        by_purpose = names_by_purpose(node.data)
    except ValueError as error:
        raise Unmeasured(f"the inventory's {error}") from None
    return nic, select_ports(nic, entries, ports_on(host), by_purpose)


def judge_ports(
    selected: ExpectedPorts, expected: object, value: Callable[[Port], Any], good: Callable[[Any], bool]
) -> None:
    """Fail unless ``good`` accepts the values of all selected ports. A value of None: the port does not report it.

    Raises Unmeasured if no port is wrong but one is missing or reports no value, and if the inventory names no ports
    and the candidates are ambiguous.
    """
    if not selected.ports:
        raise Unmeasured("none of these ports exists; see nic.count")
    if not selected.named and len(selected.ports) != selected.among:
        raise Unmeasured(
            f"the inventory does not name these ports: expected {selected.among} candidates,"
            f" actual {len(selected.ports)}; see nic.count"
        )
    values = {port: value(port) for port in selected.ports}
    wrong = {port: actual for port, actual in values.items() if actual is not None and not good(actual)}
    silent = [port.name for port, actual in values.items() if actual is None]
    enough = len(selected.ports) - len(wrong) >= selected.wanted
    if wrong and not (enough and not selected.named):
        listed = ", ".join(f"{shown(actual)} on {port.name}" for port, actual in wrong.items())
        raise AssertionError(f"expected {shown(expected)} on {selected.wanted} ports, actual {listed}")
    if wrong:
        raise Unmeasured(
            f"the inventory does not name these ports: {len(wrong)} of {selected.among} candidates"
            f" for {selected.wanted} ports are wrong"
        )
    if silent:
        raise Unmeasured(f"no value reported for {', '.join(silent)}")
    if selected.missing or len(selected.ports) < selected.wanted:
        raise Unmeasured(f"{', '.join(selected.missing) or 'a port'} is missing; see nic.count")


def expect_ports(selected: ExpectedPorts, expected: object, value: Callable[[Port], Any]) -> None:
    """Fail unless every selected port has exactly this value."""
    judge_ports(selected, expected, value, lambda actual: bool(actual == expected))


def expect_in_order(selected: ExpectedPorts, wanted: tuple[object, ...], value: Callable[[Port], object]) -> None:
    """Fail unless all ports have the value of their rail; a single value applies to all."""
    if not selected.named:
        raise Unmeasured("the inventory does not name these ports, so their order is unknown")
    if selected.missing or len(selected.ports) != selected.wanted:
        raise Unmeasured(f"{', '.join(selected.missing) or 'a port'} is missing; see nic.count")
    pairs = zip(selected.ports, wanted * (selected.wanted if len(wanted) == 1 else 1), strict=True)
    values = [(port, value(port), expected) for port, expected in pairs]
    expect_all(
        f"{port.name}: expected {shown(expected)}, actual {shown(actual)}"
        for port, actual, expected in values
        if actual is not None and actual != expected
    )
    if silent := [port.name for port, actual, _ in values if actual is None]:
        raise Unmeasured(f"no value reported for {', '.join(silent)}")


@dataclass(frozen=True, slots=True)
class ExpectedPorts:
    """The ports that match an entry of the architecture."""

    ports: tuple[Port, ...]
    """In the order of rails if the inventory names them."""
    wanted: int
    """Expected number of ports."""
    missing: tuple[str, ...] = ()
    """Names without a port."""
    among: int = 0
    """0 for named ports; otherwise the total number of ports that all purposes with this speed expect."""
    unexpected: tuple[Port, ...] = ()
    """Unexpected ports of the link layer, if ports are not named."""

    @property
    def named(self) -> bool:
        return self.among == 0


def select_ports(
    nic: Nic, nics: Iterable[Nic], ports: tuple[Port, ...], names: Mapping[str, Iterable[str]]
) -> ExpectedPorts:
    """Ports of one entry of ``nics``; ``names``: the inventory's port names by purpose."""

    def named(entry: Nic) -> tuple[str, ...]:
        return tuple(names.get(entry.purpose, ())) or entry.ports or entry.interfaces

    def find(name: str) -> Port | None:
        matches = [port for port in ports if name in (port.name, port.interface)]
        return matches[0] if matches else None

    if wanted := named(nic):
        by_name = {name: find(name) for name in wanted}
        return ExpectedPorts(
            tuple(dict.fromkeys(port for port in by_name.values() if port)),
            nic.count,
            tuple(name for name, port in by_name.items() if port is None),
        )
    entries = list(nics)
    claimed = {find(name) for entry in entries for name in named(entry)}
    free = [port for port in ports if port not in claimed and not port.virtual and port.link_layer == nic.link_layer]
    unnamed = [entry for entry in entries if not named(entry) and entry.link_layer == nic.link_layer]
    alike = sum(entry.count for entry in unnamed if entry.speed_gbps == nic.speed_gbps)
    speeds = {entry.speed_gbps for entry in unnamed}
    return ExpectedPorts(
        tuple(port for port in free if port.speed_gbps == nic.speed_gbps and not port.trouble),
        nic.count,
        among=alike,
        unexpected=tuple(port for port in free if port.speed_gbps not in speeds or port.trouble),
    )


ROCE_V2: Final = "RoCE v2"


def wrong_gid(port: Port, table: GidTable, index: int) -> str | None:
    """Message about an index without a RoCE v2 GID of the port's interface; empty for a correct index.

    None if the port has no table or the entry names no interface.
    """
    entries = {place[2]: gid for place, gid in table.items() if place[:2] == (port.device, port.number)}
    entry = entries.get(index)
    if not entries or (entry is not None and entry.routable and entry.interface is None):
        return None
    good = [place for place, gid in entries.items() if gid.kind == ROCE_V2 and gid.routable]
    if entry is not None and index in good and entry.interface == port.interface:
        return ""
    elsewhere = f" (such a GID is at {', '.join(map(str, good))})" if good and index not in good else ""
    return f"{entry or 'no GID'}{elsewhere}"
