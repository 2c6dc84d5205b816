"""Operations with answers from a table: what a second run does, what waits for a reboot, what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from rackproof.configure import facts as common
from rackproof.configure.network import Link, Port
from rackproof.configure.nic import facts, links, operations, ports
from rackproof.configure.nic.firmware import FirmwareState
from rackproof.core.machine import Machine, Pci
from tests.unit.configure.nic.test_firmware import answer
from tests.unit.configure.nic.test_stack import BUILT, INBOX, state
from tests.unit.configure.stub import StubHost, run

RAILS = (
    Port("rail0", "mlx5_0", "10.0.0.1/24", 9000, path="pci-0000:1a:00.0"),
    Port("rail1", "mlx5_1", "10.0.1.1/24", 9000, path="pci-0000:3c:00.0"),
)
LINKS = (
    Link("rail0", "a0:00", 9000, True, ("10.0.0.1/24",), "pci-0000:1a:00.0"),
    Link("rail1", "a0:01", 9000, True, ("10.0.1.1/24",), "pci-0000:3c:00.0"),
)
WANTED = {name: {"trust": "dscp", "pfc": "0,0,0,1,0,0,0,0"} for name in ("rail0", "rail1")}
DRIVERS = frozenset({"reboot:drivers of the network adapters"})
SLOTS = {"rail0": "0000:1a:00.0", "mlx5_0": "0000:1a:00.0", "rail1": "0000:3c:00.0", "mlx5_1": "0000:3c:00.0"}


def states(**changed: Mapping[str, str]) -> dict[str, ports.PortState]:
    return {name: ports.PortState(name, {**values, **changed.get(name, {})}) for name, values in WANTED.items()}


def host(found: Mapping[type, Any], executing: bool = True) -> StubHost:
    return StubHost({facts.Marks: frozenset(), **found}, executing=executing)


def machine(*ids: str) -> Machine:
    pci = tuple(
        Pci(f"0000:{address}:00.0", *each.split(":"), "020000") for address, each in zip(("1a", "3c"), ids, strict=True)
    )
    return Machine("ubuntu", "24.04", "noble", "6.8.0", "x86_64", (), pci, True, False, "GenuineIntel", 1, 1)


def adapters(here: Machine | None, foreign: tuple[tuple[str, str], ...] = ()) -> tuple[list[str], StubHost]:
    stub = host({common.Links: LINKS, facts.Foreign: foreign})
    with patch.object(operations, "machine_here", lambda: here):
        return run(operations.adapters, stub, wanted=RAILS, declared={}), stub


def test_adapters_that_are_known_cost_nothing() -> None:
    commands, stub = adapters(machine("15b3:1021", "15b3:1021"))
    assert commands == []
    assert stub.noops == ["2 adapter functions, all known"]


def test_an_unknown_adapter_a_missing_one_and_another_tool_fail_the_node() -> None:
    for here, foreign, says in (
        (machine("15b3:1021", "15b3:1031"), (), "unknown network adapter 15b3:1031"),
        (machine("15b3:1021", "8086:1563"), (), "rail 1: 0000:3c:00.0 is 8086:1563"),
        (None, (), "the machine could not be read"),
        (machine("15b3:1021", "15b3:1021"), (("rail0", "/etc/netplan/50.yaml"),), "/etc/netplan/50.yaml: rail0"),
    ):
        commands, stub = adapters(here, foreign)
        assert commands[0].endswith("exit 1")
        assert says in stub.logged[0]


def test_settings_in_force_are_left_alone() -> None:
    stub = host({facts.PortStates: states()})
    assert run(operations.port_settings, stub, wanted=WANTED) == []
    assert stub.noops == ["all 2 ports have their settings"]


def test_only_the_port_that_lost_its_settings_is_set_again() -> None:
    stub = host({facts.PortStates: states(rail1={"pfc": "0,0,0,0,0,0,0,0"})})
    (command,) = run(operations.port_settings, stub, wanted=WANTED)
    assert "rackproof-roce@rail1.service" in command
    assert "rail0" not in command
    assert "rackproof-port check rail1" in command


def test_a_declaration_that_changed_reaches_its_port_although_all_is_in_force() -> None:
    stub = host({facts.PortStates: states(), facts.Marks: frozenset({"restart:rackproof-roce@rail0.service"})})
    (command,) = run(operations.port_settings, stub, wanted=WANTED)
    assert "rackproof-roce@rail0.service" in command


def test_ports_that_could_not_be_read_are_not_set() -> None:
    stub = host({facts.PortStates: None})
    (command,) = run(operations.port_settings, stub, wanted=WANTED)
    assert command.endswith("exit 1")


def test_settings_wait_for_drivers_that_wait_for_the_reboot() -> None:
    wrong = states(rail0={"trust": "pcp"})
    stub = host({facts.PortStates: wrong, facts.Marks: DRIVERS})
    assert run(operations.port_settings, stub, wanted=WANTED) == []
    assert "wait for the reboot (drivers of the network adapters)" in stub.noops[0]
    # A setting of the firmware that waits for it does not keep a port that is there from being set.
    stub = host({facts.PortStates: wrong, facts.Marks: frozenset({"reboot:NIC firmware settings of rail0"})})
    assert run(operations.port_settings, stub, wanted=WANTED) != []


def test_a_rail_that_is_missing_is_named_unless_a_reboot_brings_it() -> None:
    stub = host({common.Links: LINKS[:1]})
    (command,) = run(operations.rail_ports, stub, wanted=RAILS, manager="networkd")
    assert command.endswith("exit 1")
    assert "rail1: expected one NIC with path pci-0000:3c:00.0, actual 0" in stub.logged[0]
    stub = host({common.Links: LINKS[:1], facts.Marks: frozenset({"reboot:NIC firmware settings of rail1"})})
    assert run(operations.rail_ports, stub, wanted=RAILS, manager="networkd") == []
    assert "the ports wait for the reboot" in stub.noops[0]


def test_rails_are_brought_up_by_the_nodes_own_service() -> None:
    down = (LINKS[0], Link("ens60np0", "a0:01", 1500, False, (), "pci-0000:3c:00.0"))
    (command,) = run(operations.rail_ports, host({common.Links: down}), wanted=RAILS, manager="NetworkManager")
    assert "nmcli --wait 60 connection up rackproof-rail1" in command
    assert "networkctl" not in command
    assert run(operations.rail_ports, host({common.Links: LINKS}), wanted=RAILS, manager="NetworkManager") == []


def test_rdma_devices() -> None:
    assert run(operations.rdma_devices, host({facts.Slots: SLOTS}), wanted=RAILS) == []
    exchanged = {**SLOTS, "mlx5_0": SLOTS["mlx5_1"], "mlx5_1": SLOTS["mlx5_0"]}
    (command,) = run(operations.rdma_devices, host({facts.Slots: exchanged}), wanted=RAILS)
    assert "restart rackproof-rdma-names.service" in command
    assert run(operations.rdma_devices, host({facts.Slots: exchanged, facts.Marks: DRIVERS}), wanted=RAILS) == []


def firmware(
    found: FirmwareState, executing: bool = True, names: tuple[str, ...] = ("rail0",)
) -> tuple[list[str], StubHost]:
    stub = host({facts.Slots: SLOTS, common.Links: LINKS, facts.FirmwareStates: found}, executing)
    wanted = [("compute", names, None, {"LINK_TYPE_P1": "ETH"})]
    return run(operations.adapter_firmware, stub, wanted=wanted, rails=RAILS, images={}), stub


def test_firmware_that_is_right_is_left_alone() -> None:
    commands, stub = firmware(answer({"LINK_TYPE_P1": ("ETH(2)", "ETH(2)")}))
    assert commands == []
    assert stub.noops == ["firmware of 1 adapters is as declared"]


def test_firmware_that_did_not_take_a_setting_fails() -> None:
    commands, stub = firmware(answer({"LINK_TYPE_P1": ("IB(1)", "IB(1)")}))  # the same answer after it was set
    assert "set LINK_TYPE_P1=ETH" in commands[0]
    assert commands[1].endswith("exit 1")
    assert "expected ETH at the next boot, actual IB(1)" in stub.logged[0]


def test_tools_that_are_not_installed_yet_do_not_stop_a_plan() -> None:
    silent = answer(config="sh: 1: false: not found\n")
    commands, stub = firmware(silent, executing=False)
    assert commands == []
    assert stub.noops[0].startswith("after the packages:")
    commands, stub = firmware(silent)
    assert commands[0].endswith("exit 1")


def test_firmware_of_a_port_that_is_not_there() -> None:
    commands, stub = firmware(answer(), names=("mlx5_9",))
    assert commands[0].endswith("exit 1")
    assert "mlx5_9 (compute)" in stub.logged[0]


def test_two_ports_of_one_adapter_are_asked_once() -> None:
    stub = host({
        facts.Slots: {"mlx5_8": "0000:29:00.0", "mlx5_9": "0000:29:00.1"},
        common.Links: (),
        facts.FirmwareStates: None,
    })  # fmt: skip
    run(operations.adapter_firmware, stub, wanted=[("storage", ("mlx5_8", "mlx5_9"), "1", None)], rails=(), images={})
    (asked,) = [arguments for fact, arguments in stub.asked if fact is facts.FirmwareStates]
    assert [each.slot for each in asked["wanted"]] == ["0000:29:00.0"]


def test_drivers_that_are_not_built_yet_do_not_stop_a_plan() -> None:
    arguments = {"source": "doca", "dkms": (), "restart": False}
    stub = host({facts.StackState: state(path=INBOX)}, executing=False)
    assert run(operations.drivers, stub, **arguments) == []
    stub = host({facts.StackState: state(path=INBOX)})
    assert run(operations.drivers, stub, **arguments)[0].endswith("exit 1")
    stub = host({facts.StackState: state(dkms=BUILT)})
    assert run(operations.drivers, stub, **arguments) == []


def test_drivers_of_a_kernel_that_is_yet_to_start_wait_for_it() -> None:
    """Vendors build for one kernel: a node that is refused would be kept from the very reboot that brings it."""
    arguments = {"source": "doca", "dkms": (), "restart": False}
    locked = "reboot:kernel 5.14.0-503.14.1.el9_5.x86_64 is locked and another one runs"
    found = replace(state(path=INBOX), pending=frozenset({locked}))
    (command,) = run(operations.drivers, host({facts.StackState: found}), **arguments)
    assert command.endswith("'/run/rackproof/pending/reboot:drivers of the network adapters'")
    stub = host({facts.StackState: replace(found, pending=frozenset({locked, *DRIVERS}))})
    assert run(operations.drivers, stub, **arguments) == []
    assert "wait for the reboot" in stub.noops[0]


def test_link_counters_begin_once_a_boot() -> None:
    (command,) = run(operations.zero_link_counters, host({facts.LinkBaseline: False}), names=["rail0"])
    assert "carrier_down_count" in command
    assert run(operations.zero_link_counters, host({facts.LinkBaseline: True}), names=["rail0"]) == []
    assert run(operations.zero_link_counters, host({facts.LinkBaseline: None}), names=["rail0"])[0].endswith("exit 1")


def test_bonds_in_force_cost_no_command() -> None:
    stub = host({common.Links: LINKS, facts.Bonds: {}})
    vlan = links.Upper("rail1", 9000, "10.0.1.1/24")
    assert run(operations.upper_links, stub, wanted=[vlan], manager="networkd") == []
