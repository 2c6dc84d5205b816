"""What ``rackproof preflight`` stops at before anything is touched, and what the end of a deploy compares: written
racks that differ from a healthy one in one place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from rackproof.cli.main import cli
from rackproof.core.versions.document import sealed
from rackproof.run.plan import plan_deploys
from tests.unit.plan.golden import ROOT
from tests.unit.plan.test_version_sets import CASES, DEPLOY, Case, written


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
    (entry,) = [each for each in answers if each["match"] == "Managed by rackproof"]
    entry["stdout"] = "rail0 /etc/netplan/50-cloud-init.yaml\n" + entry["stdout"]
    path.write_text(yaml.safe_dump(answers))


def foreign_array(folder: Path) -> None:
    path = folder / "gpu-01/node.yaml"
    answers = yaml.safe_load(path.read_text())
    (entry,) = [each for each in answers if "member /dev/" in (each.get("stdout") or "")]
    entry["stdout"] = entry["stdout"].replace("zero=yes", "type=xfs\nlabel=home", 1)
    path.write_text(yaml.safe_dump(answers))


@pytest.mark.parametrize(
    ("case", "spoil", "said"),
    [
        (Case(), older_fabric_manager, ["fabric_manager.version", "[versions.contradiction]"]),
        (
            CASES["no room"],
            older_ofed,
            [
                "/var: 512 MiB free, 6144 wanted before packages are installed",
                "[versions.room]",
                "OFED 5.8-4.1.5.0 is installed and OFED 25.10 declared",
                "[nic.drivers]",
            ],
        ),
        (Case(), port_of_netplan, ["(/etc/netplan/50-cloud-init.yaml: rail0)", "[nic.foreign]"]),
        (Case(), foreign_array, ["expected a blank drive for the array", "actual xfs 'home'", "[drives.foreign]"]),
    ],
    ids=["set", "node", "port", "drive"],
)
def test_preflight_says_what_a_deploy_would_stop_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case, spoil: Callable[[Path], None], said: list[str]
) -> None:
    folder = written(tmp_path / "rack", case)
    spoil(folder)
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(cli, ["preflight", f"@recording/{folder}", "--limit", "gpu-01"])
    assert done.exit_code == 1, done.output
    for words in said:
        assert words in done.output


BUSY = '"4711 python3\\n--\\nslurmd\\n--\\nanswered\\n12\\n--\\nrackproof-end\\n"'


def busy(folder: Path) -> None:
    path = folder / "gpu-01/gpu.yaml"
    text = path.read_text()
    idle = '"--\\n--\\n--\\nrackproof-end\\n"'
    assert text.count(f"stdout: {idle}") == 1
    path.write_text(text.replace(f"stdout: {idle}", f"stdout: {BUSY}"))


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ((), 0),
        ((("libnccl2 2.28.3-1+", "libnccl2 2.27.2-1+"),), 0),
        ((("installed nvidia-fabricmanager 580.126.20", "installed nvidia-fabricmanager 580.95.05"),), 1),
        ((("installed doca-ofed 3.2.1-044000", "installed doca-ofed 3.2.0-012000"),), 1),
    ],
    ids=["nothing", "a library", "fabric manager", "network stack"],
)
def test_jobs_are_in_the_way_of_another_driver_and_of_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: tuple[tuple[str, str], ...], status: int
) -> None:
    folder = written(tmp_path / "rack", Case(changes=changes))
    busy(folder)
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(cli, ["preflight", f"@recording/{folder}", "--limit", "gpu-01"])
    assert done.exit_code == status, done.output
    assert ("programs on the GPUs: python3 (4711); Slurm's jobs 12; drain the node" in done.output) is bool(status)
    assert ("[gpu.busy]" in done.output) is bool(status)


def test_firmware_of_the_set_is_compared_at_the_end_of_a_deploy(tmp_path: Path) -> None:
    folder = written(tmp_path / "rack", Case())
    entry = {"model": "ConnectX-7", "version": "28.45.1200"}
    relocked(folder, lambda components: components.update(nic_firmware=[entry]))
    (tmp_path / "deploy.py").write_text(DEPLOY)
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        (plan,) = plan_deploys([f"@recording/{folder}"], str(tmp_path / "deploy.py"))
    finally:
        os.chdir(before)
    assert plan.error is None
    (operation,) = [each for each in plan.nodes[0].operations if each.name.endswith("Firmware of adapters")]
    # Before the run the tools are missing still.
    assert (operation.commands, operation.refused) == ((), None)
