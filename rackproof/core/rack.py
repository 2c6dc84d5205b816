"""A rack as the inventory describes it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException, NodeSetParseError

from rackproof.errors import InventoryError

MOST_NAMES = 100_000
"""Limit for one node set."""
MOST_CHARACTERS = 64 * MOST_NAMES
FORMER_KEYS: Final[Mapping[str, str]] = {
    "ask_ahead": "fact_prefetch", "gpu_stack": "gpu", "nic_stack": "nic", "storage_clients": "storage_client",
}  # fmt: skip
"""Former keys of a node's data, which older inventories and recordings have, with today's."""
_TERM = re.compile(r"(\A|,?[!^]|[,&])((?:\[[^]]*\]|[^],!^&[])+)")
"""An operator and a name; operators inside the brackets of a node set belong to the set."""


@dataclass(frozen=True, slots=True)
class Node:
    """One machine. ``groups`` are pyinfra's groups in inventory order, ``all`` excluded."""

    name: str
    groups: tuple[str, ...]
    data: Mapping[str, Any] = field(default_factory=dict)
    """Under today's keys, also where the inventory has ``FORMER_KEYS``."""

    def __post_init__(self) -> None:
        """Raises InventoryError, one line, when a former key and today's are both given."""
        for former, key in FORMER_KEYS.items():
            if former in self.data and key in self.data:
                raise InventoryError(f"{self.name}: {former} is the former name of {key}; both are given: keep {key}")
        if not FORMER_KEYS.keys().isdisjoint(self.data):
            today = {FORMER_KEYS.get(key, key): value for key, value in self.data.items()}
            object.__setattr__(self, "data", today)

    @property
    def simulated_gpus(self) -> bool:
        """True where recordings replace the output of device tools."""
        return bool(self.data.get("simulated_gpus"))

    @property
    def virtual(self) -> bool:
        return bool(self.data.get("virtual"))

    def fabric_address(self, rail: int = 0) -> str | None:
        """IPv4 address (no prefix length) on the given rail, or None when the inventory has none."""
        addresses = self.data.get("fabric_addresses") or ()
        return str(addresses[rail]).split("/")[0] if rail < len(addresses) else None

    @property
    def management_address(self) -> str | None:
        """IPv4 address that the node's name means to the other nodes; None: the inventory has none."""
        address = self.data.get("management_address")
        return None if address is None else str(address)

    def control_address(self, fabric: str) -> str | None:
        """Address for control traffic (the node's name, Slurm, IMEX), not for storage and collectives.

        ``fabric``: the kind. An emulated rack has one network for everything; rails of real adapters carry collectives
        and storage only, so without a ``management_address`` the name is left to the site's own resolver.
        """
        return self.management_address or (self.fabric_address() if fabric == "soft-roce" else None)

    @property
    def server_addresses(self) -> tuple[str, ...]:
        """Addresses to serve on: the first of each rail, then the second ones."""
        keys = ("fabric_addresses", "fabric_second_addresses")
        return tuple(str(address).split("/")[0] for key in keys for address in self.data.get(key) or ())


