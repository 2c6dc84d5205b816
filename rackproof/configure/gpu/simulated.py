"""Simulated GPUs: the output of ``nvidia-smi`` for them, and a stand-in for ``gdsio`` where a profile asks for it.

Written to the format of nvidia-smi, not recorded from a device: the values come from the architecture, identifiers
follow from the node's name, counters are zero and everything that a machine would measure is a constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from rackproof.configure.files import Entry
from rackproof.configure.shared_files import rendered
from rackproof.configure.site import Site
from rackproof.configure.units import Unit
from rackproof.core.architecture import Gpu
from rackproof.core.topology import NAMES
from rackproof.parse.identity import SIMULATED_GPUS

RECORDINGS = "/usr/local/share/rackproof/simulated-gpu"
GDSIO = "/usr/local/bin/gdsio"
DEVICE = "/dev/rackproof-gpu"
"""Prefix of the devices, followed by the number of the GPU; nothing answers at them."""

_NAMESPACE = UUID("6f1d3c6e-50c3-5f0e-9b7a-3a8f4f1f6f10")
# Buses of an eight-GPU baseboard; a rack with more of them a node counts on from there.
_BUSES = (0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB)

NVLINKS = 18
NVLINK_GB_PER_S = "26.562"
DRIVER_IF_UNSAID = "580.95.05"

# Two sockets with 56 cores each, as servers with eight H200 have them; the first half of the GPUs is at the first.
_CPUS = ("0-55,112-167", "56-111,168-223")


@dataclass(frozen=True, slots=True)
class SimulatedGpu:
    index: int
    uuid: str
    serial: str
    bus: str
    """Two hexadecimal digits, upper case."""
    module_id: int
    numa_node: int
    cpus: str
    """Kernel list of the processors near it."""
    paths: tuple[str, ...]
    """Connection to every GPU of the node in order, as ``nvidia-smi topo -m`` prints it."""

    @property
    def bus_id(self) -> str:
        return f"00000000:{self.bus}:00.0"


def simulated_gpus(node: str, gpu: Gpu) -> tuple[SimulatedGpu, ...]:
    """The GPUs of a node; the same on every run, different on every node."""
    return tuple(
        SimulatedGpu(
            index=index,
            uuid=f"GPU-{uuid5(_NAMESPACE, f'{node}/{index}')}",
            serial=f"{1650000000000 + uuid5(_NAMESPACE, f'{node}/{index}/serial').int % 10**9}",
            bus=f"{_BUSES[index] if index < len(_BUSES) else 0xDC + index - len(_BUSES):02X}",
            module_id=index % len(_BUSES) + 1,
            numa_node=_socket(index, gpu),
            cpus=_CPUS[_socket(index, gpu)],
            paths=tuple(_path(index, peer, gpu) for peer in range(gpu.count)),
        )
        for index in range(gpu.count)
    )


def _socket(index: int, gpu: Gpu) -> int:
    return index * len(_CPUS) // gpu.count


def _path(index: int, peer: int, gpu: Gpu) -> str:
    """NVLinks of the declared topology; all to all where none is declared, or one of another size."""
    if index == peer:
        return " X "
    declared = NAMES.get(gpu.topology or "")
    links = NVLINKS if declared is None or declared.gpus != gpu.count else declared.links[index][peer]
    return f"NV{links}" if links else "NODE" if _socket(index, gpu) == _socket(peer, gpu) else "SYS"


def cuda_version(driver: str) -> str:
    """The CUDA version that a driver branch comes with; the newest known for a branch that is not listed."""
    branches = {"535": "12.2", "550": "12.4", "560": "12.6", "565": "12.7", "570": "12.8", "575": "12.9", "580": "13.0"}
    return branches.get(driver.split(".")[0], "13.0")


# What a machine would measure is constant in a replay; the time shows that it is one.
TIMESTAMP = "Thu Jan  1 00:00:00 1970"
POWER_W = 78
POWER_CAP_W = 700
DEVICES = "/etc/tmpfiles.d/rackproof-simulated-gpu.conf"
DEVICES_UNIT = "systemd-tmpfiles-setup-dev.service"


def files(site: Site, declared: Gpu) -> tuple[Entry, ...]:
    driver = (declared.driver or DRIVER_IF_UNSAID).removeprefix(">=").strip()
    values: dict[str, Any] = {
        "gpus": simulated_gpus(site.node.name, declared),
        "declared": declared,
        "driver": driver,
        "cuda": cuda_version(driver),
        "ecc": declared.ecc or "Enabled",
        "persistence": declared.persistence or "Enabled",
        "pcie_generation": declared.pcie_generation or 5,
        "pcie_width": declared.pcie_width or 16,
        "nvlinks": NVLINKS,
        "nvlink_gb_per_s": NVLINK_GB_PER_S,
        "timestamp": TIMESTAMP,
        "power_w": POWER_W,
        "power_cap_w": POWER_CAP_W,
    }
    answers = [
        rendered(f"{RECORDINGS}/{name}", **values)
        for name in ("table.txt", "query.xml", "list.txt", "topo.txt", "nvlink.txt", "nvlink-errors.txt")
    ]
    measures = any(own.storage and own.storage.gds for own in site.architecture.profiles.values())
    return (
        *answers,
        *([rendered(GDSIO, mode="755")] if measures else []),
        rendered(SIMULATED_GPUS, mode="755", recordings=RECORDINGS),
        rendered(DEVICES, restart=(DEVICES_UNIT,), device=DEVICE, count=declared.count),
    )


def units(declared: Gpu) -> tuple[Unit, ...]:
    return (Unit(DEVICES_UNIT, enabled=None, proof=f"test -c {DEVICE}{declared.count - 1}"),)
