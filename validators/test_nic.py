"""NIC ports by purpose: number, names, slots, speed, PCIe settings and firmware."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import lru_cache

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.core.rack import Node
from rackproof.parse.answer import STATUS
from rackproof.parse.ethtool import parse_ethtool_driver
from rackproof.parse.gids import GIDS, parse_gids
from rackproof.parse.lspci import COMMAND as LSPCI
from rackproof.parse.lspci import PciDevice, parse_lspci
from rackproof.parse.mlxconfig import parse_mlxconfig, same_value
from rackproof.parse.nic_ports import INTERFACES, RDMA_DEVICES, Port
from rackproof.parse.rdma import parse_ibv_devinfo
from rackproof.parse.rdma_ports import PKEYS, parse_pkeys
from rackproof.parse.sysfs import sysfs_command
from rackproof.parse.text import version_numbers
from rackproof.validation import Unmeasured, announce, answered, check, read
from rackproof.validation.nics import (
    expect_in_order,
    expect_ports,
    expected_ports_on,
    judge_ports,
    sysfs_files,
    wrong_gid,
)

DEVINFO = f"ibv_devinfo{STATUS}"
MODES = sysfs_command("/sys/class/net", "*/mode")
FULL_MEMBER = 0x8000


def pci_devices(host: Host) -> Mapping[str, PciDevice]:
    """PCI devices by address."""
    announce(host, RDMA_DEVICES, INTERFACES, LSPCI)
    return _by_slot(read(host, LSPCI))


@lru_cache(maxsize=8)
def _by_slot(output: str) -> Mapping[str, PciDevice]:
    return {device.slot: device for device in parse_lspci(output)}


@check(
    "nic.count",
    reads="roles.{role}.expect.nics.*.count",
    protects="A missing port is a missing rail: GPUs share the remaining ones, and collectives slow down.",
    hint="lspci -d 15b3: and ibstat; dmesg for mlx5_core; check the card's seat, riser, power and firmware.",
)
def test_count(host: Host, arch: Architecture, node: Node, item: str) -> None:
    nic, matched = expected_ports_on(host, arch, node, item)
    if matched.named:
        if matched.missing:
            missing = ", ".join(matched.missing)
            raise AssertionError(f"expected {nic.count} {item} ports, actual {len(matched.ports)}: missing: {missing}")
        if len(matched.ports) != nic.count:
            raise AssertionError(
                f"expected {nic.count} {item} ports, actual {len(matched.ports)} named in the inventory"
            )
        return
    if len(matched.ports) != matched.among:
        unknown = [port.name for port in matched.unexpected if port.speed_gbps is None and not port.trouble]
        if len(matched.ports) < matched.among <= len(matched.ports) + len(unknown):
            raise Unmeasured(f"the kernel does not report the speed of {', '.join(unknown)}")
        others = ", ".join(
            f"{port.name} {port.trouble or (f'{speed:g} Gb/s' if (speed := port.speed_gbps) else 'of unknown speed')}"
            for port in matched.unexpected
        )
        raise AssertionError(
            f"expected {matched.among} {nic.link_layer} ports of {nic.speed_gbps:g} Gb/s that are up, "
            f"actual {len(matched.ports)}" + (f"; others: {others}" if others else "")
        )
    if silent := [port.name for port in matched.ports if not port.reported]:
        raise Unmeasured(f"the kernel does not report whether {', '.join(silent)} is up")


@check(
    "nic.state",
    reads="roles.{role}.expect.nics.*.count",
    protects="A collective runs at the speed of the slowest rail; a rail that is down stops it.",
    hint="ip link and rdma link; check cable and optics (mlxlink -m), switch port; on InfiniBand the subnet manager.",
)
def test_state(host: Host, arch: Architecture, node: Node, item: str) -> None:
    _, matched = expected_ports_on(host, arch, node, item)

    def state(port: Port) -> str | None:
        if port.trouble:
            return port.trouble
        return "up" if port.reported else None

    expect_ports(matched, "up", state)


@check(
    "nic.interfaces",
    reads="roles.{role}.expect.nics.*.interfaces",
    protects="If rail 0 of one node is cabled to rail 1 of another, traffic crosses the spine or is lost.",
    hint="rdma link; udev gives both names at boot, from the PCI address or the port's MAC address.",
)
def test_interfaces(host: Host, arch: Architecture, node: Node, item: str) -> None:
    nic, matched = expected_ports_on(host, arch, node, item)
    expect_in_order(matched, nic.interfaces, lambda port: port.interface)


@check(
    "nic.slots",
    reads="roles.{role}.expect.nics.*.slots",
    protects="A card in another slot is near another GPU: GPUDirect traffic crosses the CPUs at half the rate.",
    hint="Compare lspci -D with a good node; move the card, or correct its name in the udev rules.",
)
def test_slots(host: Host, arch: Architecture, node: Node, item: str) -> None:
    nic, matched = expected_ports_on(host, arch, node, item)
    expect_in_order(matched, nic.slots, lambda port: port.slot)


@check(
    "nic.numa",
    reads="roles.{role}.expect.nics.*.numa_nodes",
    protects="Ranks are bound to the NUMA node that firmware reports for the port; a wrong one slows every message.",
    hint="cat /sys/class/infiniband/DEVICE/device/numa_node; check the slot and NUMA nodes per socket (BIOS).",
)
def test_numa(host: Host, arch: Architecture, node: Node, item: str) -> None:
    nic, matched = expected_ports_on(host, arch, node, item)
    expect_in_order(matched, nic.numa_nodes, lambda port: port.numa_node)


@check(
    "nic.model",
    reads="roles.{role}.expect.nics.*.model",
    protects="A card of another model has other limits and firmware: one slow rail among eight.",
    hint="Compare lspci -nn -d 15b3: with the delivery note; update-pciids where lspci does not know a name.",
)
def test_model(host: Host, arch: Architecture, node: Node, item: str) -> None:
    devices = pci_devices(host)
    nic, matched = expected_ports_on(host, arch, node, item)
    pattern = nic.model or ""

    def model(port: Port) -> str | None:
        device = devices.get(port.slot or "")
        return device.name if device is not None and device.has_name else None

    judge_ports(matched, pattern, model, lambda name: re.search(pattern, name) is not None)


@check(
    "nic.speed",
    reads="roles.{role}.expect.nics.*.speed_gbps",
    protects="A port at half its rate halves every collective of the job.",
    hint="mlxlink -d DEVICE -m: check cable, optics, speed and breakout of the switch port.",
)
def test_speed(host: Host, arch: Architecture, node: Node, item: str) -> None:
    nic, matched = expected_ports_on(host, arch, node, item)
    values = {port: f"{port.speed_gbps:g} Gb/s" for port in matched.ports if port.speed_gbps and not port.trouble}
    expect_ports(matched, f"{nic.speed_gbps:g} Gb/s", values.get)


@check(
    "nic.link_layer",
    reads="roles.{role}.expect.nics.*.link_layer",
    protects="A port with another link layer does not come up on this network.",
    hint="mlxconfig -d SLOT set LINK_TYPE_P1=1 (InfiniBand) or 2 (Ethernet), then mlxfwreset or a power cycle.",
)
def test_link_layer(host: Host, arch: Architecture, node: Node, item: str) -> None:
    nic, matched = expected_ports_on(host, arch, node, item)
    expect_ports(matched, nic.link_layer, lambda port: port.link_layer)


@check(
    "nic.mtu",
    reads="roles.{role}.expect.nics.*.mtu",
    protects="If one port has a smaller MTU than its peers, large messages hang while ping and ssh work.",
    hint="ip link show PORT and the file that sets its MTU; on InfiniBand the subnet manager's partition sets it.",
)
def test_mtu(host: Host, arch: Architecture, node: Node, item: str) -> None:
    nic, matched = expected_ports_on(host, arch, node, item)
    if nic.link_layer == "Ethernet":
        expect_ports(matched, nic.mtu, lambda port: port.mtu)
        return
    hcas = parse_ibv_devinfo(answered(host, DEVINFO, "ibv_devinfo").body)
    active = {(hca.name, port.number): port.active_mtu_bytes for hca in hcas for port in hca.ports}
    expect_ports(matched, nic.mtu, lambda port: active.get((port.device or "", port.number)))


@check(
    "nic.gid",
    reads="roles.{role}.expect.nics.*.gid_index",
    protects="Programs use one GID index on all nodes; RDMA does not connect on a port with another index.",
    hint="show_gids; a port without an IPv4 address has no such GID, and added and removed addresses shift the index.",
)
def test_gid(host: Host, arch: Architecture, node: Node, item: str) -> None:
    announce(host, RDMA_DEVICES, INTERFACES, GIDS)
    nic, matched = expected_ports_on(host, arch, node, item)
    gids = parse_gids(read(host, GIDS))
    index = nic.gid_index or 0
    values = {port: wrong_gid(port, gids, index) for port in matched.ports}
    judge_ports(matched, f"RoCE v2 with an address as GID {index}", values.get, lambda wrong: wrong == "")


@check(
    "nic.pcie_generation",
    reads="roles.{role}.expect.nics.*.pcie_generation",
    protects="A 400 Gb/s port behind a PCIe 4 link reaches half its line rate.",
    hint="lspci -vv: compare LnkSta with LnkCap of the card and of the port above it; check seat, riser and BIOS.",
)
def test_pcie_generation(host: Host, arch: Architecture, node: Node, item: str) -> None:
    nic, matched = expected_ports_on(host, arch, node, item)
    expect_ports(matched, nic.pcie_generation, lambda port: port.pcie_generation)


@check(
    "nic.pcie_width",
    reads="roles.{role}.expect.nics.*.pcie_width",
    protects="A card trained with half its lanes has half the bandwidth, and reports no error.",
    hint="lspci -vv: compare LnkSta with LnkCap; clean and reseat the card, exchange the riser or the cable.",
)
def test_pcie_width(host: Host, arch: Architecture, node: Node, item: str) -> None:
    nic, matched = expected_ports_on(host, arch, node, item)
    expect_ports(matched, nic.pcie_width, lambda port: port.pcie_width)


@check(
    "nic.max_read_request",
    reads="roles.{role}.expect.nics.*.max_read_request",
    protects="With 512 B a read of GPU memory needs eight times the requests: GPUDirect stays far below line rate.",
    hint="setpci -s SLOT CAP_EXP+8.w: the top nibble is 5 for 4096 B. Lost at boot: set it from a unit.",
)
def test_max_read_request(host: Host, arch: Architecture, node: Node, item: str) -> None:
    devices = pci_devices(host)
    nic, matched = expected_ports_on(host, arch, node, item)
    values = {port: devices[port.slot or ""].max_read_request for port in matched.ports if port.slot in devices}
    expect_ports(matched, nic.max_read_request, values.get)


@check(
    "nic.relaxed_ordering",
    reads="roles.{role}.expect.nics.*.relaxed_ordering",
    protects="Without it, on hosts with strict write ordering, GPUDirect stays far below line rate.",
    hint="setpci -s SLOT CAP_EXP+8.w: bit 4 allows it. Lost at boot: set it from a unit.",
)
def test_relaxed_ordering(host: Host, arch: Architecture, node: Node, item: str) -> None:
    devices = pci_devices(host)
    nic, matched = expected_ports_on(host, arch, node, item)
    values = {port: devices[port.slot or ""].relaxed_ordering for port in matched.ports if port.slot in devices}
    words = {True: "on", False: "off", None: None}
    expect_ports(matched, words[nic.relaxed_ordering], lambda port: words[values.get(port)])


@check(
    "nic.ipoib_mode",
    reads="roles.{role}.expect.nics.*.ipoib_mode",
    protects="Nodes in different IPoIB modes have different MTUs: large messages hang while ping and ssh work.",
    hint="cat /sys/class/net/PORT/mode; enhanced IPoIB (ipoib_enhanced=1) supports datagram mode only.",
)
def test_ipoib_mode(host: Host, arch: Architecture, node: Node, item: str) -> None:
    announce(host, RDMA_DEVICES, INTERFACES, MODES)
    nic, matched = expected_ports_on(host, arch, node, item)
    modes = sysfs_files(host, MODES)
    expect_ports(matched, nic.ipoib_mode, lambda port: _line(modes.get(f"{port.interface}/mode")))


@check(
    "nic.pkeys",
    reads="roles.{role}.expect.nics.*.pkeys",
    protects="A port outside its partition reaches no node of it.",
    hint="cat /sys/class/infiniband/DEVICE/ports/1/pkeys/*; the subnet manager's partitions.conf lists port GUIDs.",
)
def test_pkeys(host: Host, arch: Architecture, node: Node, item: str) -> None:
    announce(host, RDMA_DEVICES, INTERFACES, PKEYS)
    nic, matched = expected_ports_on(host, arch, node, item)
    keys = parse_pkeys(sysfs_files(host, PKEYS))
    tables = {port: keys.get((port.device or "", port.number), frozenset()) for port in matched.ports}
    full = [pkey | FULL_MEMBER for pkey in nic.pkeys]
    words = " and ".join(f"0x{pkey:04x}" for pkey in full)

    def has(port: Port) -> str | None:
        missing = [f"0x{pkey:04x}" for pkey in full if pkey not in tables[port]]
        return None if not tables[port] else f"without {', '.join(missing)}" if missing else words

    expect_ports(matched, words, has)


def _line(lines: tuple[str, ...] | None) -> str | None:
    return lines[0] if lines and len(lines) == 1 and lines[0] else None


@check(
    "nic.max_payload",
    reads="roles.{role}.expect.nics.*.max_payload",
    protects="Small PCIe payloads waste link bandwidth on headers.",
    hint="lspci -vv: compare DevCtl with DevCap of the card and all bridges above; pci=pcie_bus_perf, or the BIOS.",
)
def test_max_payload(host: Host, arch: Architecture, node: Node, item: str) -> None:
    devices = pci_devices(host)
    nic, matched = expected_ports_on(host, arch, node, item)
    values = {port: devices[port.slot or ""].max_payload for port in matched.ports if port.slot in devices}
    expect_ports(matched, nic.max_payload, values.get)


@check(
    "nic.firmware",
    reads="roles.{role}.expect.nics.*.firmware",
    protects="Different firmware means different congestion control and link training from node to node.",
    hint="mlxfwmanager, or flint -d SLOT query; a new image applies after mlxfwreset or a power cycle.",
)
def test_firmware(host: Host, arch: Architecture, node: Node, item: str) -> None:
    nic, matched = expected_ports_on(host, arch, node, item)
    expected = nic.firmware or ""
    without = {
        port: f"ethtool -i {shlex.quote(port.interface)}{STATUS}"
        for port in matched.ports
        if port.firmware is None and port.interface
    }
    announce(host, *without.values())
    values = {port: port.firmware for port in matched.ports}
    for port, command in without.items():
        firmware = parse_ethtool_driver(answered(host, command, "ethtool").body).firmware
        values[port] = firmware.split()[0] if firmware else None
    if not expected.startswith(">="):
        expect_ports(matched, expected, values.get)
        return
    oldest = version_numbers("architecture", expected.removeprefix(">=").strip())
    judge_ports(matched, expected, values.get, lambda version: version_numbers("firmware", version) >= oldest)


def _firmware_query(slot: str, names: str) -> str:
    """Distributions package the same tool as ``mstconfig``."""
    query = f"-d {shlex.quote(slot)} -e query {names}"
    return (
        "if command -v mlxconfig >/dev/null || ! command -v mstconfig >/dev/null;"
        f" then mlxconfig {query}; else mstconfig {query}; fi{STATUS}"
    )


@check(
    "nic.firmware_settings",
    reads="roles.{role}.expect.nics.*.firmware_settings",
    protects="A pending firmware setting changes the node's behaviour at its next power cycle.",
    hint="mlxconfig -d SLOT -e query; set it, then mlxfwreset or a power cycle: a warm boot may not apply it.",
)
def test_firmware_settings(host: Host, arch: Architecture, node: Node, item: str) -> None:
    nic, matched = expected_ports_on(host, arch, node, item)
    declared = nic.firmware_settings or {}
    names = " ".join(map(shlex.quote, declared))
    commands = {port: _firmware_query(port.slot, names) for port in matched.ports if port.slot}
    announce(host, *commands.values())

    def in_force(port: Port) -> str | None:
        if port not in commands:
            return None
        firmware = parse_mlxconfig(answered(host, commands[port], "mlxconfig or mstconfig").body)
        wrong, unknown = [], False
        for name, value in declared.items():
            setting = firmware.settings.get(name)
            if setting is None or setting.current is None:
                unknown = True
                continue
            if not same_value(setting.current, value):
                wrong.append(f"{name} {setting.current}")
            elif not same_value(setting.next_boot, value):
                wrong.append(f"{name} {setting.next_boot} from the next boot")
        return " and ".join(wrong) or (None if unknown else "as expected")

    expected = " and ".join(f"{name} {value}" for name, value in declared.items())
    judge_ports(matched, expected, in_force, lambda settings: settings == "as expected")
