"""Contradictions of an inventory, found before any node is asked."""

from __future__ import annotations

from typing import Any

import pytest

from rackproof.configure.preflight.conflicts import choices_of, conflict_problems
from rackproof.configure.preflight.problem import PreflightInputs, Problem, check_accepted, divided, sentence
from rackproof.configure.preflight.rack import overlapping_storage, rack_problems
from rackproof.core.rack import Node, Rack
from rackproof.core.versions.conflicts import RULES
from rackproof.errors import InventoryError
from tests.unit.configure.preflight import cases


def rack(*data: dict[str, Any], groups: tuple[str, ...] = ("gpu",)) -> Rack:
    return Rack("inv.py", tuple(Node(f"gpu-{n:02d}", groups, each) for n, each in enumerate(data, 1)))


def found(whole: Rack) -> dict[str, str]:
    return {problem.id: problem.line for problem in rack_problems(whole, cases.architecture())}


def test_the_written_racks_contradict_nothing() -> None:
    for folder in sorted(path.name for path in cases.RACKS.iterdir() if (path / "rack.yaml").is_file()):
        assert list(rack_problems(cases.written(folder), cases.architecture(folder))) == [], folder


@pytest.mark.parametrize(
    ("id_", "data", "said"),
    [
        ("inventory.address", [{"fabric_addresses": ["10.0.0.1/24"]}] * 2,
         "10.0.0.1 is expected once, actual gpu-[01-02]"),
        ("inventory.address", [{"fabric_addresses": ["10.0.0.1/24", "10.0.0.1/24"]}], "actual gpu-01, 2 times"),
        ("inventory.address", [{"ssh_hostname": "192.0.2.1"}, {"ssh_hostname": "192.0.2.1", "ssh_port": 22}],
         "192.0.2.1 port 22 is expected of one node, actual gpu-[01-02]"),
        ("inventory.mac", [{"fabric_macs": ["a0:00:00:00:00:01"]}, {"fabric_macs": ["A0:00:00:00:00:01"]}],
         "a0:00:00:00:00:01 is expected once"),
        ("inventory.subnet", [{"fabric_addresses": ["10.0.0.1/24"]}, {"fabric_addresses": ["10.0.0.2/24"]},
                              {"fabric_addresses": ["10.0.9.3/24"]}], "actual also gpu-03 in 10.0.9.0/24"),
        ("inventory.subnet", [{"fabric_addresses": ["10.0.0.0/24"]}], "actual 10.0.0.0/24 is the network's own"),
    ],
)  # fmt: skip
def test_nodes_that_contradict_each_other(id_: str, data: list[dict[str, Any]], said: str) -> None:
    assert said in found(rack(*data))[id_]


def test_a_misspelt_key_is_said_with_its_nodes_and_what_was_meant() -> None:
    line = found(rack({"gpu_stak": {}, "_timeout": 900, "ssh_user": "root"}, {"gpu_stak": {}}))["inventory.keys"]
    assert line.startswith("gpu-[01-02]: gpu_stak: ")
    assert "did you mean 'gpu_stack'?" in line
    assert "inventory.keys" not in found(rack({"gpu_stack": {}, "_timeout": 900, "rack_unit": 7}))


def test_one_host_on_two_ports_is_two_nodes() -> None:
    assert found(rack({"ssh_hostname": "127.0.0.1", "ssh_port": 1}, {"ssh_hostname": "127.0.0.1", "ssh_port": 2})) == {}


def test_a_misspelt_group_is_a_role_without_nodes() -> None:
    line = found(rack({}, groups=("gpus",)))["inventory.roles"]
    assert "role gpu: 1 nodes or more are expected, actual none (groups: gpus)" in line


def test_a_storage_server_with_a_nodes_address() -> None:
    lines = [p.line for p in overlapping_storage({"10.0.0.1": "home"}, rack({"fabric_addresses": ["10.0.0.1/24"]}))]
    assert len(lines) == 1
    assert "storage home: 10.0.0.1 is expected to be its server's, actual gpu-01 has it" in lines[0]


def test_conflicts_name_both_sides() -> None:
    architecture = cases.architecture(cmdline_required=("iommu=off",))
    lines = {p.id: p.line for p in conflict_problems(architecture, None, choices_of(cases.node(), None))}
    assert " wants " in lines["roce-iommu"]
    assert lines["roce-iommu"].endswith("[roce-iommu]")


def test_what_is_accepted_does_not_stop_and_is_said_with_its_reason() -> None:
    problems = [Problem("clock.offset", "clock: late", "set it"), Problem("disk.free", "/: full", "make room")]
    stopping, accepted = divided(problems, {"clock.offset": "no time server yet"})
    assert sentence(stopping) == "/: full; make room [disk.free]"
    assert accepted == ("accepted: clock: late [clock.offset]: no time server yet",)


@pytest.mark.parametrize(
    ("accept", "complaint"),
    [
        ({"disk.fre": "x"}, "preflight.accept.disk.fre: no such check; did you mean 'disk.free'?"),
        ({"disk.free": " "}, "preflight.accept.disk.free: why?"),
    ],
)
def test_what_is_accepted_must_exist_and_have_a_reason(accept: dict[str, str], complaint: str) -> None:
    with pytest.raises(InventoryError) as raised:
        check_accepted(accept, RULES)
    assert complaint in str(raised.value)


def test_a_vendors_conflict_can_be_accepted() -> None:
    check_accepted({"weka-iommu": "WEKA said so"}, RULES)


def test_defaults_stop_the_node_only() -> None:
    assert PreflightInputs().stop == "node"
