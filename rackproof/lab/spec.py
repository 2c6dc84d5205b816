"""Nodes of the virtual rack, and the QEMU command line of each. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Accel = Literal["kvm", "tcg"]

FABRIC_PREFIX = "10.77"
"""Rail k is 10.77.k.0/24; used inside the virtual machines only."""


@dataclass(frozen=True, slots=True)
class Drive:
    """An emulated NVMe drive; ``serial`` is part of its name in /dev/disk/by-id."""

    serial: str
    gib: float


@dataclass(frozen=True, slots=True)
class NodeSpec:
    name: str
    role: Literal["gpu", "storage"]
    index: int
    """Position in the rack from 1; determines addresses and MACs."""
    vcpus: int
    memory_mib: int
    numa_nodes: int
    rails: int
    drives: tuple[Drive, ...]
    release: str
    """Debian release of its image, e.g. ``bookworm``."""

    def mac(self, network: str, rail: int = 0) -> str:
        """Locally administered, stable over boots. ``network`` is ``mgmt`` or ``fabric``."""
        kind = {"mgmt": 0x10, "fabric": 0x20}[network]
        return f"52:54:77:{kind + rail:02x}:00:{self.index:02x}"

    def fabric_address(self, rail: int = 0) -> str:
        """With prefix length, e.g. ``10.77.0.11/24``."""
        return f"{FABRIC_PREFIX}.{rail}.{10 + self.index}/24"

    def second_address(self, rail: int = 0) -> str:
        """Second address of a server on a rail: several addresses for one mount, without a second NIC."""
        return f"{FABRIC_PREFIX}.{rail}.{110 + self.index}/24"


@dataclass(frozen=True, slots=True)
class Wiring:
    """Ports on 127.0.0.1 that a rack occupies."""

    ssh_port: dict[str, int]
    fabric_port: int
    """UDP port of the first rail's multicast group; rail k uses the group's address + k."""


@dataclass(frozen=True, slots=True)
class RackSpec:
    nodes: tuple[NodeSpec, ...]
    accel: Accel
    images: dict[str, str]
    """Name of the image by release."""
    wiring: Wiring
    extra: dict[str, Any] = field(default_factory=dict)

    def node(self, name: str) -> NodeSpec | None:
        return next((node for node in self.nodes if node.name == name), None)

    def to_json(self) -> dict[str, Any]:
        return {"version": 2, **asdict(self)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> RackSpec:
        if data["version"] == 1:  # of one release, whose image has been renamed since
            release = data["image"].partition("-")[0]
            with_release = [{**node, "release": release} for node in data["nodes"]]
            data = {**data, "nodes": with_release, "images": {release: data["image"]}}
        nodes = tuple(
            NodeSpec(**{**node, "drives": tuple(Drive(**drive) for drive in node["drives"])}) for node in data["nodes"]
        )
        return RackSpec(nodes, data["accel"], data["images"], Wiring(**data["wiring"]), data.get("extra", {}))


SCRATCH = (Drive("rpscratch0", 0.5), Drive("rpscratch1", 0.5))
"""Members of a GPU node's local array."""


def plan_nodes(
    gpu_nodes: int,
    storage_nodes: int,
    gpu_memory_mib: int,
    storage_memory_mib: int,
    rails: int,
    release_of: Callable[[str], str],
) -> tuple[NodeSpec, ...]:
    """Storage nodes first, so that they are up when clients mount. ``release_of`` gets a node's name."""
    drives = {"storage": (Drive("rpnfs", 4), Drive("rpceph", 6)), "gpu": (Drive("rplocal", 4), *SCRATCH)}

    def node(role: Literal["gpu", "storage"], k: int) -> NodeSpec:
        name = f"{role}-{k:02d}"
        index, memory_mib, numa_nodes = (10 + k, gpu_memory_mib, 2) if role == "gpu" else (k, storage_memory_mib, 1)
        return NodeSpec(name, role, index, 2, memory_mib, numa_nodes, rails, drives[role], release_of(name))

    storage = [node("storage", k) for k in range(1, storage_nodes + 1)]
    return (*storage, *(node("gpu", k) for k in range(1, gpu_nodes + 1)))


