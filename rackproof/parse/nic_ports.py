"""Network ports as the kernel describes them in /sys.

A port belongs to an RDMA device, a network interface, or (usually) both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from rackproof.parse.answer import parse_answer
from rackproof.parse.errors import ParseError
from rackproof.parse.memory import remembered
from rackproof.parse.pci_links import SLOT, generation, link_width
from rackproof.parse.sysfs import files_in, sysfs_command
from rackproof.parse.text import excerpt, matched, real

_FUNCTION: Final = tuple(
    f"*/device/{name}" for name in ("uevent", "numa_node", "current_link_speed", "current_link_width", "physfn/vendor")
)
RDMA_DEVICES: Final = sysfs_command(
    "/sys/class/infiniband",
    "*/fw_ver",
    *(f"*/ports/*/{name}" for name in ("state", "phys_state", "rate", "link_layer", "lid", "sm_lid")),
    "*/ports/*/gid_attrs/ndevs/0",
    "*/device/net/*/ifindex",
    *_FUNCTION,
)
INTERFACES: Final = sysfs_command(
    "/sys/class/net",
    *(f"*/{name}" for name in ("ifindex", "type", "mtu", "operstate", "carrier", "carrier_down_count", "speed")),
    *_FUNCTION,
)
ETHERNET, INFINIBAND = "1", "32"
"""Types of interfaces, as the kernel numbers them."""


@dataclass(frozen=True, slots=True)
class Port:
    """One port. A value of None is not reported."""

    device: str | None = None
    """RDMA device, ``mlx5_0``."""
    number: int = 1
    """Port number on that device."""
    interface: str | None = None
    slot: str | None = None
    """PCI address."""
    driver: str | None = None
    """Driver of the PCI device, ``mlx5_core``."""
    virtual: bool = False
    """A virtual function, or no PCI device at all."""
    link_layer: str | None = None
    rdma_state: str | None = None
    """ACTIVE, DOWN …"""
    physical_state: str | None = None
    """LinkUp, Disabled …"""
    operstate: str | None = None
    carrier: bool | None = None
    speed_gbps: float | None = None
    mtu: int | None = None
    """Bytes, of the interface."""
    lid: int | None = None
    sm_lid: int | None = None
    """Local identifier of the subnet manager; 0 without a subnet manager."""
    firmware: str | None = None
    numa_node: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    link_downs: int | None = None
    """Carrier losses of the interface."""

    @property
    def name(self) -> str:
        if self.device is None:
            return self.interface or self.slot or "?"
        return self.device if self.number == 1 else f"{self.device}/{self.number}"

    @property
    def trouble(self) -> str | None:
        """Why the port cannot carry traffic; None when no reason is known."""
        if self.rdma_state not in (None, "ACTIVE") or self.physical_state not in (None, "LinkUp"):
            return f"{self.rdma_state}/{self.physical_state}"
        if self.carrier is False or self.operstate not in _CARRIES:
            return f"{self.operstate}, {'no ' if not self.carrier else ''}carrier"
        if self.link_layer == "InfiniBand" and (self.sm_lid == 0 or self.lid == 0):
            return "no subnet manager"
        return None

    @property
    def reported(self) -> bool:
        """The kernel reports everything that ``trouble`` reads."""
        values: list[object] = []
        if self.device is not None:
            values += [self.rdma_state, self.physical_state]
            values += [self.lid, self.sm_lid] if self.link_layer == "InfiniBand" else []
        if self.interface is not None:
            values += [self.operstate, self.carrier]
        return bool(values) and None not in values


_CARRIES: Final = (None, "up", "unknown")
"""Operational states of an interface with a carrier; drivers that do not report theirs have ``unknown``."""


@remembered(8)  # about twenty checks of a node read the same two outputs
def parse_ports(rdma: str, interfaces: str) -> tuple[Port, ...]:
    """Answers to ``RDMA_DEVICES`` and ``INTERFACES``; interfaces without RDMA come after the RDMA devices."""
    devices, nets = _folders(rdma), _folders(interfaces)
    if "lo" not in nets:
        raise ParseError("grep", "/sys/class/net: no interfaces, not even lo")
    ports = [port for name, files in sorted(devices.items(), key=_natural) for port in _rdma_ports(name, files, nets)]
    taken = {port.interface for port in ports}
    ports += [
        _with_interface(Port(), name, files)
        for name, files in sorted(nets.items(), key=_natural)
        if name not in taken and "device/uevent" in files
    ]
    return tuple(ports)


def _natural(entry: tuple[str, object]) -> list[int | str]:
    return [int(word) if word.isdigit() else word for word in re.split(r"(\d+)", entry[0])]


def _folders(output: str) -> dict[str, dict[str, tuple[str, ...]]]:
    devices: dict[str, dict[str, tuple[str, ...]]] = {}
    for path, lines in files_in(parse_answer("grep", output)).items():
        name, _, rest = path.partition("/")
        devices.setdefault(name, {})[rest] = lines
    return devices


def _rdma_ports(
    device: str, files: Mapping[str, tuple[str, ...]], nets: Mapping[str, Mapping[str, tuple[str, ...]]]
) -> Iterable[Port]:
    numbers = sorted({int(match[1]) for path in files if (match := re.match(r"ports/(\d+)/", path))})
    if not numbers:
        raise ParseError("grep", f"/sys/class/infiniband/{device} has no port")
    below = [path.split("/")[2] for path in files if path.startswith("device/net/")]
    for number in numbers:
        here = f"ports/{number}/"
        interface = _one(files, f"{here}gid_attrs/ndevs/0") or (below[0] if len(below) == len(numbers) == 1 else None)
        port = Port(
            device=device,
            number=number,
            link_layer=_one(files, f"{here}link_layer"),
            rdma_state=_state(_one(files, f"{here}state")),
            physical_state=_state(_one(files, f"{here}phys_state")),
            speed_gbps=_rate(_one(files, f"{here}rate")),
            lid=_hexadecimal(_one(files, f"{here}lid")),
            sm_lid=_hexadecimal(_one(files, f"{here}sm_lid")),
            firmware=_one(files, "fw_ver"),
        )
        port = _with_function(port, files)
        if interface is not None and interface in nets:
            port = _with_interface(port, interface, nets[interface])
        yield port


def _with_function(port: Port, files: Mapping[str, tuple[str, ...]]) -> Port:
    event = dict(line.partition("=")[::2] for line in files.get("device/uevent", ()))
    slot = event.get("PCI_SLOT_NAME")
    if slot is not None and not SLOT.fullmatch(slot):
        raise ParseError("grep", f"expected a PCI address, got {excerpt(slot)}")
    numa = _one(files, "device/numa_node")
    return replace(
        port,
        slot=slot,
        driver=event.get("DRIVER"),
        virtual=slot is None or "device/physfn/vendor" in files,
        numa_node=_number(numa) if numa not in (None, "-1") else None,
        pcie_generation=generation(_one(files, "device/current_link_speed")),
        pcie_width=link_width(_one(files, "device/current_link_width")),
    )


def _with_interface(port: Port, name: str, files: Mapping[str, tuple[str, ...]]) -> Port:
    if port.device is None:
        port = _with_function(port, files)
        kind = _one(files, "type")
        port = replace(port, link_layer={ETHERNET: "Ethernet", INFINIBAND: "InfiniBand"}.get(kind or ""))
    carrier, speed = _one(files, "carrier"), _one(files, "speed")
    if port.link_layer == "Ethernet" and speed is not None:
        # Mb/s; -1 while the link is down, when RDMA reports a rate all the same
        port = replace(port, speed_gbps=int(speed) / 1000 if re.fullmatch(r"[1-9]\d*", speed) else None)
    return replace(
        port,
        interface=name,
        operstate=_one(files, "operstate"),
        carrier={"1": True, "0": False}.get(carrier or ""),
        mtu=_number(_one(files, "mtu")),
        link_downs=_number(_one(files, "carrier_down_count")),
    )


def _one(files: Mapping[str, tuple[str, ...]], path: str) -> str | None:
    lines = files.get(path, ())
    if len(lines) > 1:
        raise ParseError("grep", f"{path} has {len(lines)} lines")
    return lines[0] if lines and lines[0] else None


def _state(text: str | None) -> str | None:
    """``4: ACTIVE``"""
    return text.rpartition(": ")[2] if text else None


def _rate(text: str | None) -> float | None:
    """``400 Gb/sec (4X NDR)``"""
    if text is None:
        return None
    match = matched("grep", r"([\d.]+) Gb/sec.*", text, "a rate")
    return real("grep", "rate", match[1])


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"\d{1,9}", text) else None


def _hexadecimal(text: str | None) -> int | None:
    return int(text, 16) if text and re.fullmatch(r"0x[0-9a-f]{1,8}", text) else None
