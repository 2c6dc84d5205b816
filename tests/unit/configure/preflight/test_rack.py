"""Contradictions of an inventory, found before any node is asked."""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from unittest.mock import patch

import pytest

from rackproof.configure.preflight import operations
from rackproof.configure.preflight.conflicts import choices_of, conflict_problems
from rackproof.configure.preflight.problem import PreflightInputs, check_accepted, divided, sentence
from rackproof.configure.preflight.rack import overlapping_storage, rack_problems
from rackproof.core.architecture import Architecture, Expectation, Lossless, Slurm, Storage
from rackproof.core.plan import Problem
from rackproof.core.rack import Node, Rack
from rackproof.core.versions import LockedPackage
from rackproof.core.versions.choices import Choices
from rackproof.core.versions.conflicts import RULES
from rackproof.core.versions.models import Components, Driver, FileSystemClient, Gds, NetworkStack, VersionSet
from rackproof.errors import InventoryError
from tests.unit.configure.preflight import cases
from tests.unit.configure.rack import site as virtual_site
from tests.unit.configure.stub import StubHost, at
from tests.unit.refusals import error_of


def rack(*data: dict[str, Any], groups: tuple[str, ...] = ("gpu",)) -> Rack:
    return Rack("inv.py", tuple(Node(f"gpu-{n:02d}", groups, node_data) for n, node_data in enumerate(data, 1)))


def problems_of(whole: Rack) -> dict[str, str]:
    return {problem.id: problem.line for problem in rack_problems(whole, cases.architecture())}


def test_the_written_racks_contradict_nothing() -> None:
    for folder in sorted(path.name for path in cases.RACKS.iterdir() if (path / "rack.yaml").is_file()):
        assert list(rack_problems(cases.written(folder), cases.architecture(folder))) == [], folder


@pytest.mark.parametrize(
    ("id_", "data", "message"),
    [
        ("inventory.address", [{"fabric_addresses": ["10.0.0.1/24"]}] * 2,
         "10.0.0.1 is expected once, actual gpu-[01-02]"),
        ("inventory.address", [{"fabric_addresses": ["10.0.0.1/24", "10.0.0.1/24"]}], "actual gpu-01, 2 times"),
        ("inventory.address", [{"ssh_hostname": "192.0.2.1"}, {"ssh_hostname": "192.0.2.1", "ssh_port": 22}],
         "192.0.2.1 port 22 is expected of one node, actual gpu-[01-02]"),
        ("inventory.mac", [{"fabric_macs": ["a0:00:00:00:00:01"]}, {"fabric_macs": ["A0:00:00:00:00:01"]}],
         "a0:00:00:00:00:01 is expected once"),
        ("inventory.address", [{"nic": {"ports": {"stor0": {"address": "10.1.0.1/24"}}}}] * 2,
         "10.1.0.1 is expected once, actual gpu-[01-02]"),
        ("inventory.address", [{"fabric_addresses": ["10.0.0.1/24"]},
                               {"nic": {"bonds": {"bond0": {"address": "10.0.0.1/24"}}}}], "gpu-[01-02]"),
        ("inventory.mac", [{"nic": {"ports": {"stor0": {"mac": "a0:00:00:00:00:01"}}}},
                           {"nic": {"bonds": {"bond0": {"macs": ["A0:00:00:00:00:01"]}}}}], "expected once"),
        ("inventory.subnet", [{"fabric_addresses": ["10.0.0.1/24"]}, {"fabric_addresses": ["10.0.0.2/24"]},
                              {"fabric_addresses": ["10.0.9.3/24"]}], "actual also gpu-03 in 10.0.9.0/24"),
        ("inventory.subnet", [{"fabric_addresses": ["10.0.0.0/24"]}], "actual 10.0.0.0/24 is the network's own"),
    ],
)  # fmt: skip
def test_nodes_that_contradict_each_other(id_: str, data: list[dict[str, Any]], message: str) -> None:
    assert message in problems_of(rack(*data))[id_]


