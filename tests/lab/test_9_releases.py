"""Racks of other releases than the default one: from nothing to a second deploy without changes and a certificate."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rackproof.report.document import plain
from tests.lab.conftest import INVENTORY, ROOT

pytestmark = pytest.mark.long

STEP_S = 7200
"""Time limit of one command on a busy host; the first deploy of a rack is the longest."""
TWO_VERSIONS = r"client/server version mismatch|mpirun \(Open MPI\) 4\.\S+ on gpu-02, expected"
CHOICE = 'architecture = "virtual-rack"\n'
"""In the inventories' common data."""


@pytest.fixture
def rackproof(tmp_path: Path) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """The kit's commands in a folder with inventories and a rack of its own."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "rackproof", *arguments], cwd=tmp_path, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=STEP_S, check=False,
        )  # fmt: skip

    shutil.copytree(ROOT / "inventories", tmp_path / "inventories")
    yield run
    run("lab", "down", "--now")


@pytest.mark.parametrize(
    ("releases", "architecture"),
    [
        (("--release", "bookworm"), "virtual-rack"),  # the lab's inventory names that of Debian 12
        (("--release", "trixie", "--release", "gpu-02=bookworm"), str(ROOT / "tests" / "lab" / "two-releases.yaml")),
    ],
    ids=["Debian 12", "Debian 12 and 13"],
)
def test_a_rack_of_other_releases_is_deployed_once_and_certified(
    releases: tuple[str, ...],
    architecture: str,
    tmp_path: Path,
    rackproof: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    common = tmp_path / "inventories" / "group_data" / "all.py"
    text = common.read_text()
    assert CHOICE in text
    common.write_text(text.replace(CHOICE, f"architecture = {architecture!r}\n"))

    started = rackproof("lab", "up", *releases)
    assert started.returncode == 0, started.stderr
    for expected in ("changed", "no changes"):
        deployed = rackproof("deploy", INVENTORY)
        assert deployed.returncode == 0, deployed.stdout[-4000:]
        assert expected in deployed.stdout
    assert " changed " not in deployed.stdout

    certified = rackproof("certify", INVENTORY, "--no-deploy", "--output", "reports/certified")
    (document,) = (tmp_path / "reports" / "certified").glob("*/certificate.json")
    certificate = plain(json.loads(document.read_text()))
    failed = [v for v in certificate["verdicts"] if v["required"] and v["status"] == "FAIL"]
    assert failed == [], certified.stdout
    # One fio and one Open MPI run over all nodes of a step, so two versions of them give no number, and say so.
    unmeasured = [v["message"] for v in certificate["verdicts"] if v["required"] and v["status"] == "UNMEASURED"]
    assert all(re.search(TWO_VERSIONS, message) for message in unmeasured), unmeasured
    # A busy host makes numbers INVALID and blames nothing.
    assert (certified.returncode, certificate["outcome"]) in ((0, "CERTIFIED"), (2, "INCOMPLETE")), certified.stdout
