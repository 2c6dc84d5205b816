"""Slurm asks the kit on every node whether it is well: an ill node leaves the cluster and comes back when well."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rackproof.core.rack import Rack
from rackproof.remote.ssh import Fleet
from tests.lab.conftest import INVENTORY, Command

NODE = "gpu-02"
PROGRAM = "/usr/local/sbin/rackproof-health"
INSTALL_S = 3600
"""An environment for Python and two dozen packages, on two emulated nodes at once."""
NOTICED_S = 1200
"""An interval of Slurm's and a whole check, twice: one may be at work with what was before."""


@pytest.fixture
def asked_by_slurm(converged: Rack, command: Command, tmp_path: Path) -> Iterator[None]:
    """The same rack with the kit's health check, which the virtual rack leaves out: installing takes minutes there."""
    architecture = tmp_path / "asked.yaml"
    document = {
        "apiVersion": "refarch/v1",
        "extends": "virtual-rack",
        "metadata": {"id": "virtual-rack-asked", "version": "1.0.0", "title": "Virtual rack that Slurm asks"},
        "slurm": {"health_check": PROGRAM},
    }
    architecture.write_text(yaml.safe_dump(document, sort_keys=False))
    wishes = (
        f"architecture={architecture}",
        'health_check={"install": true, "time_limit_s": 900, "tags": ["base", "mount"]}',
        'slurm={"health_check_interval_s": 120}',
    )
    data = [word for wish in wishes for word in ("--data", wish)]
    done = command("rackproof", "deploy", INVENTORY, "--quiet", *data, timeout=INSTALL_S)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    yield
    undone = command("rackproof", "deploy", INVENTORY, "--quiet")
    assert undone.returncode == 0, undone.stdout + undone.stderr[-3000:]


def slurm_says(fleet: Fleet) -> str:
    answer = fleet["storage-01"].run(f"scontrol --oneliner show node {NODE}", 60)
    assert answer.ok, answer.why
    return answer.text


def wait_for(fleet: Fleet, drained: bool) -> str:
    deadline = time.monotonic() + NOTICED_S
    while ("DRAIN" in (said := slurm_says(fleet))) is not drained:
        last = fleet[NODE].run("cat /run/rackproof/health/last /run/rackproof/health/stderr", 60).text
        assert time.monotonic() < deadline, f"{said}\nits last check: {last}"
        time.sleep(10)
    return said


@pytest.mark.long
def test_an_ill_node_leaves_slurm_and_comes_back(asked_by_slurm: None, fleet: Fleet) -> None:
    told = fleet["storage-01"].run("scontrol show config", 60).text
    assert f"HealthCheckProgram      = {PROGRAM}" in told
    well = fleet[NODE].run("sysctl -n vm.swappiness", 30).text.strip()
    assert fleet[NODE].run("sysctl -qw vm.swappiness=77", 30).ok
    try:
        said = wait_for(fleet, drained=True)
        assert "Reason=rackproof: " in said
        assert "swappiness" in said
    finally:
        assert fleet[NODE].run(f"sysctl -qw vm.swappiness={well}", 30).ok
    wait_for(fleet, drained=False)