@dataclass(frozen=True, slots=True)
class Rack:
    """All nodes of one inventory, in inventory order; ``source`` is its path."""

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

    def at(self, address: str) -> str:
        """``storage-01 (10.77.0.11)``; the address alone if no node has it."""
        name = next((node.name for node in self.nodes if address in node.server_addresses), None)
        return f"{name} ({address})" if name else address

    def select(self, limit: Iterable[str]) -> tuple[Node, ...]:
        """Nodes matching patterns, in inventory order; without a pattern all nodes.

        A pattern is one or several, separated by commas, of: a node set (``gpu-01``, ``gpu-[01-16,20]``), a wildcard
        (``gpu-0*``, ``gpu-?1``), a group (``gpu``, ``all``; ``@gpu`` where a node has the group's name) and ``A&B``,
        the nodes of both. ``!`` or ``^`` excludes what follows: ``gpu!gpu-03``, ``gpu,!gpu-[07-08]``; ``!gpu-03`` alone
        is all but gpu-03. Exclusions win at any position. Brackets are node sets, never a choice of characters.

        Raises InventoryError for a pattern that matches nothing, and where exclusions leave no node.
        """
        patterns = list(limit)
        members = self._members()
        included: set[str] = set()
        excluded: set[str] = set()
        only_exclusions = True
        for pattern in patterns:
            for operator, names in self._terms(pattern, members):
                excludes = operator[-1:] in ("!", "^")
                (excluded if excludes else included).update(names)
                only_exclusions &= excludes
        nodes = tuple(
            node for node in self.nodes if (only_exclusions or node.name in included) and node.name not in excluded
        )
        if not nodes:
            raise InventoryError(f"{self.source}: '{','.join(patterns)}' selects no node")
        return nodes

    def _members(self) -> dict[str, set[str]]:
        """Names of nodes by group, ``all`` included."""
        members: dict[str, set[str]] = {"all": {node.name for node in self.nodes}}
        for node in self.nodes:
            for group in node.groups:
                members.setdefault(group, set()).add(node.name)
        return members

    def _terms(self, pattern: str, members: Mapping[str, set[str]]) -> list[tuple[str, set[str]]]:
        """Operator and names of every term of a pattern; ``&`` is resolved."""
        if pattern in members["all"]:  # a name may hold any character: @docker/debian:13
            return [("", {pattern})]
        text = re.sub(r"\s*([,!^&])\s*", r"\1", pattern.strip())
        tokens = _TERM.findall(text)
        if "".join(operator + name for operator, name in tokens) != text or not tokens or tokens[0][0] in (",", "&"):
            raise InventoryError(
                f"{self.source}: '{pattern}' is no node set, such as gpu-[01-16], gpu-0*, gpu or gpu!gpu-03"
            )
        terms: list[tuple[str, set[str]]] = []
        for operator, name in tokens:
            names = self._matching(pattern, name, members)
            if operator == "&":
                terms[-1][1].intersection_update(names)
            else:
                terms.append((operator, names))
        return terms

    def _matching(self, pattern: str, name: str, members: Mapping[str, set[str]]) -> set[str]:
        try:
            words = expand(name) if "[" in name else (name,)
        except ValueError as error:
            raise InventoryError(f"{self.source}: '{pattern}' is no node set: {error}") from None
        matching: set[str] = set()
        unknown: list[str] = []
        for word in words:
            if word in members["all"]:
                matching.add(word)
                continue
            wild = "*" in word or "?" in word
            names = {node for node in members["all"] if fnmatchcase(node, word)} if wild else set()
            names = names or members.get(word.removeprefix("@"), set())
            matching |= names
            if not names:
                unknown.append(word)
        if unknown:
            part = "" if unknown == [pattern] else f"'{pattern}': "
            raise InventoryError(
                f"{self.source}: {part}'{fold(unknown)}' matches no node; "
                f"the rack has {fold(node.name for node in self.nodes)} (groups: {fold(members)})"
            )
        return matching


def expand(text: str) -> tuple[str, ...]:
    """``gpu-[01-03]`` as ``gpu-01, gpu-02, gpu-03``. Raises ValueError for an invalid node set."""
    if _size(text) > MOST_CHARACTERS:
        raise ValueError(f"it has more than {MOST_NAMES} names")
    try:
        return tuple(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        raise ValueError(str(error)) from None


def _size(text: str) -> int:
    """Upper bound of the characters of all names; ClusterShell expands a set before it can be counted."""
    brackets: list[tuple[int, int]] = []

    def kept(match: re.Match[str]) -> str:
        pieces = match[1].split(",")
        brackets.append((sum(map(_count, pieces)), max(map(len, pieces))))
        return "["

    total, used = 0, 0
    for term in re.split(r"[\s,!&^]", re.sub(r"\[([^\]]*)\]?", kept, text)):
        names, length = 1, len(term) + 1
        for count, longest in brackets[used : used + term.count("[")]:
            names, length = names * count, length + longest
        used += term.count("[")
        total += names * max(length, MOST_CHARACTERS // MOST_NAMES)
    return total


def _count(piece: str) -> int:
    """Numbers of ``1-32`` or ``1-32/2``."""
    match = re.fullmatch(r"\s*0*(\d*)-0*(\d*)(?:/0*(\d+))?\s*", piece)
    if match is None:
        return 1
    first, last, step = (int((number or "")[:20] or 0) for number in match.groups())
    return max(1, abs(last - first) // max(1, step) + 1)


def fold(names: Iterable[str]) -> str:
    """``gpu-01, gpu-02, gpu-03`` as ``gpu-[01-03]``; an empty collection is ``no node``."""
    return _folded(tuple(names)) or "no node"


@lru_cache(maxsize=512)
def _folded(names: tuple[str, ...]) -> str:
    """Cached: a thousand checks of a large rack have the same nodes."""
    try:
        return str(NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP))
    except NodeSetParseError:  # a name that is no plain host name, such as pyinfra's @local/…
        return ",".join(names)
