"""Lossless RoCE: priority classes, flow control and congestion notification of every fabric port."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from testinfra.host import Host

from rackproof.core.architecture import Architecture, Lossless
from rackproof.parse import ParseError, dcb
from rackproof.parse.answer import STATUS
from rackproof.parse.ethtool import parse_ethtool_pause
from rackproof.parse.gids import GIDS, parse_gids
from rackproof.parse.mlnx_qos import Qos, parse_mlnx_qos
from rackproof.parse.nic_ports import INTERFACES, RDMA_DEVICES, Port
from rackproof.parse.rdma_ports import traffic_class_of
from rackproof.parse.sysfs import number_of, sysfs_command
from rackproof.validation import Unmeasured, announce, answered, check, expect_all, read
from rackproof.validation.nics import ports_on, sysfs_files, wrong_gid

CONGESTION = sysfs_command(
    "/sys/class/net",
    "*/ecn/roce_rp/enable/*", "*/ecn/roce_np/enable/*", "*/ecn/roce_np/cnp_dscp", "*/ecn/roce_np/cnp_802p_prio",
)  # fmt: skip
"""Files of NVIDIA's driver packages; the in-tree driver has none."""
CNP_DEBUG = sysfs_command("/sys/kernel/debug/mlx5", "*/cc_params/np_cnp_dscp", "*/cc_params/np_cnp_prio")
"""Congestion notifications of the in-tree driver, by PCI address."""
CONNECTIONS = sysfs_command("/sys/kernel/config/rdma_cm", "*/ports/*/default_roce_tos", "*/ports/*/default_roce_mode")
TRAFFIC_CLASS = sysfs_command("/sys/class/infiniband", "*/tc/*/traffic_class")
POINTS = {"roce_rp": "reaction point", "roce_np": "notification point"}
PRIORITIES = range(8)


def lossless_of(arch: Architecture) -> Lossless:
    if arch.fabric is None or arch.fabric.lossless is None:
        raise Unmeasured("the architecture has no section fabric.lossless")
    return arch.fabric.lossless


def rails(arch: Architecture) -> list[str]:
    return [f"{arch.fabric.interface_prefix}{rail}" for rail in range(arch.rails)] if arch.fabric else []


def fabric_ports(host: Host, arch: Architecture) -> dict[str, Port]:
    """RDMA ports of the fabric, by interface. Raises Unmeasured when one is missing."""
    by_interface = {port.interface: port for port in ports_on(host) if port.device}
    missing = [name for name in rails(arch) if name not in by_interface]
    if missing:
        raise Unmeasured(f"no RDMA device on {', '.join(missing)}; see fabric.rdma")
    return {name: by_interface[name] for name in rails(arch)}


def expect_rails(values: Mapping[str, object], expected: object) -> None:
    """Every rail has the expected value. Raises Unmeasured when the only deviation is a missing value."""
    expect_all(
        f"{name}: expected {expected}, actual {value}"
        for name, value in values.items()
        if value is not None and value != expected
    )
    silent = [name for name, value in values.items() if value is None]
    if silent or not values:
        raise Unmeasured(f"no value reported for {', '.join(silent) or 'any port'}")


def qos_command(name: str) -> str:
    """``mlnx_qos`` of NVIDIA's driver packages if installed, otherwise the distribution's ``dcb``."""
    port = shlex.quote(name)
    return (
        "if command -v mlnx_qos >/dev/null || ! command -v dcb >/dev/null;"
        f" then mlnx_qos -i {port}; else {dcb.command(port)}; fi{STATUS}"
    )


def qos(host: Host, arch: Architecture) -> dict[str, Qos]:
    """QoS settings of every rail, from mlnx_qos or dcb."""
    commands = {name: qos_command(name) for name in rails(arch)}
    announce(host, *commands.values())
    return {name: _qos_of(answered(host, command, "mlnx_qos or dcb").body) for name, command in commands.items()}


def _qos_of(body: str) -> Qos:
    return dcb.parse_dcb(body) if body.startswith(f"{dcb.BEGINNING}\n") else parse_mlnx_qos(body)


@check(
    "fabric.pfc",
    reads="fabric.lossless.pfc_priority",
    protects="If port and switch pause different classes, RDMA packets are lost under load only.",
    hint="mlnx_qos -i PORT --pfc 0,0,0,1,0,0,0,0, or dcb pfc set dev PORT prio-pfc 3:on, from a unit at boot.",
)
def test_pfc(host: Host, arch: Architecture) -> None:
    priority = lossless_of(arch).pfc_priority
    paused = {name: _classes(settings.pfc) for name, settings in qos(host, arch).items()}
    expect_rails(paused, f"pauses of priority {priority}")


