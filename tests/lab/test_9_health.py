"""Slurm asks the kit on every node whether it is well: an ill node leaves the cluster and comes back when well.

The nodes install from a folder with wheels, as in a rack without a way out: this machine may trust the certificate of a
proxy that they do not know.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from packaging.markers import Marker

from rackproof.configure.health_check import kit
from rackproof.core.rack import Rack
from rackproof.remote.fleet import Fleet
from tests.lab.conftest import INVENTORY, Command

NODE = "gpu-02"
PROGRAM = "/usr/local/sbin/rackproof-health"
WHEELS = "/var/tmp/wheels"
GLIBC = ("2_17", "2_28", "2_34")
"""Versions of glibc of wheels that a current distribution takes."""
INSTALL_S = 3600
"""An environment for Python and two dozen packages, on two emulated nodes at once."""
NOTICED_S = 1200
"""An interval of Slurm's and a whole check, twice: one may be at work with what was before."""


@pytest.fixture
def wheels(converged: Rack, tmp_path: Path) -> str:
    """A folder on every node that Slurm asks, filled as a site fills it: with pip, by the kit's own list."""
    with Fleet(converged) as fleet:
        answer = fleet[NODE].run("/usr/bin/python3 -c 'import sys; print(*sys.version_info[:2], sep=\".\")'", 300)
        assert answer.ok, answer.why
    python, loaded = answer.text.strip(), tmp_path / "wheels"
    # pip would ask the markers about the Python that it runs on.
    fitting = [
        wheel.line.replace(f" ; {wheel.marker}", "")
        for wheel in kit.wheels()
        if not wheel.marker or Marker(wheel.marker).evaluate({"python_full_version": f"{python}.0"})
    ]
    wanted = tmp_path / "requirements.txt"
    wanted.write_text("\n".join((*fitting, "")))
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "pip")], check=True, timeout=300)
    platforms = [word for glibc in GLIBC for word in ("--platform", f"manylinux_{glibc}_x86_64")]
    subprocess.run(
        [
            str(tmp_path / "pip/bin/pip"), "download", "--quiet", "--no-deps", "--only-binary", ":all:",
            "--require-hashes", "--python-version", python, *platforms, "-d", str(loaded), "-r", str(wanted),
        ],
        check=True, timeout=600,
    )  # fmt: skip
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(loaded, ".")
    unpack = f"rm -rf {WHEELS} && mkdir {WHEELS} && tar -x -f - -C {WHEELS}"
    with Fleet(converged) as fleet:
        for name in ("gpu-01", NODE):
            result = fleet[name].run(unpack, 300, stdin=packed.getvalue())
            assert result.ok, result.why
    return WHEELS


@pytest.fixture
def asked_by_slurm(converged: Rack, command: Command, tmp_path: Path, wheels: str) -> Iterator[None]:
    """The same rack with the kit's health check, which the virtual rack leaves out: installing takes minutes there."""
    architecture = tmp_path / "asked.yaml"
    document = {
        "apiVersion": "refarch/v1",
        "extends": "virtual-rack",
        "metadata": {"id": "virtual-rack-asked", "version": "1.0.0", "title": "Virtual rack that Slurm asks"},
        "slurm": {"health_check": PROGRAM},
    }
    architecture.write_text(yaml.safe_dump(document, sort_keys=False))
    inputs = (
        f"architecture={architecture}",
        f'health_check={{"install": true, "wheelhouse": "{wheels}", "time_limit_s": 900, "tags": ["base", "mount"]}}',
        'slurm={"health_check_interval_s": 120}',
    )
    data = [word for value in inputs for word in ("--data", value)]
    try:
        result = command("rackproof", "deploy", INVENTORY, "--quiet", *data, timeout=INSTALL_S)
        assert result.returncode == 0, result.stdout + result.stderr[-3000:]
        yield
    finally:
        undone = command("rackproof", "deploy", INVENTORY, "--quiet")
    assert undone.returncode == 0, undone.stdout + undone.stderr[-3000:]


def slurm_says(fleet: Fleet) -> str:
    answer = fleet["storage-01"].run(f"scontrol --oneliner show node {NODE}", 300)
    assert answer.ok, answer.why
    return answer.text


def wait_for(fleet: Fleet, drained: bool) -> str:
    deadline = time.monotonic() + NOTICED_S
    while ("DRAIN" in (state := slurm_says(fleet))) is not drained:
        last = fleet[NODE].run("cat /run/rackproof/health/last /run/rackproof/health/stderr", 300).text
        assert time.monotonic() < deadline, f"{state}\nits last check: {last}"
        time.sleep(10)
    return state


@pytest.mark.long
def test_an_ill_node_leaves_slurm_and_comes_back(asked_by_slurm: None, fleet: Fleet) -> None:
    config = fleet["storage-01"].run("scontrol show config", 300).text
    assert f"HealthCheckProgram      = {PROGRAM}" in config
    wait_for(fleet, drained=False)
    well = fleet[NODE].run("sysctl -n vm.swappiness", 300).text.strip()
    assert fleet[NODE].run("sysctl -qw vm.swappiness=77", 300).ok
    try:
        state = wait_for(fleet, drained=True)
        assert "Reason=rackproof: " in state
        assert "swappiness" in state
    finally:
        assert fleet[NODE].run(f"sysctl -qw vm.swappiness={well}", 300).ok
    wait_for(fleet, drained=False)
