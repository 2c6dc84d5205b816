"""Programs are asked of the roles that need them, and a missing one keeps no node from its reboot."""

from __future__ import annotations

from typing import Any, Final

import pytest

from rackproof import architectures
from rackproof.configure import facts, operations
from rackproof.configure.gpu import packages
from rackproof.configure.gpu.driver import choose
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.core.architecture import Architecture
from rackproof.core.architecture.expectations import expected_checks
from rackproof.core.programs import PACKAGED
from tests.unit.configure.gpu.machines import declared_gpu, machine
from tests.unit.configure.stub import StubHost, run
from tests.unit.published import EVERY

PACKAGE_OF: Final = {
    "fio": "fio",
    "ib_read_lat": "perftest",
    "ib_write_bw": "perftest",
    "ib_write_lat": "perftest",
    "ibstat": "infiniband-diags",
    "ibv_devinfo": "ibverbs-utils",
    "iperf3": "iperf3",
    "mpirun": "openmpi-bin",
}
"""Debian's package of each program that a distribution has."""


@pytest.mark.parametrize("name", EVERY)
def test_a_node_is_asked_for_what_its_role_has(name: str) -> None:
    """The architecture's own packages install the programs that a node without GPUs needs."""
    made = architectures.load(name).model
    by_package = {program for program, package in PACKAGE_OF.items() if package in made.tools.packages}
    for role in ("login", "storage", "management"):
        assert set(made.programs_of((role,))) <= by_package, role


@pytest.mark.parametrize("name", EVERY)
def test_the_judge_asks_the_same_roles(name: str) -> None:
    made = architectures.load(name).model
    asked = [(entry.role, entry.item) for entry in expected_checks(made) if entry.check == "tools.present"]
    for role in ("gpu", "storage", "login"):
        programs = {program for group, program in asked if group in ("all", role)}
        assert programs == set(made.programs_of((role,))), role


BETWEEN_NODES: Final = {"ib_read_lat", "ib_write_bw", "ib_write_lat", "iperf3", "mpirun"}


def test_programs_between_nodes_are_asked_of_nodes_that_take_part() -> None:
    """Not of a controller, a login node, or a server that the architecture does not name."""
    dgx = architectures.load("nvidia-dgx-h100").model
    assert set(dgx.programs_of(("gpu",))) == set(dgx.tools.programs)
    for role in ("storage", "login", "management"):
        assert dgx.programs_of((role,)) == ("fio", "ibstat")
    rack = architectures.load("virtual-rack").model
    assert set(rack.programs_of(("storage",))) == set(rack.tools.programs), "it serves the storage"
    assert rack.programs_of(("login",)) == ("fio", "ibv_devinfo")


def with_profile(**parts: Any) -> Architecture:
    document = architectures.load("virtual-rack-storage").model.model_dump(
        mode="json", by_alias=True, exclude_defaults=True
    )
    profile = document["profiles"]["depth"]
    for part, changes in parts.items():
        profile[part] = {**profile[part], **changes}
    storage = {**document["storage"], "nfs-tcp": {**document["storage"]["nfs-tcp"], "client_roles": ["gpu", "login"]}}
    return Architecture.model_validate(document | {"storage": storage, "profiles": {"depth": profile}})


@pytest.mark.parametrize(
    ("parts", "role", "takes_part"),
    [
        ({"links": {"members": "compute", "to_storage": []}}, "compute", True),
        ({"collectives": {"members": "all"}}, "management", True),
        ({"links": {"to_storage": ["nfs-tcp"]}, "storage": {"beside_collectives": None}}, "login", True),
        ({"links": {"to_storage": []}}, "login", True),
        ({"links": {"to_storage": []}, "storage": {"beside_collectives": None}}, "login", False),
        ({}, "management", False),
    ],
)
def test_members_and_clients_take_part(parts: dict[str, Any], role: str, takes_part: bool) -> None:
    made = with_profile(**parts)
    assert (set(made.programs_of((role,))) >= BETWEEN_NODES & set(made.tools.programs)) is takes_part
    assert bool(set(made.programs_of((role,))) & BETWEEN_NODES) is takes_part


def test_a_missing_program_is_named_and_does_not_stop_the_deploy() -> None:
    host = StubHost({facts.Programs: frozenset({"fio"})})
    assert run(operations.programs, host, names=["fio", "iperf3", "nvbandwidth"]) == []
    assert host.logged == [
        "not on PATH: iperf3: add the package to tools.packages of the architecture; nvbandwidth: no package has it;"
        " build it, and link it into /usr/local/bin"
    ]
    assert host.noops == ["1 of 3 programs are there"]


def test_before_the_run_programs_may_be_missing() -> None:
    host = StubHost({facts.Programs: frozenset()}, executing=False)
    assert run(operations.programs, host, names=["fio"]) == []
    assert host.logged == []


def test_every_packaged_program_of_an_architecture_is_known() -> None:
    programs = {program for name in EVERY for program in architectures.load(name).model.tools.programs}
    assert {*PACKAGE_OF, "dcgmi", "nvidia-smi"} <= PACKAGED
    assert all(program in PACKAGED or program == "nvbandwidth" or program.endswith("_perf") for program in programs)


@pytest.mark.parametrize(
    ("stack", "programs", "locked", "installed"),
    [
        (GpuInputs(source="cuda"), ("dcgmi", "fio"), False, True),
        (GpuInputs(source="cuda"), ("fio",), False, False),
        (GpuInputs(source="cuda", dcgm=False), ("dcgmi",), False, False),
        (GpuInputs(source="distribution"), ("dcgmi",), False, False),
        (GpuInputs(source="cuda"), ("dcgmi",), True, False),
    ],
)
def test_dcgm_is_installed_where_its_program_is_asked_for(
    stack: GpuInputs, programs: tuple[str, ...], locked: bool, installed: bool
) -> None:
    target, gpus = machine("ubuntu 24.04", "2684"), declared_gpu(1)
    choice = choose(target, gpus, stack)
    whole = packages.with_dcgm(stack, choice, programs, locked)
    names = [package.name for package in packages.tools(target, choice, whole, gpus)]
    assert ("datacenter-gpu-manager-4-cuda13" in names) is installed
