"""What the architecture expects of the node at hand, for checks of its hardware."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rackproof.core.architecture import Architecture, Cpu, Drives, Expectation, Memory, Nic, Pcie
from rackproof.core.architecture.expectations import NOTHING, role_with
from rackproof.core.rack import Node, Rack
from rackproof.remote.recording import Unmeasured


def hardware(arch: Architecture, node: Node, part: str) -> Expectation | None:
    """What the node's role expects, when it says something of this part: ``cpu``, ``memory``, ``nics``, ``drives``."""
    role = role_with(arch, node.groups, part)
    return arch.roles[role].expect if role else None


def says(part: str, key: str) -> Callable[[Architecture, Node, Rack], bool]:
    """For ``when``: the node's role sets this key of ``cpu``, ``memory`` or ``pcie``."""

    def applies(arch: Architecture, node: Node, rack: Rack) -> bool:
        expected = hardware(arch, node, part)
        return expected is not None and getattr(getattr(expected, part), key) not in NOTHING

    return applies


def named(part: str, key: str) -> Callable[[Architecture, Node, Rack], Iterable[str]]:
    """For ``each``: purposes of ``nics``, or uses of ``drives``, for which the node's role sets this key."""

    def names(arch: Architecture, node: Node, rack: Rack) -> list[str]:
        expected = hardware(arch, node, part)
        entries: Iterable[Any] = getattr(expected, part) if expected else ()
        return [_name(entry) for entry in entries if getattr(entry, key) not in NOTHING]

    return names


def cpu_of(arch: Architecture, node: Node) -> Cpu:
    """Raises Unmeasured where the architecture expects nothing."""
    expected = hardware(arch, node, "cpu")
    if expected is None or expected.cpu is None:
        raise Unmeasured("the architecture says nothing about processors")
    return expected.cpu


def memory_of(arch: Architecture, node: Node) -> Memory:
    """Raises Unmeasured where the architecture expects nothing."""
    expected = hardware(arch, node, "memory")
    if expected is None or expected.memory is None:
        raise Unmeasured("the architecture says nothing about memory")
    return expected.memory


def pcie_of(arch: Architecture, node: Node) -> Pcie:
    """Raises Unmeasured where the architecture expects nothing."""
    expected = hardware(arch, node, "pcie")
    if expected is None or expected.pcie is None:
        raise Unmeasured("the architecture says nothing about PCI devices")
    return expected.pcie


def nic_of(arch: Architecture, node: Node, purpose: str) -> Nic:
    """Raises Unmeasured where the architecture expects nothing."""
    expected = hardware(arch, node, "nics")
    for nic in expected.nics if expected else ():
        if nic.purpose == purpose:
            return nic
    raise Unmeasured(f"the architecture says nothing about {purpose} ports")


def drives_of(arch: Architecture, node: Node, use: str) -> Drives:
    """Raises Unmeasured where the architecture expects nothing."""
    expected = hardware(arch, node, "drives")
    for drives in expected.drives if expected else ():
        if drives.use == use:
            return drives
    raise Unmeasured(f"the architecture says nothing about {use} drives")


def _name(entry: Nic | Drives) -> str:
    return entry.purpose if isinstance(entry, Nic) else entry.use
