"""Nodes that have no rails, and ports of their own: a storage server, a login node, a controller."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from deploys import fabric, nic, versions
from rackproof.configure import deploy, mirror
from rackproof.configure.driver_swap import pending
from rackproof.configure.fabric import plan as fabric_plan
from rackproof.configure.nic import declared as nic_declared
from rackproof.configure.nic.declared import Declared, declare, needs_drivers, set_means, uses_adapters
from rackproof.configure.nic.declared_ports import declared_ports
from rackproof.configure.nic.inputs import NicInputs
from rackproof.configure.preflight import operations as preflight
from rackproof.configure.preflight.claims import Claims
from rackproof.configure.settings import node_settings, read_inputs
from rackproof.configure.site import Site
from rackproof.configure.versions import plan as version_plan
from rackproof.configure.versions.inputs import VersionInputs
from rackproof.core.machine import Machine, Pci
from rackproof.core.rack import Node, Rack
from rackproof.core.versions.models import Components, Firmware, NetworkStack, Platform
from rackproof.errors import DeclarationError
from tests.unit.configure.preflight import cases
from tests.unit.configure.stub import StubHost, at

FRONT = {"mac": "52:54:00:00:00:01", "address": "192.0.2.1/24"}
STORAGE = {
    "stor0": {"path": "pci-0000:29:00.0", "address": "10.9.0.1/24"},
    "stor1": {"path": "pci-0000:29:00.1", "address": "10.9.0.2/24"},
}


def site(**nic: Any) -> Site:
    architecture, node = cases.architecture(), Node("storage-01", ("storage",), {"nic": nic})
    assert architecture.fabric is not None
    return Site(Rack("", (node,)), architecture, node, node_settings(node, 0))


def declared(here: Site, components: Components | None = None, machine: Machine | None = None) -> Declared:
    stack = read_inputs(here.node, NicInputs)
    assert here.architecture.fabric is not None
    ports = declared_ports(here.architecture.fabric, stack, here.ports, (), None)
    declared_nics = declare(here, stack, components, "debian", machine)
    return replace(declared_nics, ports=ports, drivers=needs_drivers(stack, ports, machine))


@pytest.mark.parametrize("more", [{}, {"rail_gateways": ["10.0.0.254", "10.0.1.254"]}])
def test_ports_in_one_subnet_have_tables_also_without_rails(more: dict[str, Any]) -> None:
    """The gateways of the rails are of the whole rack, and a node without rails may have them in its data."""
    here = site(ports={**STORAGE, "front0": FRONT}, **more)
    tables = fabric_plan.rail_tables(here, declared(here))
    assert {name: (route.table, route.source) for name, route in tables.items()} == {
        "stor0": (100, "10.9.0.1"),
        "stor1": (101, "10.9.0.2"),
    }
    assert "Table=101" in next(
        file.content for file in fabric_plan.files(here, declared(here)) if "stor1.net" in file.path
    )


DOCA = NetworkStack(version="3.2.1", stack="doca", ofed="25.10")
INTEL = cases.machine(pci=(Pci("0000:02:00.0", "8086", "1563", "020000"),))
MANAGEMENT = cases.machine(pci=(Pci("0000:02:00.0", "15b3", "101f", "020000"),))


@pytest.mark.parametrize(
    ("machine", "roles", "source", "drivers"),
    [
        (INTEL, (), "inbox", False),
        (MANAGEMENT, (), "doca", True),
        (MANAGEMENT, ("storage",), "doca", True),
        (MANAGEMENT, ("gpu",), "inbox", True),
        (None, (), "doca", True),
    ],
)
def test_the_sets_network_stack_is_for_the_machines_and_groups_that_it_means(
    machine: Machine | None, roles: tuple[str, ...], source: str, drivers: bool
) -> None:
    components = Components(network=DOCA.model_copy(update={"roles": roles}))
    here = site(ports={"front0": FRONT})
    nics = declared(here, components, machine)
    assert (nics.source, nics.drivers) == (source, drivers)
    # Advice that contradicts the set is none.
    saying = site(ports={"front0": FRONT}, source="inbox")
    if source == "inbox":
        assert declared(saying, components, machine).source == "inbox"
    else:
        with pytest.raises(DeclarationError, match=r"nic\.source is inbox, the version set has doca"):
            declared(saying, components, machine)


@pytest.mark.parametrize("more", [{"ports": {"front0": {**FRONT, "rdma": "mlx5_front"}}}, {"subnet_manager": True}])
def test_what_only_nvidias_adapters_do_needs_their_drivers_wherever_it_is_declared(more: dict[str, Any]) -> None:
    assert declared(site(**more), None, INTEL).drivers


@pytest.mark.parametrize(
    ("machine", "steps"),
    [
        (INTEL, ["Adapters"]),
        (MANAGEMENT, ["Adapters", "Other drivers", "network stack", "Driver files", "Drivers"]),
    ],
)
def test_nothing_of_nvidias_is_wanted_of_a_node_with_other_makers_ports(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, steps: list[str]
) -> None:
    here = site(ports={"front0": FRONT})
    asked: list[str] = []
    for name in ("adapters", "remove_drivers", "drivers"):
        monkeypatch.setattr(nic.operations, name, lambda name, **given: asked.append(name))
    monkeypatch.setattr(nic.firmware_operations, "adapter_firmware", lambda name, **given: asked.append(name))
    for name in ("packages", "files"):
        monkeypatch.setattr(nic.common, name, lambda name, **given: asked.append(name))
    monkeypatch.setattr(nic, "network_stack", lambda: asked.append("network stack"))
    monkeypatch.setattr(nic, "here", lambda: here)
    monkeypatch.setattr(nic, "declared_here", lambda: declared(here, Components(network=DOCA), machine))
    nic.nic._inner()
    assert asked == steps


LOCKED = DOCA.model_copy(update={"packages": {"doca-ofed": "3.2.1-044000"}})
CX6LX = Firmware(model="ConnectX-6 Lx", version="26.43.2566")
CX7 = Firmware(model="ConnectX-7", version="28.43.2566")
BY_PSID = Firmware(psid="MT_0000000838", version="28.43.2566")
CX3 = cases.machine(pci=(Pci("0000:02:00.0", "15b3", "1003", "020000"),))
NEW = cases.machine(pci=(Pci("0000:02:00.0", "15b3", "1031", "020000"),))


@pytest.mark.parametrize(
    ("components", "machine", "meant"),
    [
        (Components(network=LOCKED), MANAGEMENT, True),
        (Components(network=LOCKED.model_copy(update={"roles": ("gpu",)})), MANAGEMENT, False),
        (Components(network=DOCA), MANAGEMENT, False),
        (Components(network=LOCKED), INTEL, False),
        (Components(network=LOCKED, nic_firmware=(BY_PSID,)), CX3, False),
        (Components(nic_firmware=(CX6LX,)), MANAGEMENT, True),
        (Components(nic_firmware=(BY_PSID,)), MANAGEMENT, True),
        (Components(nic_firmware=(CX7,)), MANAGEMENT, False),
        (Components(nic_firmware=(CX7,)), NEW, True),
        (Components(nic_firmware=(CX7,)), INTEL, False),
        (Components(), MANAGEMENT, False),
    ],
)
def test_a_set_means_adapters_also_of_nodes_that_declare_none(
    monkeypatch: pytest.MonkeyPatch, components: Components, machine: Machine, meant: bool
) -> None:
    """They get tools, drivers and firmware before the comparison, or are not compared."""
    here, steps = site(), list[str]()
    stack = read_inputs(here.node, NicInputs)
    assert not uses_adapters(here, stack)
    assert set_means(components, here, stack, machine) is meant
    platform = Platform(components=components)
    monkeypatch.setattr(versions, "here", lambda: here)
    for module in (nic_declared, version_plan):
        monkeypatch.setattr(module, "platform_here", lambda: platform)
        monkeypatch.setattr(module, "here", lambda: here)
    monkeypatch.setattr(nic_declared, "machine_here", lambda: machine)
    monkeypatch.setattr(version_plan, "lock_here", lambda: (platform, machine, VersionInputs()))
    monkeypatch.setattr(versions, "packages_here", lambda part: ())
    monkeypatch.setattr(version_plan, "versions_here", lambda: None)
    monkeypatch.setattr(
        versions.firmware_operations, "locked_firmware_in_force", lambda name, **given: steps.append(name)
    )
    monkeypatch.setattr(fabric, "here", lambda: here)
    monkeypatch.setattr(deploy, "here", lambda: here)
    monkeypatch.setattr(fabric, "_adapter_ports", lambda site, declared: steps.append("adapters"))
    monkeypatch.setattr(fabric, "rack_operations", Mock())
    with at(StubHost({}, "storage-01")):
        fabric.fabric._inner()
        versions.hold_and_read_back._inner()
    compared = ["Firmware of adapters"] if components.nic_firmware else []
    assert steps == (["adapters", *compared] if meant else [])


@pytest.mark.parametrize(("drivers", "swaps", "asked"), [(False, (), False), (True, None, True)])
def test_drivers_that_a_node_does_not_need_are_not_asked_about(
    monkeypatch: pytest.MonkeyPatch, drivers: bool, swaps: tuple[str, ...] | None, asked: bool
) -> None:
    architecture, node = cases.architecture(), cases.node()
    here = Site(cases.written(), architecture, node, node_settings(node, architecture.rails))
    needed = replace(declared(site(ports={"front0": FRONT})), ports=(), drivers=drivers)
    for module in (pending, preflight):
        monkeypatch.setattr(module, "declared_here", lambda: needed)
        monkeypatch.setattr(module, "packages_here", lambda part: ())
        monkeypatch.setattr(module, "platform_here", lambda: None)
    monkeypatch.setattr(pending, "_target", lambda *given: None)
    assert pending.pending_swaps(here, cases.machine(), None, None) == swaps
    host = StubHost({preflight.StackState: None})
    with at(host):
        problems = preflight._in_the_way(here, cases.machine(), Claims())
    assert (preflight.StackState in [fact for fact, _ in host.asked]) is asked
    assert bool(problems) is asked


@pytest.mark.parametrize(("entry", "tools"), [(CX6LX, True), (CX7, False)])
def test_tools_for_adapters_that_the_set_means_are_on_the_mirrors_list(entry: Firmware, tools: bool) -> None:
    platform = Platform(components=Components(nic_firmware=(entry,)))
    target = mirror.Target(site(), "debian", "debian-13", MANAGEMENT, platform)
    listed = [item.name for item in mirror.CONTRIBUTORS["nic"](target)]
    assert ("mstflint" in listed) is tools
