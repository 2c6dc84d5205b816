"""Racks of other releases than the default one: from nothing to a second deploy without changes and a certificate."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rackproof.report.document import plain
from tests.lab.conftest import INVENTORY, ROOT, Command, choose

pytestmark = pytest.mark.long

TWO_VERSIONS = r"client/server version mismatch|mpirun \(Open MPI\) 4\.\S+ on gpu-02, expected"


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
    own_rack: Command,
) -> None:
    choose(tmp_path, architecture)

    started = own_rack("lab", "up", *releases)
    assert started.returncode == 0, started.stderr
    for expected in ("changed", "no changes"):
        deployed = own_rack("deploy", INVENTORY)
        assert deployed.returncode == 0, deployed.stdout[-4000:]
        assert expected in deployed.stdout
    assert " changed " not in deployed.stdout

    certified = own_rack("certify", INVENTORY, "--no-deploy", "--output", "reports/certified")
    (document,) = (tmp_path / "reports" / "certified").glob("*/certificate.json")
    certificate = plain(json.loads(document.read_text()))
    failed = [v for v in certificate["verdicts"] if v["required"] and v["status"] == "FAIL"]
    assert failed == [], certified.stdout
    # One fio and one Open MPI run over all nodes of a step, so two versions of them give no number, and say so.
    unmeasured = [v["message"] for v in certificate["verdicts"] if v["required"] and v["status"] == "UNMEASURED"]
    assert all(re.search(TWO_VERSIONS, message) for message in unmeasured), unmeasured
    # A busy host makes numbers INVALID and blames nothing.
    assert (certified.returncode, certificate["outcome"]) in ((0, "CERTIFIED"), (2, "INCOMPLETE")), certified.stdout
