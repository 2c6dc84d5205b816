"""The wheel, built and installed in an environment of its own, in an empty folder with nothing but an inventory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from rackproof.kit import DATA, FOLDERS, LOCK

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "tests/data/recordings/virtual-rack"
PLANS = ROOT / "tests/data/plans"
TIMEOUT_S = 900
INVENTORY = """\
unreachable = {"ssh_hostname": "127.0.0.1", "ssh_port": 1, "virtual": True, "architecture": "virtual-rack"}
gpu = [
    ("gpu-01", {**unreachable, "fabric_addresses": ["10.77.0.21/24"], "simulated_gpus": True}),
    ("gpu-02", {**unreachable, "fabric_addresses": ["10.77.0.22/24"], "simulated_gpus": True}),
]
storage = [("storage-01", {**unreachable, "fabric_addresses": ["10.77.0.11/24"]})]
"""


def uv(*arguments: str) -> None:
    program = os.environ.get("UV") or shutil.which("uv") or str(ROOT / ".tools/bin/uv")
    subprocess.run([program, *arguments, "-q"], cwd=ROOT, check=True, timeout=TIMEOUT_S)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    uv("build", "--wheel", "-o", str(folder))
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``bin`` of an environment with the wheel and the locked versions of what it depends on."""
    folder = tmp_path_factory.mktemp("environment")
    uv("venv", str(folder / "venv"))
    uv("export", "--frozen", "--no-dev", "--no-emit-project", "-o", str(folder / "requirements.txt"))
    python = str(folder / "venv/bin/python")
    uv("pip", "install", "--python", python, "-r", str(folder / "requirements.txt"))
    uv("pip", "install", "--python", python, "--no-deps", str(wheel))
    return folder / "venv/bin"


class Empty:
    """An empty folder, and the installed programs in it."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self._programs = programs

    def __call__(self, program: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        path = f"{self._programs}:/usr/sbin:/usr/bin:/sbin:/bin"
        return subprocess.run(
            [self._programs / program, *arguments],
            cwd=self.folder,
            env={"PATH": path, "HOME": str(self.folder), "LANG": "C.UTF-8", **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )


@pytest.fixture
def empty(programs: Path, tmp_path: Path) -> Empty:
    return Empty(tmp_path, programs)


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


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("arch", "list"), 0, "virtual-rack "),
        (("arch", "claims", "nvidia-dgx-h100"), 0, "nvidia-dgx-h100"),
        (("inputs",), 0, "versions.free_mib"),
        (("size", "nvidia-dgx-h100", "-w", "unet3d"), 0, "GB"),
        (("validate", "--from", str(RECORDINGS), "--architecture", "virtual-rack"), 0, "3 nodes: "),
        (("validate", "--from", str(RECORDINGS), "--architecture", "virtual-rack", "--limit", "!gpu"), 0, "1 nodes: "),
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