def multicast_group(seed: str, rail: int) -> str:
    """An address in the administratively scoped block 239/8, with high probability unlike other checkouts'."""
    digest = hashlib.sha256(seed.encode()).digest()
    return f"239.{192 + digest[0] % 60}.{digest[1]}.{(digest[2] % 240) + 1 + rail}"


SLOW_EMULATED = ("erms", "la57", "pku", "smap", "smep")
"""Features of a processor that cost an emulated guest time. Without them its kernel copies words, not bytes (erms),
walks four levels of page tables, not five (la57), and changes no state around each copy from or to a program. A boot
takes a quarter less time, random reads from memory are twice as many."""


def accel_arguments(accel: Accel) -> list[str]:
    """One thread for each processor. ``thread=single`` is a quarter faster on few cores, but of 1.2 million reads of an
    emulated NVMe drive 30 never ended (QEMU 7.2), and none of ten million with a thread each."""
    if accel == "kvm":
        return ["-accel", "kvm", "-cpu", "host"]
    return ["-accel", "tcg,thread=multi", "-cpu", ",-".join(("max", *SLOW_EMULATED))]


def qemu_command(
    node: NodeSpec, rack: RackSpec, seed: str, kernel: Path, initrd: str, arguments: list[str]
) -> list[str]:
    """Command line of one node. Paths are relative to the node's folder, where QEMU starts.

    Fabric NICs have fixed PCI slots: interface names depend on them, and an added drive must not change these.
    """
    command = [
        "qemu-system-x86_64", "-name", node.name, "-M", "q35", *accel_arguments(rack.accel),
        "-smp", str(node.vcpus), "-m", str(node.memory_mib), "-nodefaults", "-no-user-config", "-display", "none",
        "-kernel", str(kernel), "-initrd", initrd, "-append", " ".join(arguments),
        "-chardev", "socket,id=console,path=console.sock,server=on,wait=off,logfile=console.log,logappend=on",
        "-serial", "chardev:console",
        "-qmp", "unix:qmp.sock,server=on,wait=off",
        "-device", "virtio-rng-pci,addr=0x8",
        "-drive", "if=none,id=root,file=root.qcow2,format=qcow2,cache=unsafe,discard=unmap",
        "-device", "virtio-blk-pci,drive=root,addr=0x2",
        "-netdev", f"user,id=mgmt,hostfwd=tcp:127.0.0.1:{rack.wiring.ssh_port[node.name]}-:22",
        "-device", f"virtio-net-pci,netdev=mgmt,mac={node.mac('mgmt')},addr=0x3",
    ]  # fmt: skip
    if node.numa_nodes > 1:
        share = node.memory_mib // node.numa_nodes
        for k in range(node.numa_nodes):
            size = share if k < node.numa_nodes - 1 else node.memory_mib - share * (node.numa_nodes - 1)
            first = node.vcpus * k // node.numa_nodes
            last = node.vcpus * (k + 1) // node.numa_nodes - 1
            command += ["-object", f"memory-backend-ram,id=mem{k},size={size}M"]
            command += ["-numa", f"node,nodeid={k},memdev=mem{k},cpus={first}-{last}"]
    for rail in range(node.rails):
        group = f"{multicast_group(seed, rail)}:{rack.wiring.fabric_port}"
        command += ["-netdev", f"socket,id=fabric{rail},mcast={group},localaddr=127.0.0.1"]
        command += [
            "-device",
            f"virtio-net-pci,netdev=fabric{rail},mac={node.mac('fabric', rail)},addr={0x10 + rail:#x},host_mtu=9000",
        ]
    for k, drive in enumerate(node.drives):
        command += [
            "-drive",
            f"if=none,id={drive.serial},file={drive.serial}.raw,format=raw,cache=writeback,discard=unmap",
        ]
        command += ["-device", f"nvme,serial={drive.serial},drive={drive.serial},addr={0x18 + k:#x}"]
    return command