def test_a_misspelt_key_is_reported_with_its_nodes_and_the_likely_key() -> None:
    line = problems_of(rack({"gpu_stak": {}, "_timeout": 900, "ssh_user": "root"}, {"gpu_stak": {}}))["inventory.keys"]
    assert line.startswith("gpu-[01-02]: gpu_stak: ")
    assert "did you mean 'gpu'?" in line
    assert "inventory.keys" not in problems_of(rack({"gpu": {}, "_timeout": 900, "rack_unit": 7}))


def test_one_host_on_two_ports_is_two_nodes() -> None:
    assert (
        problems_of(rack({"ssh_hostname": "127.0.0.1", "ssh_port": 1}, {"ssh_hostname": "127.0.0.1", "ssh_port": 2}))
        == {}
    )


def test_a_misspelt_group_is_a_role_without_nodes() -> None:
    line = problems_of(rack({}, groups=("gpus",)))["inventory.roles"]
    assert "role gpu: 1 node or more are expected, actual none (groups: gpus)" in line


def test_a_storage_server_with_a_nodes_address() -> None:
    lines = [p.line for p in overlapping_storage({"10.0.0.1": "home"}, rack({"fabric_addresses": ["10.0.0.1/24"]}))]
    assert len(lines) == 1
    assert "storage home: 10.0.0.1 is expected to be its server's, actual gpu-01 has it" in lines[0]


def test_conflicts_name_both_sides() -> None:
    architecture = cases.architecture(cmdline_required=("iommu=off",))
    choices = choices_of(cases.node(), None, architecture)
    lines = {p.id: p.line for p in conflict_problems(architecture, None, choices)}
    assert " wants " in lines["roce-iommu"]
    assert lines["roce-iommu"].endswith("[roce-iommu]")


def storage(fstype: str, class_: str, transport: str) -> Storage:
    return Storage.model_validate({
        "class": class_, "fstype": fstype, "transport": transport, "mountpoint": "/mnt/x", "source": "/x",
        "servers": ["10.9.0.1"], "client_roles": ["gpu"],
    })  # fmt: skip


NFS = storage("nfs4", "nfs", "rdma")
DOCA = NetworkStack(version="3.2.1", stack="doca", nfsrdma=True)
VAST = {"vastnfs": FileSystemClient(version="4.0.35")}


