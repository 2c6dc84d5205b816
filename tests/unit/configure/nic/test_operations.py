"""Operations with answers from a table: what a second run does, what waits for a reboot, what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from rackproof.configure import facts as common
from rackproof.configure.network import Link, Port
from rackproof.configure.nic import facts, firmware_operations, links, operations, ports
from rackproof.configure.nic.declared_ports import DeclaredPort
from rackproof.configure.nic.firmware import FirmwareState
from rackproof.configure.nic.inputs import Image, NodePort
from rackproof.configure.nic.locked_firmware import Locked
from rackproof.core.machine import Machine, Pci
from rackproof.core.versions.models import Firmware
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
    return {name: {**values, **changed.get(name, {})} for name, values in WANTED.items()}


def host(answers: Mapping[type, Any], executing: bool = True) -> StubHost:
    return StubHost({common.Marks: frozenset(), common.Carriers: {}, **answers}, executing=executing)


def machine(*ids: str) -> Machine:
    pci = tuple(
        Pci(f"0000:{address}:00.0", *pci_id.split(":"), "020000")
        for address, pci_id in zip(("1a", "3c"), ids, strict=True)
    )
    return Machine("ubuntu", "24.04", "noble", "6.8.0", "x86_64", (), pci, True, False, "GenuineIntel", 1)


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


FRONT = DeclaredPort(Port("front", "", "", None, mac="a0:02"), False, None, False, NodePort(mac="a0:02"))
STOR0 = DeclaredPort(
    Port("stor0", "mlx5_stor0", "", None, path="pci-0000:29:00.0"), False, None, True, NodePort(path="p")
)


def test_a_port_that_is_no_rail_is_not_taken_from_who_uses_it() -> None:
    here = machine("15b3:1021", "15b3:1021")
    for other, link, says in (
        (FRONT, Link("eno1", "a0:02", 1500, True, ("192.0.2.1/24",)), "front: eno1 is in use with 192.0.2.1/24"),
        (STOR0, Link("eno1", "a0:02", 1500, True, ()), "stor0: 0000:29:00.0 has no device; adapters are at"),
        (FRONT, Link("eno1", "a0:02", 1500, True, ()), ""),
        (FRONT, Link("front", "a0:02", 1500, True, ("192.0.2.1/24",)), ""),
    ):
        stub = host({common.Links: (*LINKS, link), facts.Foreign: ()})
        with patch.object(operations, "machine_here", lambda: here):
            commands = run(operations.adapters, stub, wanted=RAILS, declared={}, others=(other,))
        assert bool(commands) == bool(says)
        assert says in "".join(stub.logged)
        if not commands:
            (words,) = [arguments["names"] for fact, arguments in stub.asked if fact is facts.Foreign]
            assert words["front"] == list(dict.fromkeys(("front", link.name, "a0:02")))


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
    stub = host({facts.PortStates: states(), common.Marks: frozenset({"restart:rackproof-roce@rail0.service"})})
    (command,) = run(operations.port_settings, stub, wanted=WANTED)
    assert "rackproof-roce@rail0.service" in command


def test_ports_that_could_not_be_read_are_not_set() -> None:
    stub = host({facts.PortStates: None})
    (command,) = run(operations.port_settings, stub, wanted=WANTED)
    assert command.endswith("exit 1")


def test_settings_wait_for_drivers_that_wait_for_the_reboot() -> None:
    wrong = states(rail0={"trust": "pcp"})
    stub = host({facts.PortStates: wrong, common.Marks: DRIVERS})
    assert run(operations.port_settings, stub, wanted=WANTED) == []
    assert "wait for the reboot (drivers of the network adapters)" in stub.noops[0]
    # A setting of the firmware that waits for it does not keep a port that is there from being set.
    stub = host({facts.PortStates: wrong, common.Marks: frozenset({"reboot:NIC firmware settings of rail0"})})
    assert run(operations.port_settings, stub, wanted=WANTED) != []


def test_a_rail_that_is_missing_is_named_unless_a_reboot_brings_it() -> None:
    stub = host({common.Links: LINKS[:1]})
    (command,) = run(operations.rail_ports, stub, wanted=RAILS, manager="networkd")
    assert command.endswith("exit 1")
    assert "rail1: expected one NIC with path pci-0000:3c:00.0, actual 0" in stub.logged[0]
    stub = host({common.Links: LINKS[:1], common.Marks: frozenset({"reboot:NIC firmware settings of rail1"})})
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
    assert run(operations.rdma_devices, host({facts.Slots: exchanged, common.Marks: DRIVERS}), wanted=RAILS) == []


def firmware(
    state: FirmwareState, executing: bool = True, names: tuple[str, ...] = ("rail0",)
) -> tuple[list[str], StubHost]:
    stub = host({facts.Slots: SLOTS, common.Links: LINKS, facts.FirmwareStates: state}, executing)
    wanted = [("compute", names, None, {"LINK_TYPE_P1": "ETH"})]
    return run(firmware_operations.adapter_firmware, stub, wanted=wanted, rails=RAILS, locked=Locked()), stub


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
    silent = answer(config="sh: 1: false: not state\n")
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
    run(
        firmware_operations.adapter_firmware,
        stub,
        wanted=[("storage", ("mlx5_8", "mlx5_9"), "1", None)],
        rails=(),
        locked=Locked(),
    )
    (asked,) = [arguments for fact, arguments in stub.asked if fact is facts.FirmwareStates]
    assert [adapter.slot for adapter in asked["wanted"]] == ["0000:29:00.0"]


TWO_PORTS = {
    facts.Slots: {},
    common.Links: (),
    facts.FirmwareStates: answer({"LINK_TYPE_P1": ("ETH(2)", "ETH(2)"), "LINK_TYPE_P2": ("IB(1)", "IB(1)")}),
}


def two_ports(storage_version: str | None, **storage: str) -> tuple[list[str], StubHost]:
    stub = host(TWO_PORTS)
    wanted = [
        ("compute", ("0000:1a:00.0",), ">=28.39.1002", {"LINK_TYPE_P1": "ETH"}),
        ("storage", ("0000:1a:00.1",), storage_version, storage),
    ]
    return run(firmware_operations.adapter_firmware, stub, wanted=wanted, rails=(), locked=Locked()), stub


def test_what_two_ports_of_one_adapter_declare_is_all_set() -> None:
    commands, stub = two_ports("28.43.2566", LINK_TYPE_P2="ETH")
    (one,) = next(arguments["wanted"] for fact, arguments in stub.asked if fact is facts.FirmwareStates)
    assert one.settings == {"LINK_TYPE_P1": "ETH", "LINK_TYPE_P2": "ETH"}
    assert one.version == "28.43.2566"
    assert "set LINK_TYPE_P2=ETH\n" in commands[0]
    assert "LINK_TYPE_P2: expected ETH at the next boot, actual IB(1)" in stub.logged[-1]


def test_two_ports_that_contradict_each_other_are_refused_with_both_names() -> None:
    for version, settings, says in (
        (
            "28.43.2566",
            {"LINK_TYPE_P1": "IB"},
            "firmware_settings LINK_TYPE_P1 is ETH for the first, IB for the second",
        ),
        ("28.37.1014", {}, "firmware >=28.39.1002 is declared for the first, 28.37.1014 for the second"),
    ):
        commands, stub = two_ports(version, **settings)
        assert commands[0].endswith("exit 1")
        assert says in stub.logged[0]
        assert "compute port 0 (0000:1a:00.0) and storage port 0 (0000:1a:00.1)" in stub.logged[0]


SET = (Firmware(model="ConnectX-7", version="28.45.1200"),)
BURN = Image(version="28.45.1200", url="http://site/fw.bin", sha256="0" * 64)


def of_set(
    operation: Any, state: FirmwareState, executing: bool = True, images: Mapping[str, Image] | None = None, **more: Any
) -> tuple[list[str], StubHost]:
    stub = host({facts.Slots: {}, common.Links: (), facts.FirmwareStates: state}, executing)
    locked = Locked(SET, images or {}, proxy="http://proxy.site:3128")
    here = machine("15b3:1021", "15b3:1019")  # the other one is none that the set speaks of
    with patch.object(firmware_operations, "machine_here", lambda: here):
        return run(operation, stub, locked=locked, **more), stub


def test_firmware_that_is_not_the_version_sets_is_an_error_at_the_end() -> None:
    commands, stub = of_set(firmware_operations.locked_firmware_in_force, answer(stored="28.39.1002"))
    assert commands[0].endswith("exit 1")
    assert stub.logged[0].startswith(
        "gpu-01: not as the version set says: ConnectX-7 at 0000:1a:00.0 (MT_0000000838): firmware: expected"
        " 28.45.1200, actual 28.39.1002; write it with flint"
    )
    commands, stub = of_set(firmware_operations.locked_firmware_in_force, answer(flint="sh: flint: not state\n"))
    assert commands[0].endswith("exit 1")
    assert "no tool reads the installed version (sh: flint: not state)" in stub.logged[0]
    commands, stub = of_set(firmware_operations.locked_firmware_in_force, answer(stored="28.39.1002"), executing=False)
    assert commands == []
    assert "expected 28.45.1200" in stub.noops[0]
    commands, stub = of_set(firmware_operations.locked_firmware_in_force, answer(stored="28.45.1200"))
    assert commands == []
    assert stub.noops == ["firmware of 1 adapters is as the version set says"]


def test_firmware_that_waits_for_a_reset_is_named() -> None:
    firmware = answer(stored="28.45.1200", running="28.39.1002")
    commands, stub = of_set(firmware_operations.locked_firmware_in_force, firmware)
    assert commands[0].endswith("exit 1")
    assert "28.45.1200 in its flash; reboot" in stub.logged[0]
    # The operation on firmware asks for the reboot; then nothing is wrong but what it brings.
    (command,), _ = of_set(firmware_operations.adapter_firmware, firmware, wanted=(), rails=())
    assert "reboot:NIC firmware of" in command
    firmware = answer(stored="28.45.1200", running="28.39.1002", pending="reboot:NIC firmware of ConnectX-7 x\n")
    commands, stub = of_set(firmware_operations.locked_firmware_in_force, firmware)
    assert commands == []
    assert stub.noops[0].startswith("comes with the reboot: ConnectX-7 at 0000:1a:00.0")


def test_firmware_that_the_set_has_an_image_of_is_written_through_the_proxy() -> None:
    firmware = answer(stored="28.39.1002")
    commands, _ = of_set(
        firmware_operations.adapter_firmware, firmware, images={"MT_0000000838": BURN}, wanted=(), rails=()
    )
    assert "burn" in commands[0]
    assert "export http_proxy=http://proxy.site:3128" in commands[0]
    # Without an image nothing is written, and no line says that it is as declared.
    commands, stub = of_set(firmware_operations.adapter_firmware, firmware, wanted=(), rails=())
    assert commands == []
    assert stub.noops == ["firmware of 0 adapters is as declared"]


def test_an_architecture_and_a_version_set_that_contradict_each_other_are_refused() -> None:
    wanted = [("compute", ("0000:1a:00.0",), "28.43.2566", None)]
    for executing in (True, False):
        commands, stub = of_set(firmware_operations.adapter_firmware, answer(), executing, wanted=wanted, rails=())
        assert commands[0].endswith("exit 1")
        assert "the version set says 28.45.1200, the architecture 28.43.2566" in stub.logged[0]


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
    stack_state = replace(state(path=INBOX), pending=frozenset({locked}))
    (command,) = run(operations.drivers, host({facts.StackState: stack_state}), **arguments)
    assert command.endswith("'/run/rackproof/pending/reboot:drivers of the network adapters'")
    stub = host({facts.StackState: replace(stack_state, pending=frozenset({locked, *DRIVERS}))})
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


def test_infiniband_ports_are_not_bonded_but_a_reboot_may_make_them_ethernet() -> None:
    guid = "00:00:10:29:fe:80:00:00:00:00:00:00:a0:88:c2:03:00:01:02:0"
    members = tuple(Link(f"ib{k}", f"{guid}{k}", 2044, True, (), f"pci-0000:29:00.{k}") for k in range(2))
    bond = links.Upper("bond0", 9000, None, tuple((None, link.path) for link in members), "active-backup")
    stub = host({common.Links: members, facts.Bonds: {}})
    (command,) = run(operations.upper_links, stub, wanted=[bond], manager="networkd")
    assert command.endswith("exit 1")
    assert "nic.bonds.bond0: ib0, ib1: InfiniBand ports are not bonded here" in stub.logged[0]
    assert "give each an address of its own in nic.ports" in stub.logged[0]
    pending = frozenset({"reboot:NIC firmware settings of bond0"})
    stub = host({common.Links: members, facts.Bonds: {}, common.Marks: pending})
    assert run(operations.upper_links, stub, wanted=[bond], manager="networkd") == []
    assert "bonds and VLANs wait for the reboot" in stub.noops[0]
