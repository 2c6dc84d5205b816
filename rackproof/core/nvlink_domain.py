"""NVLink domains of several nodes: what the inventory declares for IMEX, and what the GPUs report. Pure.

GPUs share memory across nodes within one NVLink domain and partition. IMEX connects its nodes over TCP, those of two
racks as well, so it does not notice a wrong domain.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Final

from rackproof.core.rack import Node, Rack, fold
from rackproof.errors import DeclarationError

SERVICE: Final = "nvidia-imex.service"
"""A role that expects it declares that its nodes share GPU memory."""
LARGEST_DOMAIN: Final = 72
"""GPUs that NVLink switches join: GB200 and GB300 NVL72 (NVIDIA, architecture documents of both)."""
COMMAND: Final = "echo not compared # rackproof compares the NVLink domains of all nodes"
"""Recorded as the command of the comparison of all nodes. Run on a node, it compares nothing."""
HEAD: Final = "NVLink domains of the GPUs of each node"

Domain = tuple[str, str]
"""UUID of the NVLink domain and number of the partition in it: GPUs share memory where both are equal."""


def domain_problem(
    node: str, declared: Mapping[str, str | None], reported: Mapping[str, frozenset[Domain] | None]
) -> str | None:
    """Why this node's declared domain is not that of its GPUs, compared with the other nodes that answer.

    Where most nodes of one declared domain agree, only the others have a problem; without a majority, all of them.
    Jobs fail when they import memory from another domain. ``declared``: see ``declared_domains``. ``reported``: None
    for a node that does not answer, empty without a driver.
    """
    own = reported.get(node)
    if not own:
        return None
    if len(own) > 1:
        return f"the GPUs of {node} are in several NVLink domains: {_shown(own)}"
    group = declared[node]
    votes = _votes(declared, reported)
    leaders = _leaders(votes[group])
    if leaders != [own]:
        against = next(other for other in leaders if other != own)
        first = votes[group][against][0]
        inside, whole = len(votes[group][against]), sum(map(len, votes[group].values()))
        count = f"where {inside} of {whole} nodes are" if own not in leaders else f"no majority of {whole} nodes"
        both = f"{_shown(own)} and {_shown(against)}"
        return f"one domain is declared for {node} and {first}, their GPUs are in {both}, {count}"
    for other_group, others in votes.items():
        # two declared domains share one NVLink domain: the smaller one is wrong, both if they are equal
        if other_group == group or _leaders(others) != [own] or len(others[own]) < len(votes[group][own]):
            continue
        first = others[own][0]
        return f"{node} is declared in {group} and {first} in {other_group}, their GPUs are both in {_shown(own)}"
    return None


Votes = dict[frozenset[Domain], list[str]]
"""Nodes by the one domain of their GPUs."""


def _votes(
    declared: Mapping[str, str | None], reported: Mapping[str, frozenset[Domain] | None]
) -> dict[str | None, Votes]:
    """Reports of the nodes of every declared domain; those whose GPUs are in none or several have no vote."""
    votes: dict[str | None, Votes] = {}
    for name, group in declared.items():
        own = reported.get(name)
        if own and len(own) == 1:
            votes.setdefault(group, {}).setdefault(own, []).append(name)
    return votes


def _leaders(votes: Votes) -> list[frozenset[Domain]]:
    """The domain with the most nodes, or all of those that tie."""
    most = max(map(len, votes.values()))
    return [domain for domain, names in votes.items() if len(names) == most]


def rendered(domains: Mapping[str, frozenset[Domain]]) -> str:
    """The answer to ``COMMAND``, the same for every node. Of nodes that were asked; none reported: ``none``."""
    lines = [f"{name} {_shown(reported) or 'none'}" for name, reported in domains.items()]
    return "".join(f"{line}\n" for line in (HEAD, *lines, f"{len(lines)} nodes"))


def _shown(domains: frozenset[Domain]) -> str:
    """As the GPU operator's label nvidia.com/gpu.clique has it."""
    return ", ".join(f"{uuid}.{clique}" for uuid, clique in sorted(domains))


def declared_domains(rack: Rack) -> dict[str, str | None]:
    """Declared domain of every GPU node: its name, or the list of addresses where that is given. None: the only one."""
    return {node.name: _domain(node) for node in rack.group("gpu")}


def imex_addresses(rack: Rack, node: Node, gpus_per_node: int) -> tuple[str, ...]:
    """Addresses of the nodes of this node's domain. Raises DeclarationError where it is not clear which these are."""
    if nodes := _imex(node).get("nodes"):
        return tuple(map(str, nodes))
    domains = declared_domains(rack)
    own = _domain(node)
    if None in domains.values() and set(domains.values()) != {None}:
        undeclared = fold([name for name, domain in domains.items() if domain is None])
        raise DeclarationError(f"gpu.imex.domain: {undeclared} has none, other GPU nodes have one: name all")
    gpus = len(domains) * gpus_per_node
    if own is None and gpus > LARGEST_DOMAIN:
        raise DeclarationError(
            f"gpu.imex.domain: {len(domains)} GPU nodes with {gpus} GPUs are more than one NVLink domain"
            f" ({LARGEST_DOMAIN} at most): name each node's domain, e.g. its rack"
        )
    addresses = {
        member.name: member.management_address or member.fabric_address()
        for member in rack.group("gpu")
        if domains[member.name] == own
    }
    if missing := [name for name, address in addresses.items() if address is None]:
        raise DeclarationError(f"gpu.imex: {fold(missing)}: no address; give management_address, or imex.nodes")
    return tuple(address for address in addresses.values() if address is not None)


def canonical(name: str) -> str:
    """An address in its shortest spelling: IPv6 has several of one address. Other names as they are."""
    with suppress(ValueError):
        return str(ip_address(name))
    return name


def _domain(node: Node) -> str | None:
    imex = _imex(node)
    named = imex.get("domain") or ",".join(sorted(map(str, imex.get("nodes") or ())))
    return str(named) if named else None


def _imex(node: Node) -> Mapping[str, Any]:
    """The inventory's ``gpu.imex``; deploys refuse other types."""
    value = node.data.get("gpu")
    imex = value.get("imex") if isinstance(value, Mapping) else None
    return imex if isinstance(imex, Mapping) else {}