@pytest.mark.parametrize(
    ("rule", "fires", "silent", "mounted", "components"),
    [
        ("cnp-dscp", {"nic": {"switch_cnp_dscp": 4}}, {"nic": {"switch_cnp_dscp": 48}}, None, {}),
        ("gds-acs", {"node": {"passthrough": True}}, {}, None, {"gds": Gds(version="1")}),
        ("gds-acs", {"node": {"kernel_arguments": ["vfio-pci.ids=10de:2335"]}}, {}, None, {"gds": Gds(version="1")}),
        ("gds-iommu", {"storage_client": {"beegfs": {"gds": True}}, "node": {"kernel_arguments": ["intel_iommu=on"]}},
         {"node": {"kernel_arguments": ["intel_iommu=on"]}}, storage("beegfs", "parallel", "rdma"), {}),
        ("gds-iommu", {"storage_client": {"scale": {"gds": True}}, "node": {"kernel_arguments": ["intel_iommu=on"]}},
         {"node": {"kernel_arguments": ["intel_iommu=on"]}}, storage("gpfs", "parallel", "rdma"), {}),
        ("nfs-modules", {"storage_client": {"nfs": {"driver": "vastnfs"}}}, {}, NFS, {"network": DOCA}),
        ("nfs-modules", {"storage_client": {"nfs": {"driver": "dellnfs"}}}, {}, NFS, {"network": DOCA}),
        ("nfs-modules", {}, {"storage_client": {"nfs": {"driver": "vastnfs"}}}, NFS, {"clients": VAST}),
        ("nfs-rdma-missing", {}, {"storage_client": {"nfs": {"driver": "vastnfs"}}}, NFS,
         {"network": DOCA.model_copy(update={"nfsrdma": False})}),
        ("secure-boot-lockdown", {"nic": {"source": "inbox"}}, {"nic": {"source": "doca"}}, None, {}),
        ("secure-boot-lockdown", {"nic": {"source": "doca", "relaxed_ordering": True}},
         {"nic": {"source": "doca"}}, None, {}),
        ("gsp-open-modules", {"gpu": {"module_options": {"NVreg_EnableGpuFirmware": "0"}}}, {}, None,
         {"driver": Driver(version="580.126.20", flavour="open")}),
        ("traffic-class", {"gpu": {"nccl_conf": {"NCCL_IB_TC": "41"}}},
         {"gpu": {"nccl_conf": {"NCCL_IB_TC": "106"}}}, None, {}),
    ],
)  # fmt: skip
def test_what_an_inventory_chooses_is_a_side_of_a_conflict(
    rule: str, fires: dict[str, Any], silent: dict[str, Any], mounted: Storage | None, components: dict[str, Any]
) -> None:
    whole = cases.architecture(cmdline_required=())
    gpu = whole.gpu.model_copy(update={"gds": ()}) if whole.gpu else None
    lossless = Lossless(cnp_dscp=48, traffic_class=106)
    fabric = whole.fabric.model_copy(update={"lossless": lossless}) if whole.fabric else None
    roles = {"gpu": whole.roles["gpu"].model_copy(update={"expect": Expectation()})}
    system = whole.system.model_copy(update={"secure_boot": rule.startswith("secure-boot")})
    storage_ = {"x": mounted} if mounted else {}
    whole = whole.model_copy(
        update={"storage": storage_, "gpu": gpu, "fabric": fabric, "roles": roles, "system": system}
    )

    def ids(data: dict[str, Any]) -> set[str]:
        choices = choices_of(Node("gpu-01", ("gpu",), data), None, whole)
        return {problem.id for problem in conflict_problems(whole, Components(**components), choices)}

    assert rule in ids(fires)
    assert rule not in ids(silent)


def test_every_choice_can_be_said_in_an_inventory() -> None:
    """A choice that nothing fills is a rule that never fires."""
    data = {
        "node": {"passthrough": True, "kernel_arguments": ["iommu=pt"]},
        "gpu": {"module_options": {"NVreg_X": "1"}, "nccl_conf": {"NCCL_DEBUG": "INFO"}},
        "nic": {"switch_cnp_dscp": 48, "source": "doca", "max_read_request": 4096},
        "storage_client": {"scale": {"gds": True}, "nfs": {"driver": "vastnfs"}, "weka": {"cores": [4]}},
        "slurm": {"cpu_spec_list": [8]},
    }
    all_ = {"a": NFS, "b": storage("gpfs", "parallel", "rdma"), "c": storage("wekafs", "parallel", "rdma")}
    whole = cases.architecture().model_copy(update={"storage": all_, "slurm": Slurm(controller_role="gpu")})
    chosen = choices_of(Node("gpu-01", ("gpu",), data), cases.machine(secure_boot=True), whole)
    left = [field.name for field in fields(Choices) if getattr(chosen, field.name) == getattr(Choices(), field.name)]
    assert left == []


