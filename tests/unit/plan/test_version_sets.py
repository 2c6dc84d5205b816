"""The version-set steps of written racks that are as their set says, and of racks that contradict it in one place.

Only these steps: the rest of such a rack would have to be written down as converged too. The answers about packages,
keys, kernels and modules stand in ``converged/versions.yaml`` of the rack; those about the repositories' files are the
files that the set calls for, as what stands in them is in the golden plans.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from rackproof.configure.files import RemoteFile
from rackproof.configure.versions import repositories
from rackproof.core.plan import NodePlan, PlannedOperation, RackPlan
from rackproof.core.versions import platform_of, stage_packages
from rackproof.parse.machine import MACHINE_COMMAND, parse_machine
from rackproof.remote.written import read_written
from rackproof.run.plan import plan_deploys
from rackproof.version_sets import load_versions
from tests.unit.plan.golden import PLANS, ROOT

pytestmark = pytest.mark.usefixtures("warm_python")

UBUNTU = "hgx-h200-ubuntu2404-roce"
ROCKY = "dgx-b200-rocky94-ib"
DEPLOY = """\
from deploys.versions import hold_and_read_back, kernel, network_stack, repositories, rest

repositories()
kernel()
network_stack()
rest()
hold_and_read_back()
"""
RUNNING = {UBUNTU: ("6.8.0-51-generic", "6.8.0-87-generic"), ROCKY: ("427.13.1.el9_4", "427.42.1.el9_4")}
KEY = "f3c1a9d2e4b5968778695a4b3c2d1e0ff0e1d2c3b4a5968778695a4b3c2d1e0f"
OTHER_KEY = "d" * 64
RUNS = "    6.8.0-87-generic\n    --\n   "


@dataclass(frozen=True)
class Case:
    """A difference from a converged rack: a text and its replacement."""

    rack: str = UBUNTU
    changes: tuple[tuple[str, str], ...] = field(default=())


CASES = {
    "ubuntu": Case(),
    "rocky": Case(ROCKY),
    "held at another version": Case(changes=(("libnccl2 2.28.3-1+", "libnccl2 2.29.2-1+"),)),
    "locked at another version": Case(
        ROCKY,
        (
            ("installed libnccl 0:2.28.3-1+", "installed libnccl 0:2.27.7-1+"),
            ("libnccl-0:2.28.3-1+", "libnccl-0:2.27.7-1+"),
        ),
    ),
    "not held": Case(changes=(("    nvidia-fabricmanager\n", ""),)),
    "another key": Case(changes=((KEY, OTHER_KEY),)),
    "another kernel": Case(changes=((f"{RUNS} 6.8", "    6.8.0-51-generic\n    --\n    6.8"),)),
    "a newer kernel": Case(
        changes=(
            (f"{RUNS} 6.8", "    6.8.0-90-generic\n    --\n    6.8"),
            ("    6.8.0-87-generic\n    --\n    --", "    6.8.0-87-generic\n    6.8.0-90-generic\n    --\n    --"),
        )
    ),
    "built for another kernel": Case(
        changes=(("nvidia/580.126.20, 6.8.0-87-generic", "nvidia/580.126.20, 6.8.0-51-generic"),)
    ),
    "no room": Case(
        changes=(
            ("    installed doca-ofed 3.2.1-044000\n", ""),
            ("810004480 50% /\n    /boot", "524288 50% /\n    /boot"),
        )
    ),
}


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RackPlan]:
    folder = tmp_path_factory.mktemp("racks")
    (folder / "deploy.py").write_text(DEPLOY)
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        racks = [written(folder / str(number), case) for number, case in enumerate(CASES.values())]
        made = plan_deploys([f"@recording/{rack}" for rack in racks], str(folder / "deploy.py"))
    finally:
        os.chdir(before)
    return dict(zip(CASES, made, strict=True))


def written(folder: Path, case: Case) -> Path:
    """The rack with its set in force, but for what is otherwise in this case."""
    source = ROOT / PLANS / case.rack
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("golden", "converged"))
    for path in (folder / "gpu-01").glob("*.yaml"):
        path.write_text(path.read_text().replace(*RUNNING[case.rack]))
    text = (source / "converged/versions.yaml").read_text()
    for old, new in case.changes:
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the answers"
        text = text.replace(old, new)
    (folder / "gpu-01/00-versions.yaml").write_text(text)
    (folder / "gpu-01/01-files.yaml").write_text(file_answers(folder))
    return folder


def file_answers(folder: Path) -> str:
    """Answer of FileStates where every repository file is as in the set."""
    answer = read_written(folder).answers["gpu-01"].run(f"{MACHINE_COMMAND}; echo rackproof-end", 1)
    machine = parse_machine(answer.stdout.decode().splitlines()[:-1])
    versions = load_versions(folder / "versions.lock.yaml")
    platform = platform_of(versions, machine)
    names = {package.repository for package in stage_packages(versions, machine, "all")}
    used = {name: repository for name, repository in platform.repositories.items() if name in names}
    entries = repositories.files(platform, used, machine, {})
    return yaml.safe_dump([{"match": entries[-1].path, "stdout": "\n".join(file_states(entries)) + "\n"}])


def file_states(entries: Iterable[RemoteFile]) -> Iterable[str]:
    contents = {entry.path: entry.content.encode() for entry in entries}
    yield from (f"{path}|regular file|644|root|root" for path in contents)
    yield "--"
    yield from (f"{hashlib.sha256(content).hexdigest()}  {path}" for path, content in contents.items())
    yield "--"
    yield from (f"{path}|{base64.b64encode(content).decode()}" for path, content in contents.items())
    yield "rackproof-end"


def first(plan: RackPlan) -> NodePlan:
    assert plan.error is None
    assert plan.nodes[0].lost is None
    return plan.nodes[0]


def only_change(plan: RackPlan) -> PlannedOperation:
    (operation,) = first(plan).changing
    assert first(plan).refusals == ()
    return operation


@pytest.mark.parametrize("name", ["ubuntu", "rocky"])
def test_a_rack_that_is_as_its_set_says_is_left_alone(plans: dict[str, RackPlan], name: str) -> None:
    for node in plans[name].nodes:
        assert node.lost is None
        assert node.refusals == ()
        assert [operation.name for operation in node.changing] == []
        assert len(node.operations) >= 10
        assert [line for operation in node.operations for line in operation.reboots] == []


def test_a_package_held_at_another_version_is_named_and_never_downgraded_unasked(plans: dict[str, RackPlan]) -> None:
    operation = only_change(plans["held at another version"])
    assert operation.name == "Versions: the rest | GPU tools"
    assert operation.lines == ("libnccl2: 2.29.2-1+cuda13.0, held -> 2.28.3-1+cuda13.0",)
    script = operation.commands[0]
    # Neither removals nor downgrades are allowed; the hold is taken off for the package by the transaction.
    assert "set -- libnccl2=2.28.3-1+cuda13.0\nrp_install '' '' \"$@\"\n" in script


def test_a_lock_on_another_version_goes_and_the_right_one_is_held_in_its_place(plans: dict[str, RackPlan]) -> None:
    install, hold = first(plans["locked at another version"]).changing
    assert install.lines == ("libnccl: 0:2.27.7-1+cuda13.0, held -> 2.28.3-1+cuda13.0",)
    assert "set -- libnccl=2.28.3-1+cuda13.0\n" in install.commands[0]
    assert "rp_hold libnccl\n" in hold.commands[0]
    assert hold.lines == ("hold libnccl 2.28.3-1+cuda13.0",)


def test_what_is_installed_and_not_held_is_held(plans: dict[str, RackPlan]) -> None:
    operation = only_change(plans["not held"])
    assert operation.lines == ("hold nvidia-fabricmanager 580.126.20-1ubuntu1",)
    assert "rp_hold nvidia-fabricmanager\n" in operation.commands[0]


def test_another_key_is_named_with_both_digests_and_only_this_one_is_fetched(plans: dict[str, RackPlan]) -> None:
    operation = only_change(plans["another key"])
    assert operation.lines == (f"key of cuda: sha256 {OTHER_KEY} -> sha256 {KEY}",)
    assert re.search(rf"rp_fetch \S+ {KEY} .*the key of cuda has changed", operation.commands[0])
    assert "doca" not in operation.commands[0]


def test_another_kernel_that_runs_asks_for_a_reboot_and_changes_nothing_else(plans: dict[str, RackPlan]) -> None:
    operation = only_change(plans["another kernel"])
    assert operation.reboots == ("kernel 6.8.0-87-generic is locked and another one runs",)
    assert operation.lines == ("6.8.0-51-generic runs",)
    assert "GRUB_DEFAULT" not in operation.commands[0]


def test_a_newer_kernel_does_not_start_again(plans: dict[str, RackPlan]) -> None:
    operation = only_change(plans["a newer kernel"])
    assert operation.lines == ("the default kernel is 6.8.0-90-generic", "6.8.0-90-generic runs")
    assert "GRUB_DEFAULT" in operation.commands[0]


def test_a_module_of_another_kernel_is_built_for_the_one_that_runs(plans: dict[str, RackPlan]) -> None:
    operation = only_change(plans["built for another kernel"])
    assert operation.name == "Versions: the rest | GPU driver: modules"
    assert operation.lines == ("nvidia is not installed for 6.8.0-87-generic",)
    assert "kernel=6.8.0-87-generic" in operation.commands[0]
    assert "modules=nvidia\n" in operation.commands[0]


def test_no_room_is_refused_with_what_is_wanted(plans: dict[str, RackPlan]) -> None:
    (refused,) = first(plans["no room"]).refusals
    assert refused.name == "Versions: network stack | Network stack"
    assert refused.refused is not None
    assert refused.refused.startswith("/var: 512 MiB free, 6144 wanted before packages are installed")