def _classes(priorities: frozenset[int]) -> str:
    if not priorities:
        return "no pauses"
    return f"pauses of priority {' and '.join(map(str, sorted(priorities)))}"


@check(
    "fabric.trust",
    reads="fabric.lossless.trust",
    protects="A port that trusts VLAN tags puts untagged RDMA into a class without flow control.",
    hint="mlnx_qos -i PORT --trust dscp; the setting is lost at boot, so apply it from a unit.",
)
def test_trust(host: Host, arch: Architecture) -> None:
    expect_rails({name: settings.trust for name, settings in qos(host, arch).items()}, lossless_of(arch).trust)


@check(
    "fabric.dscp_priority",
    reads="fabric.lossless.dscp_priority",
    protects="Marked packets mapped to the wrong class get neither pauses nor congestion control and are dropped.",
    hint="mlnx_qos -i PORT --dscp2prio set,26,3; the switches need the same map.",
)
def test_dscp_priority(host: Host, arch: Architecture) -> None:
    expected = lossless_of(arch).dscp_priority or {}
    rail_settings = qos(host, arch)
    expect_all(
        f"{name}: expected DSCP {dscp} in priority {priority}, actual {settings.dscp_priority[dscp]}"
        for name, settings in rail_settings.items()
        for dscp, priority in expected.items()
        if settings.dscp_priority.get(dscp, priority) != priority
    )
    # With trust pcp the port ignores DSCP marks.
    expect_all(
        f"{name}: expected trust dscp, actual {settings.trust}"
        for name, settings in rail_settings.items()
        if settings.trust == "pcp"
    )
    silent = [name for name, settings in rail_settings.items() if not expected.keys() <= settings.dscp_priority.keys()]
    if silent:
        raise Unmeasured(f"no mapping of DSCP {', '.join(map(str, expected))} is shown for {', '.join(silent)}")


@check(
    "fabric.ecn",
    reads="fabric.lossless.ecn",
    protects="Without congestion control pauses spread through the fabric, and one slow node stops all others.",
    hint="echo 1 > /sys/class/net/PORT/ecn/roce_rp/enable/PRIORITY, and roce_np; lost at boot: apply from a unit.",
)
def test_ecn(host: Host, arch: Architecture) -> None:
    lossless = lossless_of(arch)
    contents = sysfs_files(host, CONGESTION)
    priorities = PRIORITIES if lossless.pfc_priority is None or not lossless.ecn else (lossless.pfc_priority,)
    expected = "1" if lossless.ecn else "0"
    values: dict[str, object] = {}
    for name in rails(arch):
        switches = {(p, n): contents.get(f"{name}/ecn/{p}/enable/{n}", (None,))[0] for p in POINTS for n in priorities}
        wrong = [
            f"{POINTS[p]} {_on(value)} for priority {n}"
            for (p, n), value in switches.items()
            if value not in (None, expected)
        ]
        values[name] = ", ".join(wrong) or (None if None in switches.values() else _on(expected))
    expect_rails(values, _on(expected))


def _on(value: str | None) -> str:
    return {"1": "on", "0": "off"}.get(value or "", str(value))


def _cnp(host: Host, arch: Architecture, file: str, own: str, expected: int | None) -> None:
    """``file``: the value's file in NVIDIA's driver packages; ``own``: in the in-tree driver, read if no rail has
    ``file``."""
    contents = sysfs_files(host, CONGESTION)
    values = {name: number_of(contents.get(f"{name}/ecn/roce_np/{file}")) for name in rails(arch)}
    if set(values.values()) == {None}:
        announce(host, RDMA_DEVICES, INTERFACES, CNP_DEBUG)
        contents = sysfs_files(host, CNP_DEBUG)
        ports = fabric_ports(host, arch)
        values = {name: number_of(contents.get(f"{port.slot}/cc_params/{own}")) for name, port in ports.items()}
    expect_rails(values, expected)


@check(
    "fabric.cnp_dscp",
    reads="fabric.lossless.cnp_dscp",
    protects="Congestion notifications queued behind the congestion arrive too late.",
    hint="echo DSCP > /sys/class/net/PORT/ecn/roce_np/cnp_dscp; switches need it in a strict-priority queue.",
)
def test_cnp_dscp(host: Host, arch: Architecture) -> None:
    _cnp(host, arch, "cnp_dscp", "np_cnp_dscp", lossless_of(arch).cnp_dscp)


@check(
    "fabric.cnp_priority",
    reads="fabric.lossless.cnp_priority",
    protects="Congestion notifications in the paused class are paused with it.",
    hint="echo PRIORITY > /sys/class/net/PORT/ecn/roce_np/cnp_802p_prio; lost at boot, so apply it from a unit.",
)
def test_cnp_priority(host: Host, arch: Architecture) -> None:
    _cnp(host, arch, "cnp_802p_prio", "np_cnp_prio", lossless_of(arch).cnp_priority)


