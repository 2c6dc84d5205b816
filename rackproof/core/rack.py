"""A rack as the inventory describes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetParseError


@dataclass(frozen=True, slots=True)
class Node:
    """One machine. ``groups`` are pyinfra's groups in inventory order, ``all`` excluded."""

    name: str
    groups: tuple[str, ...]
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def simulated_gpus(self) -> bool:
        """True where device tools are replayed recordings instead of a driver's answers."""
        return bool(self.data.get("simulated_gpus"))

    @property
    def virtual(self) -> bool:
        return bool(self.data.get("virtual"))

    def fabric_address(self, rail: int = 0) -> str | None:
        """IPv4 address (no prefix length) on the given rail, or None when the inventory has none."""
        addresses = self.data.get("fabric_addresses") or ()
        return str(addresses[rail]).split("/")[0] if rail < len(addresses) else None

    @property
    def server_addresses(self) -> tuple[str, ...]:
        """All addresses that it serves on: rail by rail, then the second ones of its rails."""
        keys = ("fabric_addresses", "fabric_second_addresses")
        return tuple(str(address).split("/")[0] for key in keys for address in self.data.get(key) or ())


@dataclass(frozen=True, slots=True)
class Rack:
    """All nodes of one inventory, in inventory order; ``source`` is the path that the user gave."""

    source: str
    nodes: tuple[Node, ...]

    def node(self, name: str) -> Node:
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    def group(self, name: str) -> tuple[Node, ...]:
        """Nodes of a group, in inventory order; ``all`` is every node."""
        if name == "all":
            return self.nodes
        return tuple(node for node in self.nodes if name in node.groups)

    def storage_addresses(self, servers: Sequence[str], role: str | None, managed: bool) -> tuple[str, ...]:
        """Addresses of a storage: as given, or of the nodes of the role that serves it.

        An appliance has one file system behind all of its nodes; of servers that the deploys set up every one would
        have its own, so the first serves alone.
        """
        if servers:
            return tuple(dict.fromkeys(servers))
        nodes = self.group(role) if role else ()
        nodes = nodes[:1] if managed else nodes
        return tuple(dict.fromkeys(address for node in nodes for address in node.server_addresses))

    def pairs(self, name: str) -> tuple[tuple[str, str], ...]:
        """Every unordered pair of a group's nodes, names in inventory order."""
        names = [node.name for node in self.group(name)]
        return tuple((a, b) for i, a in enumerate(names) for b in names[i + 1 :])


def fold(names: Iterable[str]) -> str:
    """``gpu-01, gpu-02, gpu-03`` as ``gpu-[01-03]``; an empty collection is ``no node``."""
    names = list(names)
    if not names:
        return "no node"
    try:
        return str(NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP))
    except NodeSetParseError:  # a name that is no plain host name, such as pyinfra's @local/…
        return ",".join(names)
