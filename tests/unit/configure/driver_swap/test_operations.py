"""A node leaves Slurm before its driver is replaced, and only then."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from rackproof.configure.driver_swap import operations, pending
from rackproof.configure.gpu.facts import GpuFacts
from rackproof.configure.nic.stack import Module
from rackproof.configure.reboot import drain
from rackproof.configure.reboot.facts import DriverUse
from rackproof.configure.reboot.gpu_users import Use
from rackproof.configure.settings import node_settings
from rackproof.configure.site import Site
from rackproof.configure.versions.facts import PackageStates
from rackproof.configure.versions.state import PackageState
from rackproof.core.versions import LockedPackage
from rackproof.core.versions.models import Component, Components, Driver, LockedRepository, Platform
from tests.unit.configure.gpu.test_install import EMPTY
from tests.unit.configure.nic.test_stack import state as stack_state
from tests.unit.configure.preflight import cases
from tests.unit.configure.stub import StubHost, at, run
from tests.unit.shell import executable, sh

IDLE = drain.DrainState(frozenset({"IDLE"}))
OURS = drain.DrainState(frozenset({"IDLE", "DRAIN"}), "rackproof-deploy: reboot (x)")
DUE = ("a 1 becomes 2",)


class Changing(StubHost):
    """Answers in turn; the last one stays."""

    def __init__(self, *uses: Use | None, executing: bool = True) -> None:
        super().__init__({}, executing=executing)
        self.uses = list(uses)

    def get_fact(self, fact: type, **kwargs: Any) -> Any:
        self.asked.append((fact, kwargs))
        return self.uses.pop(0) if len(self.uses) > 1 else self.uses[0]


def out(host: Changing, swaps: tuple[str, ...] | None = DUE, accepted: bool = False) -> list[str]:
    with (
        patch.object(operations, "machine_here", cases.machine),
        patch.object(operations, "pending_swaps_here", lambda site, machine: swaps),
    ):
        return run(operations.out_of_slurm, host, site=site(), accepted=accepted)


def site(**data: Any) -> Site:
    architecture, node = cases.architecture(), cases.node(**data)
    return Site(cases.written(), architecture, node, node_settings(node, architecture.rails))


def test_a_node_where_nothing_is_exchanged_is_asked_nothing_and_stays() -> None:
    host = Changing(Use(jobs=("12",), node=IDLE))
    assert out(host, ()) == []
    assert host.asked == []


def test_an_idle_node_leaves_slurm() -> None:
    (script,) = out(Changing(Use(node=IDLE)))
    assert (
        "scontrol update NodeName=gpu-01 State=DRAIN Reason='rackproof-deploy: reboot (driver or network stack"
        in script
    )
    assert out(Changing(Use(node=IDLE), executing=False)) == [script]


def test_a_node_that_slurm_holds_for_down_is_drained_too() -> None:
    """Its slurmd would bring it back before the reboot."""
    assert len(out(Changing(Use(node=drain.DrainState(frozenset({"DOWN"})))))) == 1


def test_a_node_that_the_health_check_drained_is_drained_anew() -> None:
    """It would give the node back as soon as it finds it well."""
    assert len(out(Changing(Use(node=replace(OURS, reason="rackproof: gpu.count"))))) == 1
    health = (Path(__file__).parents[4] / "templates/usr/local/sbin/rackproof-health.j2").read_text()
    (mark,) = re.findall(r"^mark='(.*)'$", health, re.MULTILINE)
    assert not drain.DEPLOY.startswith(mark)


def test_a_node_that_was_unwell_before_is_not_given_back_as_well() -> None:
    unwell = replace(OURS, reason="rackproof: gpu.count: 7")
    _, undone, _ = out(Changing(Use(node=unwell), Use(node=OURS, jobs=("12",))))
    assert "State=RESUME" not in undone
    assert "State=DRAIN Reason='rackproof: gpu.count: 7'" in undone


@pytest.mark.parametrize("use", [Use(node=OURS), Use(node=replace(OURS, reason="bad DIMM")), Use()])
def test_a_node_that_is_out_already_stays_as_it_is(use: Use) -> None:
    assert out(Changing(use)) == []


def test_a_job_that_came_meanwhile_stops_the_exchange_and_the_node_goes_back() -> None:
    drained, undone, refused = out(Changing(Use(node=IDLE), Use(node=OURS, jobs=("12",))))
    assert "State=DRAIN" in drained
    assert undone == drain.undo_script("gpu-01", IDLE)
    assert "State=RESUME" in undone
    assert "in Slurm as before, nothing was replaced" in refused
    assert "jobs 12" in refused
    assert len(out(Changing(Use(node=IDLE), Use(node=OURS, jobs=("12",))), accepted=True)) == 1
    *_, refused = out(Changing(Use(node=IDLE), None), accepted=True)
    assert "could not be read" in refused


@pytest.mark.parametrize("use", [Use(jobs_known=False), Use(node=OURS, jobs=("12",))])
def test_jobs_on_a_node_that_cannot_be_drained_stop_it(use: Use) -> None:
    (refused,) = out(Changing(use))
    assert refused.endswith("exit 1")
    assert out(Changing(use), accepted=True) == []


@pytest.mark.parametrize("swaps", [None, DUE])
def test_a_node_that_cannot_be_read_is_not_touched(swaps: tuple[str, ...] | None) -> None:
    (refused,) = out(Changing(None), swaps)
    assert "could not be read, so nothing was changed" in refused


@pytest.mark.parametrize("rc", [0, 1])
def test_the_mark_is_there_when_slurm_has_drained_the_node(tmp_path: Path, rc: int) -> None:
    executable(tmp_path / "scontrol", f"echo no such node >&2; exit {rc}")
    mark = tmp_path / "lib/out-of-slurm"
    script = drain.withdraw_script("gpu-01", "x").replace(drain.WITHDRAWN.rpartition("/")[0], str(mark.parent))
    done = sh(script, programs=tmp_path)
    assert done.returncode == rc
    assert mark.exists() is not rc
    if rc:
        assert done.stderr == "Slurm failed to drain the node, so nothing was replaced: no such node\n"


# What is due


LOCKED = {
    "network": (LockedPackage("doca-ofed", "3.2.1-1", "network"),),
    "driver": (LockedPackage("nvidia-utils-580", "580.126.20-1", "driver"),),
}
THERE = {"doca-ofed": ("3.2.1-1",), "nvidia-utils-580": ("580.126.20-1",), "libnccl2": ("1",)}
SET = Platform(
    repositories={
        "cuda": LockedRepository.model_validate(
            {"kind": "apt", "url": "https://x.example/cuda", "suites": ["/"], "key": {"url": "https://x.example/key"}}
        )
    },
    components=Components(
        driver=Driver(version="580.126.20", flavour="open", repository="cuda"),
        nccl=Component(version="2", repository="cuda"),
    ),
)


def asked(
    monkeypatch: pytest.MonkeyPatch, facts: dict[type, Any], locked: bool = True, **data: Any
) -> tuple[tuple[str, ...] | None, StubHost]:
    host = StubHost({pending.AskStack: stack_state(), GpuFacts: EMPTY, **facts})
    of_all = (*LOCKED["network"], *LOCKED["driver"], LockedPackage("libnccl2", "2", "nccl"))
    monkeypatch.setattr(pending, "packages_here", lambda part: {**LOCKED, "all": of_all}[part] if locked else ())
    monkeypatch.setattr(pending, "platform_here", lambda: SET if locked else None)
    if "nic" in data:  # beside what the rack says of its ports
        data["nic"] = {**cases.node().data["nic"], **data["nic"]}
    here = site(**data)
    monkeypatch.setattr("rackproof.configure.nic.declared.here", lambda: here)
    monkeypatch.setattr("rackproof.configure.nic.declared.machine_here", cases.machine)
    monkeypatch.setattr("rackproof.configure.nic.declared.platform_here", lambda: None)
    with at(host):
        return pending.pending_swaps_here(here, cases.machine()), host


def packages(**changes: tuple[str, ...]) -> dict[type, Any]:
    installed = {**THERE, **{name.replace("_", "-"): versions for name, versions in changes.items()}}
    return {PackageStates: PackageState(installed, frozenset(), (), {})}


def test_a_set_that_is_there_exchanges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools and libraries are none of it: libnccl2 is another one here."""
    assert asked(monkeypatch, packages())[0] == ()


