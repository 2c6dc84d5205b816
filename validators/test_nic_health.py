"""Health of NIC ports: error counters, link flaps, bit errors, driver messages, bonds."""

from __future__ import annotations

import shlex

from testinfra.host import Host

from rackproof.configure.nic.inputs import Bond
from rackproof.core.architecture import Architecture
from rackproof.core.rack import Node, Rack
from rackproof.parse.answer import STATUS
from rackproof.parse.bonding import parse_bonds
from rackproof.parse.device_log import driver_troubles
from rackproof.parse.ethtool import parse_ethtool_statistics
from rackproof.parse.link_counters import BASELINE, parse_baseline
from rackproof.parse.mlxlink import parse_mlxlink
from rackproof.parse.nic_ports import INTERFACES, RDMA_DEVICES, Port
from rackproof.parse.rdma_ports import COUNTERS, parse_rdma_counters
from rackproof.validation import Unmeasured, announce, answered, check, expect_all
from rackproof.validation.bonds import Declared, bond_gaps, bond_problems
from rackproof.validation.expected import hardware
from rackproof.validation.kernel_messages import KERNEL_LOG, kernel_messages, quoted
from rackproof.validation.nics import expected_ports_on, judge_ports, sysfs_files

KNOWN_DRIVERS = ("mlx5_core",)
"""Drivers whose messages in the kernel's log are known."""
BONDS = f'for f in /proc/net/bonding/*; do [ ! -e "$f" ] || {{ echo "bond ${{f##*/}}"; cat "$f"; }}; done{STATUS}'
LINK_BASELINE = BASELINE + STATUS
"""Baseline of link counters (``nic: {zero_link_counters: true}``)."""


@check(
    "nic.counters",
    reads="roles.{role}.expect.nics.*.counters",
    protects="Symbol errors, retries and dropped packets cost bandwidth long before a link goes down.",
    hint="Clean or exchange the cable and optics; for out_of_buffer and discards check PFC and ECN on both ends.",
)
def test_counters(host: Host, arch: Architecture, node: Node, item: str) -> None:
    announce(host, RDMA_DEVICES, INTERFACES, COUNTERS)
    nic, matched = expected_ports_on(host, arch, node, item)
    limits = nic.counters or {}
    known = rdma_counters(host)
    incomplete = [
        port for port in matched.ports if port.interface and not limits.keys() <= known.get(_place(port), {}).keys()
    ]
    announce(host, *map(_statistics, incomplete))
    values = {port: dict(known.get(_place(port), {})) for port in matched.ports}
    for port in incomplete:
        of_interface = parse_ethtool_statistics(answered(host, _statistics(port), "ethtool").body)
        values[port] = {**of_interface, **values[port]}
    unknown = [name for name in limits if not any(name in counted for counted in values.values())]
    expected = ", ".join(f"{name} ≤ {limit}" for name, limit in limits.items())

    def beyond(port: Port) -> str | None:
        counted = values[port]
        over = [f"{name} {counted[name]}" for name, limit in limits.items() if counted.get(name, 0) > limit]
        return ", ".join(over) or ("" if limits.keys() <= counted.keys() else None)

    try:
        judge_ports(matched, expected, beyond, lambda over: over == "")
    except Unmeasured as silent:
        raise (
            Unmeasured(f"no port has a counter {', '.join(unknown)}") if unknown and matched.ports else silent
        ) from None


def rdma_counters(host: Host) -> dict[tuple[str, int], dict[str, int]]:
    """Counters of every RDMA port, by device and port."""
    return parse_rdma_counters(sysfs_files(host, COUNTERS))


def _place(port: Port) -> tuple[str, int]:
    return port.device or "", port.number


def _statistics(port: Port) -> str:
    return f"ethtool -S {shlex.quote(port.interface or '')}{STATUS}"