@pytest.mark.parametrize(
    ("weka", "kept", "says"),
    [
        ({"num_cores": 2}, [], "slurm.cpu_spec_list wants no processor(s) reserved from jobs"),
        ({"cores": [4, 6]}, [8], "slurm.cpu_spec_list wants 1 processor(s) reserved from jobs"),
        ({"num_cores": 2}, [8, 12], "WEKA wants 2 core(s) of its own choice"),
        ({"cores": [4, 6]}, [8, 12], None),
        ({"net": ["udp"], "num_cores": 0}, [], None),
    ],
)
def test_cores_of_weka_are_kept_from_jobs(weka: dict[str, Any], kept: list[int], says: str | None) -> None:
    update = {"storage": {"x": storage("wekafs", "parallel", "tcp")}, "slurm": Slurm(controller_role="gpu")}
    whole = cases.architecture(cmdline_required=()).model_copy(update=update)
    data = {"storage_client": {"weka": weka}, "slurm": {"cpu_spec_list": kept}}

    def ids(whole: Architecture, *groups: str) -> list[str]:
        problems = conflict_problems(whole, None, choices_of(Node("gpu-01", groups, data), None, whole))
        return [problem.line for problem in problems if problem.id == "weka-slurm-cores"]

    lines = ids(whole, "gpu")
    assert len(lines) == (says is not None)
    assert all(says in line for line in lines if says)
    # An external controller, or a node without slurmd: Slurm cannot use the node.
    assert ids(whole.model_copy(update={"slurm": Slurm()}), "gpu") == []
    assert ids(whole, "storage") == []


def test_a_version_set_that_contradicts_itself_stops_the_rack() -> None:
    versions = VersionSet.model_validate({
        "apiVersion": "versions/v1",
        "name": "odd",
        "platforms": {
            "ubuntu-24.04": {
                "components": {
                    "driver": {"version": "580.126.20", "flavour": "open"},
                    "fabric_manager": {"version": "580.95.05"},
                }
            }
        },
    })  # fmt: skip
    with at(StubHost({})), patch.object(operations, "versions_here", lambda: versions):
        lines = [problem.line for problem in operations.of_versions()]
    assert any("fabric_manager.version" in line for line in lines)
    assert all(line.startswith("versions_lock: ubuntu-24.04: ") for line in lines)
    assert all(line.endswith("[versions.contradiction]") for line in lines)
    with at(StubHost({})), patch.object(operations, "versions_here", lambda: None):
        assert operations.of_versions() == ()


def test_what_is_accepted_does_not_stop_and_is_printed_with_its_reason() -> None:
    problems = [Problem("clock.offset", "clock: late", "set it"), Problem("disk.free", "/: full", "make room")]
    stopping, accepted = divided(problems, {"clock.offset": "no time server yet"})
    assert sentence(stopping) == "/: full; make room [disk.free]"
    assert [problem.line for problem in accepted] == ["accepted: clock: late [clock.offset]: no time server yet"]


@pytest.mark.parametrize(
    ("accept", "complaint"),
    [
        ({"disk.fre": "x"}, "preflight.accept.disk.fre: no such check; did you mean 'disk.free'?"),
        ({"disk.free": " "}, "preflight.accept.disk.free: expected a reason"),
    ],
)
def test_what_is_accepted_must_exist_and_have_a_reason(accept: dict[str, str], complaint: str) -> None:
    assert complaint in error_of(InventoryError, check_accepted, accept, RULES)


def test_a_vendors_conflict_can_be_accepted() -> None:
    check_accepted({"weka-iommu": "WEKA said so"}, RULES)


def test_defaults_stop_the_node_only() -> None:
    assert PreflightInputs().stop == "node"


def test_what_the_architecture_declares_and_no_deploy_sets_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, answer in (("machine_here", None), ("platform_here", None)):
        monkeypatch.setattr(operations, name, lambda answer=answer: answer)
    monkeypatch.setattr(operations, "packages_here", lambda part: ())
    (line,) = operations._checked_only(virtual_site())
    assert line.startswith("checked, not set: system.package_versions (fio); ")
    with at(StubHost({})):
        assert [operations._once([line]), operations._once([line])] == [[line], []]
    monkeypatch.setattr(operations, "packages_here", lambda part: (LockedPackage("fio", "3.39-1", "others"),))
    assert operations._checked_only(virtual_site()) == ()
