"""Members that must have a number, from the run's nodes and the architecture, never from the measurements.

Every node of a criterion has ``gpu.count`` GPUs, and the drives of its role by use. Its NICs are the ports of its roles
with ``compute`` in their purpose, or, where no role lists such ports, one per rail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from rackproof.core.architecture import Architecture
from rackproof.core.drives import declared_drives, drive_names
from rackproof.core.evidence import NodeInfo, Scope, subject_of
from rackproof.core.grouping import grouped
from rackproof.core.metrics import GDS
from rackproof.core.rack import fold
from rackproof.core.wording import some

COMPUTE = "compute"
"""Part of the purpose of ports that carry collectives."""

_NAMED = 4
"""Maximum number of pairs named in a message."""

_SEVERAL = {
    Scope.NODE: "nodes", Scope.GPU: "GPUs", Scope.NIC: "NICs", Scope.DRIVE: "drives", Scope.PAIR: "pairs",
    Scope.RACK: "racks",
}  # fmt: skip
_DEVICES = {
    Scope.GPU: "GPU (gpu.count)",
    Scope.NIC: "NIC (fabric.rails, or compute ports of its role)",
    Scope.DRIVE: "drive of this use (expect.drives of its role)",
}
"""Devices of a node and the keys that give their number."""


def node_groups(nodes: Iterable[NodeInfo]) -> dict[str, tuple[str, ...]]:
    """Names of the nodes of every group, in inventory order; ``all`` is every node."""
    every = list(nodes)
    groups = grouped((group, node.name) for node in every for group in dict.fromkeys(node.groups))
    return {group: tuple(names) for group, names in groups.items()} | {"all": tuple(node.name for node in every)}


def subject_name(scope: Scope, members: Sequence[str]) -> str:
    """``subject_of`` with a fast path for a single member; called several times per verdict."""
    return members[0] if len(members) == 1 and scope is not Scope.RACK else subject_of(scope, members)


class Members:
    """Members of a rack by scope and group."""

    def __init__(self, architecture: Architecture, nodes: Sequence[NodeInfo]) -> None:
        self.groups: Mapping[str, tuple[str, ...]] = node_groups(nodes)
        rails = architecture.fabric.rails if architecture.fabric else 0
        self._gpus = architecture.gpu.count if architecture.gpu else 0
        self.simulated = frozenset(node.name for node in nodes if node.simulated_gpus)
        """Nodes that replay recordings instead of having GPUs."""
        self._drives = {node.name: declared_drives(architecture, node.groups) for node in nodes}
        self._nics = {node.name: _compute_ports(architecture, node) or rails for node in nodes}

    def group(self, name: str) -> tuple[str, ...]:
        return self.groups.get(name, ())

    def replayed(self, metric: str, scope: Scope, members: Sequence[str]) -> bool:
        """Whether a GPU number comes from a node with simulated GPUs."""
        if scope not in (Scope.GPU, Scope.NODE) or not (metric.startswith("gpu.") or metric == GDS):
            return False
        return any(member.partition("/")[0] in self.simulated for member in members)

    def subjects(self, scope: Scope, names: Sequence[str], use: str = "") -> Iterator[tuple[str, ...]]:
        """Members of every subject of ``scope``: nodes, devices, unordered pairs, the rack. ``use``: of drives."""
        match scope:
            case Scope.NODE:
                yield from ((name,) for name in names)
            case Scope.GPU | Scope.NIC | Scope.DRIVE:
                for name in names:
                    yield from ((device,) for device in self.devices_of(scope, name, use))
            case Scope.PAIR:
                yield from combinations(names, 2)
            case Scope.RACK:
                yield tuple(names)

    def devices_of(self, scope: Scope, node: str, use: str = "") -> tuple[str, ...]:
        """Devices that a node must have: ``gpu-01/gpu0``, ``gpu-01/gpu1`` …; drives of one use, or of all."""
        if scope is Scope.DRIVE:
            uses = self._drives.get(node, {})
            return tuple(
                name
                for key, drives in uses.items()
                if use in ("", key)
                for name in drive_names(node, key, drives.count)
            )
        count = self._gpus if scope is Scope.GPU else self._nics.get(node, 0)
        return tuple(f"{node}/{scope.value}{number}" for number in range(count))

    def bare(self, scope: Scope, names: Sequence[str], use: str = "") -> tuple[str, ...]:
        """Nodes without devices of ``scope``."""
        if scope not in _DEVICES:
            return ()
        return tuple(name for name in names if not self.devices_of(scope, name, use))

    def nothing(self, scope: Scope, names: Sequence[str], use: str = "") -> str | None:
        """Why subjects of ``scope`` are missing in a group; None if it is complete."""
        if not names:
            return "no node in the group"
        if scope is Scope.PAIR and len(names) < 2:
            return f"{fold(names)} is the only node, a pair needs two"
        if bare := self.bare(scope, names, use):
            return no_device(scope, bare)
        return None


def no_device(scope: Scope, bare: Sequence[str]) -> str:
    return f"by the architecture {fold(bare)} {'has' if len(bare) == 1 else 'have'} no {_DEVICES[scope]}"


def several(scope: Scope) -> str:
    """Plural of a scope: ``nodes``, ``GPUs`` …"""
    return _SEVERAL[scope]


def named(scope: Scope, listed: Sequence[str]) -> str:
    """Members for a message: nodes and devices folded, of pairs the first few."""
    if scope is not Scope.PAIR:
        return fold(listed)
    return some(listed, _NAMED)


def _compute_ports(architecture: Architecture, node: NodeInfo) -> int:
    """Number of compute ports of a node; the largest of its roles."""
    nics = (role.expect.nics for role in architecture.roles_of(node.groups))
    return max((sum(nic.count for nic in of_role if COMPUTE in nic.purpose) for of_role in nics), default=0)
