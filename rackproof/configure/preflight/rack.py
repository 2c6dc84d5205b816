"""Checks of the inventory and its architecture, without reading any node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from ipaddress import IPv4Interface
from typing import TypeVar

from rackproof.configure.known_inputs import misspelled
from rackproof.core.architecture import Architecture
from rackproof.core.plan import Problem
from rackproof.core.rack import Node, Rack, fold
from rackproof.core.wording import counted

T = TypeVar("T", bound=Hashable)


def rack_problems(rack: Rack, architecture: Architecture) -> Iterator[Problem]:
    """Contradictions within the inventory, with the nodes concerned."""
    yield from _twice(rack, "fabric_addresses", "inventory.address", "give each node an address of its own")
    yield from _twice(rack, "fabric_macs", "inventory.mac", "look at the nodes' labels, or at ip link on the nodes")
    yield from _reached_twice(rack)
    yield from _subnets(rack, architecture.rails)
    yield from _roles(rack, architecture)
    yield from _keys(rack)


def _holders(rack: Rack, values_of: Callable[[Node], Iterable[T]]) -> dict[T, list[str]]:
    """Names of the nodes by a value that they have."""
    holders: dict[T, list[str]] = defaultdict(list)
    for node in rack.nodes:
        for value in values_of(node):
            holders[value].append(node.name)
    return holders


def _keys(rack: Rack) -> Iterator[Problem]:
    for (key, meant), names in _holders(rack, lambda node: misspelled(node.data).items()).items():
        what = f"{fold(names)}: {key}: expected a known key, actual one that nothing reads"
        yield Problem("inventory.keys", what, f"did you mean {meant!r}? rackproof inputs lists all")


OF_STACK = {"fabric_addresses": ("address",), "fabric_macs": ("mac", "macs")}
"""By key of the rails: equivalent keys of ``nic``'s ports, bonds and VLANs."""


def _values(node: Node, key: str) -> tuple[str, ...]:
    """Values of the rails and of the node's other ports."""
    values = _listed(node.data.get(key))
    stack = node.data.get("nic")
    for kind in ("ports", "bonds", "vlans"):
        named = stack.get(kind) if isinstance(stack, Mapping) else None
        for inputs in named.values() if isinstance(named, Mapping) else ():
            for own in OF_STACK.get(key, ()) if isinstance(inputs, Mapping) else ():
                values += _listed(inputs.get(own))
    return tuple(str(value).split("/")[0].lower() for value in values)


def _listed(value: object) -> list[object]:
    return [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else []


def _twice(rack: Rack, key: str, id_: str, remedy: str) -> Iterator[Problem]:
    for value, names in _holders(rack, lambda node: _values(node, key)).items():
        if len(names) > 1:
            of = fold(names) if len(set(names)) > 1 else f"{names[0]}, {len(names)} times"
            yield Problem(id_, f"{key}, nic: {value} is expected once, actual {of}", remedy)


def _reached(node: Node) -> list[tuple[str, str]]:
    """Name and port for ssh, where the inventory has them."""
    name = node.data.get("ssh_hostname")
    return [(str(name).lower(), str(node.data.get("ssh_port") or 22))] if name else []


def _reached_twice(rack: Rack) -> Iterator[Problem]:
    for (name, port), names in _holders(rack, _reached).items():
        if len(names) > 1:
            what = f"ssh_hostname: {name} port {port} is expected of one node, actual {fold(names)}"
            yield Problem("inventory.address", what, "give each node its own address for ssh")


def _subnets(rack: Rack, rails: int) -> Iterator[Problem]:
    for rail in range(rails):
        by_network: dict[str, list[str]] = defaultdict(list)
        for node in rack.nodes:
            addresses = node.data.get("fabric_addresses") or ()
            if rail < len(addresses):
                try:
                    address = IPv4Interface(str(addresses[rail]))
                except ValueError:
                    continue  # the settings of the node complain
                by_network[str(address.network)].append(node.name)
                network = address.network
                if network.prefixlen < 31 and address.ip in (network.network_address, network.broadcast_address):
                    what = (
                        f"fabric_addresses of {node.name}: a host's is expected, actual {address} is the network's own"
                    )
                    yield Problem("inventory.subnet", what, "take another address, or correct the prefix length")
        if len(by_network) > 1:
            most = max(by_network.values(), key=len)
            network_of = next(network for network, names in by_network.items() if names is most)
            odd = "; ".join(f"{fold(names)} in {net}" for net, names in by_network.items() if names is not most)
            what = f"rail {rail}: one network is expected ({network_of} of {len(most)} nodes), actual also {odd}"
            yield Problem(
                "inventory.subnet", what, "correct the addresses; where rails are routed, accept this with the reason"
            )


def _roles(rack: Rack, architecture: Architecture) -> Iterator[Problem]:
    """Roles without any node, probably a misspelled group. ``certify`` checks the number of nodes."""
    for role, expected in architecture.roles.items():
        if expected.managed and expected.count.min > 0 and not rack.group(role):
            groups = ", ".join(dict.fromkeys(group for node in rack.nodes for group in node.groups)) or "none"
            least = counted(expected.count.min, "node")
            what = f"role {role}: {least} or more are expected, actual none (groups: {groups})"
            yield Problem("inventory.roles", what, "correct the inventory's groups, or take another architecture")


def overlapping_storage(servers: Mapping[str, str], rack: Rack) -> Iterator[Problem]:
    """Nodes of the rack with the address of a storage server. ``servers``: storage by address."""
    for node in rack.nodes:
        for address in _values(node, "fabric_addresses"):
            if address in servers:
                what = (
                    f"storage {servers[address]}: {address} is expected to be its server's, actual {node.name} has it"
                )
                yield Problem("inventory.address", what, "give one of them another address")
