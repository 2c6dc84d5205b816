"""Programs are asked of the roles that need them, and a missing one keeps no node from its reboot."""

from __future__ import annotations

from typing import Final

import pytest

from rackproof import architectures
from rackproof.configure import facts, operations
from rackproof.configure.gpu import packages
from rackproof.configure.gpu.driver import choose
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.core.architecture.expectations import expected_checks
from rackproof.core.programs import PACKAGED
from tests.unit.configure.gpu.machines import machine, promised
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
    """What is asked of a node without GPUs is installed there by the architecture's own packages."""
    tools = architectures.load(name).model.tools
    by_package = {program for program, package in PACKAGE_OF.items() if package in tools.packages}
    for role in ("login", "storage", "management"):
        assert set(tools.needed((role,))) <= by_package, role


@pytest.mark.parametrize("name", EVERY)
def test_the_judge_asks_the_same_roles(name: str) -> None:
    made = architectures.load(name).model
    asked = {entry.item: entry.role for entry in expected_checks(made) if entry.check == "tools.present"}
    others = set(made.tools.needed(()))
    assert asked == {program: "all" if program in others else "gpu" for program in made.tools.programs}


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
    target, gpus = machine("ubuntu 24.04", "2684"), promised(1)
    choice = choose(target, gpus, stack)
    whole = packages.with_dcgm(stack, choice, programs, locked)
    names = [package.name for package in packages.tools(target, choice, whole, gpus)]
    assert ("datacenter-gpu-manager-4-cuda13" in names) is installed
