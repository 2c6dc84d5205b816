"""The installed wheel without a rack, in an empty folder with nothing but an inventory; tests/lab has its certify."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from rackproof.evidence.folder import kit_digest
from rackproof.kit import DATA, FOLDERS, LOCK
from tests.conftest import ROOT, Empty

RECORDINGS = ROOT / "tests/data/recordings/virtual-rack"
PLANS = ROOT / "tests/data/plans"
INVENTORY = """\
unreachable = {"ssh_hostname": "127.0.0.1", "ssh_port": 1, "virtual": True, "architecture": "virtual-rack"}
gpu = [
    ("gpu-01", {**unreachable, "fabric_addresses": ["10.77.0.21/24"], "simulated_gpus": True}),
    ("gpu-02", {**unreachable, "fabric_addresses": ["10.77.0.22/24"], "simulated_gpus": True}),
]
storage = [("storage-01", {**unreachable, "fabric_addresses": ["10.77.0.11/24"]})]
"""


def test_the_wheel_has_every_file_of_the_package_and_of_its_data(wheel: Path) -> None:
    def tracked(*paths: str) -> set[str]:
        listed = subprocess.run(["git", "ls-files", "--", *paths], cwd=ROOT, capture_output=True, text=True, check=True)
        return set(listed.stdout.split())

    expected = tracked("rackproof") | {f"rackproof/{DATA}/{name}" for name in tracked(*FOLDERS, LOCK)}
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == expected


def test_nothing_is_imported_from_the_checkout(empty: Empty) -> None:
    code = "import sys, rackproof, rackproof.kit; print(rackproof.__file__, rackproof.kit.root(), *sys.path, sep='\\n')"
    lines = empty("python", "-c", code).stdout.splitlines()
    assert lines
    assert not [line for line in lines if Path(line).is_relative_to(ROOT)]


def test_wheel_and_checkout_are_one_build(empty: Empty) -> None:
    code = "from rackproof.evidence.folder import kit_digest; print(kit_digest())"
    assert empty("python", "-c", code).stdout.strip() == kit_digest()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("arch", "list"), 0, "virtual-rack "),
        (("arch", "claims", "nvidia-dgx-h100"), 0, "nvidia-dgx-h100"),
        (("inputs",), 0, "versions.free_mib"),
        (("size", "nvidia-dgx-h100", "-w", "unet3d"), 0, "GB"),
        (("validate", "--from", str(RECORDINGS), "--architecture", "virtual-rack"), 0, "3 nodes: "),
        (("validate", "--from", str(RECORDINGS), "--architecture", "virtual-rack", "--limit", "!gpu"), 0, "1 node: "),
        (("plan", f"@recording/{PLANS}/debian13-l40s"), 0, " change"),
        (("plan", f"@recording/{PLANS}/debian13-l40s", "deploys/base.py"), 0, " change"),
        (("preflight", f"@recording/{PLANS}/debian13-l40s"), 0, "no problem"),
        (("plan", "none.py"), 3, "none.py: no such inventory file (examples: /"),
        (("selftest",), 3, "no catalogue of faults; run this in a checkout"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else "",
)
def test_what_needs_no_node(empty: Empty, arguments: tuple[str, ...], status: int, words: str) -> None:
    result = empty("rackproof", *arguments, RACKPROOF_PLAN_SECRET="hunter2")
    assert (result.returncode, words in result.stdout + result.stderr) == (status, True), result.stdout + result.stderr


def test_pyinfra_and_pytest_take_the_kits_files(empty: Empty) -> None:
    deploys, validators = (empty("rackproof", "paths", name).stdout.strip() for name in ("deploys", "validators"))
    plan = empty(
        "pyinfra", "--dry", f"@recording/{PLANS}/debian13-l40s", f"{deploys}/cluster.py", RACKPROOF_PLAN_SECRET="x"
    )
    assert plan.returncode == 0, plan.stderr
    assert "Base |" in plan.stderr
    checks = empty(
        "pytest", validators, "--from", str(RECORDINGS), "--architecture", "virtual-rack", "-q", "-k", "base"
    )
    assert checks.returncode == 0, checks.stdout


def test_a_site_has_a_deploy_of_its_own(empty: Empty) -> None:
    (empty.folder / "mine.py").write_text("from deploys.base import base\n\nbase()\n")
    result = empty("rackproof", "plan", f"@recording/{PLANS}/debian13-l40s", "mine.py", RACKPROOF_PLAN_SECRET="x")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("command", ["preflight", "deploy", "rollback"])
def test_unreachable_nodes_are_named_with_status_2(empty: Empty, command: str) -> None:
    (empty.folder / "rack.py").write_text(INVENTORY)
    result = empty("rackproof", command, "rack.py")
    assert result.returncode == 2, result.stderr
    assert "gpu-[01-02],storage-01: not " in result.stdout


def test_certify_needs_nothing_but_an_inventory(empty: Empty) -> None:
    (empty.folder / "rack.py").write_text(INVENTORY)
    result = empty("rackproof", "certify", "rack.py")
    assert result.returncode == 2, result.stdout + result.stderr
    (run,) = (empty.folder / "reports").iterdir()
    certificate = json.loads((run / "certificate.json").read_text())
    assert certificate["outcome"] == "INCOMPLETE"
    assert (run / "certificate.html").is_file()
    assert (run / "evidence.jsonl").is_file()
