"""Nodes that have no rails, and ports of their own: a storage server, a login node, a controller."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from deploys import fabric
from rackproof.configure.nic.declared import Declared, declare, nic_stack
from rackproof.configure.nic.declared_ports import declared_ports
from rackproof.configure.settings import node_settings
from rackproof.configure.site import Site
from rackproof.core.rack import Node, Rack
from rackproof.core.versions.models import Components
from tests.unit.configure.preflight import cases

FRONT = {"mac": "52:54:00:00:00:01", "address": "192.0.2.1/24"}
STORAGE = {
    "stor0": {"path": "pci-0000:29:00.0", "address": "10.9.0.1/24"},
    "stor1": {"path": "pci-0000:29:00.1", "address": "10.9.0.2/24"},
}


def site(**nic_stack: Any) -> Site:
    architecture, node = cases.architecture(), Node("storage-01", ("storage",), {"nic_stack": nic_stack})
    assert architecture.fabric is not None
    return Site(Rack("", (node,)), architecture, node, node_settings(node, 0))


def declared(here: Site, components: Components | None = None) -> Declared:
    stack = nic_stack(here.node)
    assert here.architecture.fabric is not None
    ports = declared_ports(here.architecture.fabric, stack, here.ports, (), None)
    return replace(declare(here, stack, components, "debian"), ports=ports)


@pytest.mark.parametrize("more", [{}, {"rail_gateways": ["10.0.0.254", "10.0.1.254"]}])
def test_ports_in_one_subnet_have_tables_also_without_rails(more: dict[str, Any]) -> None:
    """The gateways of the rails are of the whole rack, and may be said of a node that has none."""
    here = site(ports={**STORAGE, "front0": FRONT}, **more)
    tables = fabric.rail_tables(here, declared(here))
    assert {name: (route.table, route.source) for name, route in tables.items()} == {
        "stor0": (100, "10.9.0.1"),
        "stor1": (101, "10.9.0.2"),
    }
    assert "Table=101" in next(each.content for each in fabric.files(here, declared(here)) if "stor1.net" in each.path)
