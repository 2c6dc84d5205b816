"""Rails of a node together: routing table per rail, and subnet managers."""

from __future__ import annotations

from ipaddress import IPv4Interface

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.core.rack import Node
from rackproof.parse.answer import STATUS
from rackproof.parse.routes import parse_routes, parse_rules
from rackproof.validation import Unmeasured, announce, answered, check, expect, expect_all, read

RULES = "ip -j -4 rule show"
ROUTES = "ip -j -4 route show table all"
MANAGERS = f"pgrep -x opensm{STATUS}"
SHARED_TABLES = ("local", "main", "default")


@check(
    "fabric.rail_tables",
    reads="fabric.rail_tables",
    protects="With rails in one subnet all traffic leaves by the first rail: eight cables carry the load of one.",
    hint="ip rule; ip route show table 100. Each rail needs a rule from its address to a table with its subnet.",
)
def test_rail_tables(host: Host, arch: Architecture, node: Node) -> None:
    announce(host, RULES, ROUTES)
    rules, routes = parse_rules(read(host, RULES)), parse_routes(read(host, ROUTES))
    addresses = [IPv4Interface(str(address)) for address in node.data.get("fabric_addresses") or ()]
    if len(addresses) != arch.rails:
        raise Unmeasured("the inventory has no address for every rail (fabric_addresses)")
    problems = []
    for rail, address in enumerate(addresses):
        port = f"{arch.fabric.interface_prefix}{rail}"
        chosen = next((rule for rule in rules if rule.source == str(address.ip)), None)
        if chosen is None or chosen.table in SHARED_TABLES:
            problems.append(f"{port}: expected a rule from {address.ip} to a table of its own, actual none")
            continue
        devices = [
            route.device
            for route in routes
            if route.table == chosen.table and route.destination in (str(address.network), "default")
        ]
        if not devices or set(devices) != {port}:
            actual = ", ".join(str(device) for device in dict.fromkeys(devices)) or "nothing"
            problems.append(f"{port}: expected {address.network} on {port} in table {chosen.table}, actual {actual}")
    expect_all(problems)


@check(
    "fabric.subnet_manager",
    reads="fabric.subnet_manager",
    protects="An unplanned subnet manager can take over the fabric, with other routes and without partitions.",
    hint="systemctl status opensm opensmd; systemctl mask --now the undeclared one, or start the declared one.",
)
def test_subnet_manager(host: Host, arch: Architecture) -> None:
    answer = answered(host, MANAGERS, "pgrep", good=(0, 1))
    words = {True: "opensm runs", False: "no opensm"}
    expect(words[answer.status == 0], words[bool(arch.fabric.subnet_manager)])