@check(
    "nic.link_flaps",
    reads="roles.{role}.expect.nics.*.link_flaps_max",
    protects="A flapping link kills long jobs, and looks healthy between flaps.",
    hint="dmesg for 'Link down'; mlxlink -m -c: check for dirty or hot optics, a loose cable, the switch port.",
)
def test_link_flaps(host: Host, arch: Architecture, node: Node, item: str) -> None:
    announce(host, RDMA_DEVICES, INTERFACES, COUNTERS, LINK_BASELINE)
    nic, matched = expected_ports_on(host, arch, node, item)
    allowed = nic.link_flaps_max or 0
    began = parse_baseline(answered(host, LINK_BASELINE, "cat", good=(0, 1)).body) or {}
    values = {port: _since(port.link_downs, began.get(port.interface or "", 0)) for port in matched.ports}
    if nic.link_layer == "InfiniBand":
        counted = rdma_counters(host)
        values = {
            port: _since(counted.get(_place(port), {}).get("link_downed"), began.get(f"{port.device}/{port.number}", 0))
            for port in matched.ports
        }
    judge_ports(matched, f"at most {allowed} times down", values.get, lambda downs: downs <= allowed)


def _since(counted: int | None, began: int) -> int | None:
    """A counter below its baseline was reset by a reload of the driver."""
    return counted if counted is None or counted < began else counted - began


@check(
    "nic.bit_errors",
    reads="roles.{role}.expect.nics.*.effective_ber_max",
    protects="Bit errors that FEC does not correct cause retransmissions, and every rank waits.",
    hint="mlxlink -d SLOT -m -c: power and temperature of the optics; clean the fibre, exchange cable and module.",
)
def test_bit_errors(host: Host, arch: Architecture, node: Node, item: str) -> None:
    nic, matched = expected_ports_on(host, arch, node, item)
    limit = nic.effective_ber_max or 0.0
    commands = {port: f"mlxlink -d {shlex.quote(port.slot)} -c{STATUS}" for port in matched.ports if port.slot}
    announce(host, *commands.values())

    def rate(port: Port) -> float | None:
        if port not in commands:
            return None
        report = parse_mlxlink(answered(host, commands[port], "mlxlink").body)
        return report.effective_ber if report.state == "Active" else None

    judge_ports(matched, f"a bit error rate of at most {limit:g}", rate, lambda ber: ber <= limit)


@check(
    "nic.driver_messages",
    reads="roles.{role}.expect.nics.*.driver_messages_max",
    protects="A NIC whose firmware failed once fails again, and its reset kills the job that uses it.",
    hint="dmesg for mlx5_core: syndromes and timeouts point to firmware, power and heat to the slot or the module.",
)
def test_driver_messages(host: Host, arch: Architecture, node: Node, item: str) -> None:
    announce(host, RDMA_DEVICES, INTERFACES, KERNEL_LOG)
    nic, matched = expected_ports_on(host, arch, node, item)
    allowed = nic.driver_messages_max or 0
    messages = kernel_messages(host)
    values = {
        port: driver_troubles(messages, (port.slot or "", port.device or "", port.interface or ""))
        for port in matched.ports
    }
    texts = {
        port: quoted(several) if len(several) > allowed else "" if port.driver in KNOWN_DRIVERS else None
        for port, several in values.items()
    }
    judge_ports(matched, f"at most {allowed} errors of the driver", texts.get, lambda words: words == "")


def has_ports(arch: Architecture, node: Node, rack: Rack) -> bool:
    return hardware(arch, node, "nics") is not None


def _declared(bond: Bond) -> Declared:
    members = bond.macs or bond.paths or bond.ports
    return Declared(len(members), bond.mode, bond.hash_policy, bond.lacp_rate)


@check(
    "bond.members",
    tags=("nic",),
    reads="roles.{role}.expect.nics",
    when=has_ports,
    protects="A bond with one member down, or without an LACP partner, has half its bandwidth and no redundancy.",
    hint="cat /proc/net/bonding/BOND; check cable and optics of the member, and the switch ports' LACP group.",
)
def test_bonds(host: Host, node: Node) -> None:
    bonds_of = (node.data.get("nic") or {}).get("bonds") or {}
    declared = {name: _declared(Bond.model_validate(bond)) for name, bond in bonds_of.items()}
    bonds = {bond.name: bond for bond in parse_bonds(answered(host, BONDS, "cat").body)}
    problems = [
        f"{name}: expected a bond of mode {declared[name].mode}, actual none" for name in declared if name not in bonds
    ]
    expect_all([*problems, *(text for name, bond in bonds.items() for text in bond_problems(bond, declared.get(name)))])
    if gaps := [text for name, bond in bonds.items() for text in bond_gaps(bond, declared.get(name))]:
        raise Unmeasured("; ".join(gaps))
