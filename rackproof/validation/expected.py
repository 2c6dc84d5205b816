"""The architecture's expectations of a node, and the items of its checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rackproof.core.architecture import Architecture, Cpu, Drives, Expectation, Memory, Nic, Pcie
from rackproof.core.architecture.expectations import NOTHING, role_with
from rackproof.core.architecture.services import Containers, Slurm, asks
from rackproof.core.architecture.storage import STORAGE_CHECKS
from rackproof.core.rack import Node
from rackproof.remote.recording import Unmeasured


def hardware(arch: Architecture, node: Node, part: str) -> Expectation | None:
    """Expectations of the node's role, if they include this part: ``cpu``, ``memory``, ``nics``, ``drives``."""
    role = role_with(arch, node.groups, part)
    return arch.roles[role].expect if role else None


def items_by_key(key: str, arch: Architecture, node: Node) -> tuple[str, ...]:
    """Items of a check on a node where the architecture sets the key that it reads, ``("",)`` for a key without items.

    Keys of GPUs and of the fabric as a whole concern nodes of role ``gpu``.
    """
    section, _, name = key.partition(".")
    if section == "roles":
        return _items_of_hardware(key.removeprefix("roles.{role}.expect."), arch, node)
    if section == "storage":
        return storage_items(name.removeprefix("*."), arch, node)
    if section in ("slurm", "containers"):
        return _items_of_service(getattr(arch, section), name, node)
    if section in ("gpu", "fabric") and "gpu" not in node.groups:
        return ()
    if section == "gpu" and not (arch.gpu and arch.gpu.count):
        return ()
    value: Any = arch
    for step in key.split("."):
        value = getattr(value, step, None)
    return () if value in NOTHING else ("",)


def _items_of_hardware(key: str, arch: Architecture, node: Node) -> tuple[str, ...]:
    """``cpu.model``: one item for the node; ``nics.*.mtu``: purposes of ports, or uses of drives, that set it."""
    part, _, name = key.partition(".")
    expected = hardware(arch, node, part)
    if expected is None:
        return ()
    if not name.startswith("*."):
        return () if getattr(getattr(expected, part), name) in NOTHING else ("",)
    entries: Iterable[Any] = getattr(expected, part)
    return tuple(_name(entry) for entry in entries if getattr(entry, name.removeprefix("*.")) not in NOTHING)


def _items_of_service(service: Slurm | Containers | None, key: str, node: Node) -> tuple[str, ...]:
    if service is None or set(service.roles).isdisjoint(node.groups) or (key and not asks(service, key)):
        return ()
    value = getattr(service, key) if key else None
    return tuple(value) if isinstance(value, dict | tuple) else ("",)


def storage_items(key: str, arch: Architecture, node: Node) -> tuple[str, ...]:
    """Names of the storage that a node mounts and that sets ``key``."""
    has_check = STORAGE_CHECKS[key][1]
    return tuple(
        name
        for name, storage in arch.storage.items()
        if set(storage.client_roles) & set(node.groups) and has_check(storage)
    )


def cpu_of(arch: Architecture, node: Node) -> Cpu:
    """Raises Unmeasured where the architecture expects nothing."""
    expected = hardware(arch, node, "cpu")
    if expected is None or expected.cpu is None:
        raise Unmeasured("the architecture specifies no processors")
    return expected.cpu


def memory_of(arch: Architecture, node: Node) -> Memory:
    """Raises Unmeasured where the architecture expects nothing."""
    expected = hardware(arch, node, "memory")
    if expected is None or expected.memory is None:
        raise Unmeasured("the architecture specifies no memory")
    return expected.memory


def pcie_of(arch: Architecture, node: Node) -> Pcie:
    """Raises Unmeasured where the architecture expects nothing."""
    expected = hardware(arch, node, "pcie")
    if expected is None or expected.pcie is None:
        raise Unmeasured("the architecture specifies no PCI devices")
    return expected.pcie


def nic_of(arch: Architecture, node: Node, purpose: str) -> Nic:
    """Raises Unmeasured where the architecture expects nothing."""
    expected = hardware(arch, node, "nics")
    for nic in expected.nics if expected else ():
        if nic.purpose == purpose:
            return nic
    raise Unmeasured(f"the architecture specifies no {purpose} ports")


def drives_of(arch: Architecture, node: Node, use: str) -> Drives:
    """Raises Unmeasured where the architecture expects nothing."""
    expected = hardware(arch, node, "drives")
    for drives in expected.drives if expected else ():
        if drives.use == use:
            return drives
    raise Unmeasured(f"the architecture specifies no {use} drives")


def _name(entry: Nic | Drives) -> str:
    return entry.purpose if isinstance(entry, Nic) else entry.use