@check(
    "fabric.tos",
    reads="fabric.lossless.tos",
    protects="Storage and MPI connections without the mark travel in a class without flow control.",
    hint="cma_roce_tos -d DEVICE -t 106 at boot; mkdir /sys/kernel/config/rdma_cm/DEVICE makes it readable.",
)
def test_tos(host: Host, arch: Architecture) -> None:
    announce(host, RDMA_DEVICES, INTERFACES, CONNECTIONS)
    contents = sysfs_files(host, CONNECTIONS)
    ports = fabric_ports(host, arch)
    values = {
        f"{name} ({port.name})": number_of(contents.get(f"{port.device}/ports/{port.number}/default_roce_tos"))
        for name, port in ports.items()
    }
    expect_rails(values, lossless_of(arch).tos)


@check(
    "fabric.roce_mode",
    reads="fabric.lossless.roce_mode",
    protects="RoCE v1 has no IP header: it is not routable and carries no DSCP mark.",
    hint="cma_roce_mode -d DEVICE -p 1 -m 2 at boot; mkdir /sys/kernel/config/rdma_cm/DEVICE makes it readable.",
)
def test_roce_mode(host: Host, arch: Architecture) -> None:
    announce(host, RDMA_DEVICES, INTERFACES, CONNECTIONS)
    contents = sysfs_files(host, CONNECTIONS)
    values: dict[str, object] = {}
    for name, port in fabric_ports(host, arch).items():
        lines = contents.get(f"{port.device}/ports/{port.number}/default_roce_mode")
        values[f"{name} ({port.name})"] = lines[0] if lines and lines[0] else None
    expect_rails(values, lossless_of(arch).roce_mode)


@check(
    "fabric.global_pause",
    reads="fabric.lossless.global_pause",
    protects="Link-level pause lets one slow receiver stop every class, and disables PFC.",
    hint="ethtool -A PORT rx off tx off, from a unit at boot; configure the switch port the same way.",
)
def test_global_pause(host: Host, arch: Architecture) -> None:
    commands = {name: f"ethtool -a {shlex.quote(name)}{STATUS}" for name in rails(arch)}
    announce(host, *commands.values())
    values: dict[str, object] = {}
    for name, command in commands.items():
        pause = parse_ethtool_pause(answered(host, command, "ethtool").body)
        if pause.device != name:
            raise ParseError("ethtool", f"answered for {pause.device} instead of {name}")
        words = {True: "on", False: "off"}
        both = words[pause.receive] if pause.receive == pause.transmit else None
        values[name] = both or f"receive {words[pause.receive]}, transmit {words[pause.transmit]}"
    expect_rails(values, lossless_of(arch).global_pause)


@check(
    "fabric.traffic_class",
    reads="fabric.lossless.traffic_class",
    protects="Programs that set no traffic class send RDMA in a class without flow control.",
    hint="echo 106 > /sys/class/infiniband/DEVICE/tc/1/traffic_class, from a unit at boot.",
)
def test_traffic_class(host: Host, arch: Architecture) -> None:
    announce(host, RDMA_DEVICES, INTERFACES, TRAFFIC_CLASS)
    contents = sysfs_files(host, TRAFFIC_CLASS)
    values: dict[str, object] = {}
    for name, port in fabric_ports(host, arch).items():
        lines = contents.get(f"{port.device}/tc/{port.number}/traffic_class")
        # This driver has the file for every port; it is empty until a class is set.
        tclass = traffic_class_of(lines or ())
        values[f"{name} ({port.name})"] = None if lines is None else "none" if tclass is None else tclass
    expect_rails(values, lossless_of(arch).traffic_class)


@check(
    "fabric.gid",
    reads="fabric.lossless.gid_index",
    protects="NCCL_IB_GID_INDEX is one number for all ports of all nodes; a port with another index does not connect.",
    hint="show_gids; a port without an IPv4 address has no such GID; added and removed addresses shift the index.",
)
def test_gid(host: Host, arch: Architecture) -> None:
    announce(host, RDMA_DEVICES, INTERFACES, GIDS)
    index = lossless_of(arch).gid_index or 0
    table = parse_gids(read(host, GIDS))
    expected = f"RoCE v2 with an address as GID {index}"
    values: dict[str, object] = {}
    for name, port in fabric_ports(host, arch).items():
        wrong = wrong_gid(port, table, index)
        values[name] = expected if wrong == "" else wrong
    expect_rails(values, expected)
