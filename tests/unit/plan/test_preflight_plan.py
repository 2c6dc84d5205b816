"""Faults that stop ``rackproof preflight`` before anything is touched, and those that the end of a deploy compares:
written racks that differ from a healthy one in one place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from rackproof import kit
from rackproof.cli.main import cli
from rackproof.core.plan import RackPlan
from rackproof.core.versions.document import sealed
from rackproof.run.plan import plan_deploys
from tests.unit.plan.golden import ROOT
from tests.unit.plan.test_version_sets import CASES, DEPLOY, Case, written

pytestmark = pytest.mark.usefixtures("warm_python")


def relocked(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """The rack's set with another content, locked again."""
    path = folder / "versions.lock.yaml"
    document = yaml.safe_load(path.read_text())
    document.pop("digest")
    change(document["platforms"]["ubuntu-24.04"]["components"])
    path.write_text(sealed(yaml.safe_dump(document, sort_keys=False), path.name))


def older_fabric_manager(folder: Path) -> None:
    relocked(folder, lambda components: components["fabric_manager"].update(version="580.95.05"))


def older_ofed(folder: Path) -> None:
    path = folder / "gpu-01/nic.yaml"
    text = path.read_text()
    assert text.count("    ofed \n") == 1
    path.write_text(text.replace("    ofed \n", "    ofed 5.8-4.1.5.0\n"))


def port_of_netplan(folder: Path) -> None:
    path = folder / "gpu-01/nic.yaml"
    answers = yaml.safe_load(path.read_text())
    (entry,) = [answer for answer in answers if answer["match"] == "Managed by rackproof"]
    entry["stdout"] = "rail0 /etc/netplan/50-cloud-init.yaml\n" + entry["stdout"]
    path.write_text(yaml.safe_dump(answers))


def foreign_array(folder: Path) -> None:
    path = folder / "gpu-01/node.yaml"
    answers = yaml.safe_load(path.read_text())
    (entry,) = [answer for answer in answers if "member /dev/" in (answer.get("stdout") or "")]
    entry["stdout"] = entry["stdout"].replace("zero=yes", "type=xfs\nlabel=home", 1)
    path.write_text(yaml.safe_dump(answers))


BUSY = '"4711 python3\\n--\\nslurmd\\n--\\nanswered\\n12\\n--\\nrackproof-end\\n"'


def busy(folder: Path) -> None:
    path = folder / "gpu-01/gpu.yaml"
    text = path.read_text()
    idle = '"--\\n--\\n--\\nrackproof-end\\n"'
    assert text.count(f"stdout: {idle}") == 1
    path.write_text(text.replace(f"stdout: {idle}", f"stdout: {BUSY}"))


STOPS: dict[str, tuple[Case, Callable[[Path], None], list[str]]] = {
    "set": (Case(), older_fabric_manager, ["fabric_manager.version", "[versions.contradiction]"]),
    "node": (
        CASES["no room"],
        older_ofed,
        [
            "/var: 512 MiB free, 6144 wanted before packages are installed",
            "[versions.room]",
            "OFED 5.8-4.1.5.0 is installed and OFED 25.10 declared",
            "[nic.drivers]",
        ],
    ),
    "port": (Case(), port_of_netplan, ["(/etc/netplan/50-cloud-init.yaml: rail0)", "[nic.foreign]"]),
    "drive": (
        Case(),
        foreign_array,
        ["expected a blank drive for the array", "actual xfs 'home'", "[drives.foreign]"],
    ),
}
"""Differences from a healthy rack, and output of preflight."""
UNDER_JOBS: dict[str, tuple[Case, int]] = {
    "nothing": (Case(), 0),
    "a library": (Case(changes=(("libnccl2 2.28.3-1+", "libnccl2 2.27.2-1+"),)), 0),
    "fabric manager": (
        Case(changes=(("installed nvidia-fabricmanager 580.126.20", "installed nvidia-fabricmanager 580.95.05"),)),
        1,
    ),
    "network stack": (Case(changes=(("installed doca-ofed 3.2.1-044000", "installed doca-ofed 3.2.0-012000"),)), 1),
}
"""Differences from a healthy rack whose GPUs are in use, and preflight's exit status."""
LIMIT = ("gpu-01",)
Preflight = Callable[[str], Result]


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RackPlan]:
    """Plan of preflight for every rack above, all made in one process."""
    base = tmp_path_factory.mktemp("racks")
    spoilt = {name: (case, spoil) for name, (case, spoil, _) in STOPS.items()}
    spoilt |= {name: (case, busy) for name, (case, _) in UNDER_JOBS.items()}
    folders = []
    for number, (case, spoil) in enumerate(spoilt.values()):
        folders.append(written(base / str(number), case))
        spoil(folders[-1])
    with contextlib.chdir(ROOT):
        made = plan_deploys([f"@recording/{folder}" for folder in folders], kit.PREFLIGHT, limit=LIMIT)
    return dict(zip(spoilt, made, strict=True))


@pytest.fixture
def preflight(plans: dict[str, RackPlan], monkeypatch: pytest.MonkeyPatch) -> Preflight:
    """The command on one of these racks, with the plan that was made beforehand."""

    def planned(
        inventories: list[str], deploy: str, *, limit: tuple[str, ...], data: tuple[str, ...]
    ) -> list[RackPlan]:
        assert deploy == kit.PREFLIGHT
        assert (limit, data) == (LIMIT, ())
        return [plans[inventory] for inventory in inventories]

    monkeypatch.setattr("rackproof.run.plan.plan_deploys", planned)
    return lambda rack: CliRunner().invoke(cli, ["preflight", rack, "--limit", *LIMIT])


@pytest.mark.parametrize("rack", STOPS)
def test_preflight_says_what_a_deploy_would_stop_at(preflight: Preflight, rack: str) -> None:
    result = preflight(rack)
    assert result.exit_code == 1, result.output
    for words in STOPS[rack][2]:
        assert words in result.output


@pytest.mark.parametrize("rack", UNDER_JOBS)
def test_jobs_are_in_the_way_of_another_driver_and_of_nothing_else(preflight: Preflight, rack: str) -> None:
    result, status = preflight(rack), UNDER_JOBS[rack][1]
    assert result.exit_code == status, result.output
    assert ("programs on the GPUs: python3 (4711); Slurm's jobs 12; drain the node" in result.output) is bool(status)
    assert ("[gpu.busy]" in result.output) is bool(status)


def test_preflight_plans_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "rack", Case())
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(cli, ["preflight", f"@recording/{folder}", "--limit", *LIMIT])
    assert result.exit_code == 0, result.output


def test_firmware_of_the_set_is_compared_at_the_end_of_a_deploy(tmp_path: Path) -> None:
    folder = written(tmp_path / "rack", Case())
    entry = {"model": "ConnectX-7", "version": "28.45.1200"}
    relocked(folder, lambda components: components.update(nic_firmware=[entry]))
    (tmp_path / "deploy.py").write_text(DEPLOY)
    with contextlib.chdir(ROOT):
        (plan,) = plan_deploys([f"@recording/{folder}"], str(tmp_path / "deploy.py"))
    assert plan.error is None
    (operation,) = [planned for planned in plan.nodes[0].operations if planned.name.endswith("Firmware of adapters")]
    # Before the run the tools are missing still.
    assert (operation.commands, operation.refused) == ((), None)