def test_packages_of_driver_and_network_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    swaps, _ = asked(monkeypatch, packages(nvidia_utils_580=("580.95.05-1",), doca_ofed=()))
    assert swaps == ("doca-ofed (not installed) becomes 3.2.1-1", "nvidia-utils-580 580.95.05-1 becomes 580.126.20-1")


def test_without_a_set_the_inventorys_driver_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    swaps, host = asked(monkeypatch, {}, locked=False)
    assert swaps is not None
    assert "nvidia-fabricmanager (not installed) becomes 580.126.20-*" in swaps
    (names,) = [given["packages_wanted"] for fact, given in host.asked if fact is GpuFacts]
    there = replace(EMPTY, packages=dict.fromkeys(names, "580.126.20-1"))
    assert asked(monkeypatch, {GpuFacts: there}, locked=False)[0] == ()


def test_a_restart_of_openibd_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    old = stack_state(ofed="25.10-1.7.1")
    modules = {**old.modules, "mlx5_core": Module("A", "B", "/lib/modules/x/updates/dkms/mlx5_core.ko")}
    old = replace(old, modules=modules, openibd=True)
    for by, expected in (("restart", ("openibd is restarted with other modules",)), ("reboot", ())):
        facts = {**packages(), pending.AskStack: old}
        assert asked(monkeypatch, facts, nic={"source": "doca", "drivers_by": by})[0] == expected


def test_an_ofed_that_goes_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {**packages(), pending.AskStack: stack_state(ofed="5.8-4.1.5.0")}
    for allowed, expected in ((True, ("OFED 5.8-4.1.5.0 is removed",)), (False, ())):
        assert asked(monkeypatch, facts, nic={"source": "inbox", "remove_old": allowed})[0] == expected


@pytest.mark.parametrize("fact", [PackageStates, pending.AskStack])
def test_what_is_not_answered_is_not_nothing(monkeypatch: pytest.MonkeyPatch, fact: type) -> None:
    assert asked(monkeypatch, {**packages(), fact: None})[0] is None
    assert asked(monkeypatch, {GpuFacts: None}, locked=False)[0] is None


def test_nodes_without_real_gpus_are_asked_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    swaps, host = asked(monkeypatch, packages(nvidia_utils_580=()), simulated_gpus=True)
    assert (swaps, host.asked) == ((), [])


def test_the_question_is_a_question_of_the_moment() -> None:
    assert DriverUse().command("gpu-01").startswith("node=gpu-01 ")
