"""A driver's branch without an exact version: apt itself stays in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rackproof.configure.gpu import packages
from rackproof.configure.gpu import repository as gpu_repository
from rackproof.configure.gpu.driver import choose
from rackproof.configure.gpu.inputs import GpuInputs
from tests.unit.configure.gpu.machines import declared_gpu, machine
from tests.unit.configure.gpu.test_deploy import index
from tests.unit.configure.versions import real_apt

pytestmark = pytest.mark.few(7)


@pytest.mark.skipif(not real_apt.AVAILABLE, reason="apt and dpkg are not here")
@pytest.mark.parametrize("system", ["debian 12", "debian 13", "ubuntu 22.04", "ubuntu 24.04"])
@pytest.mark.parametrize("branch", ["570", "580", "590"])
@pytest.mark.parametrize("gpu_id", ["2335", "2941"], ids=["switches", "imex"])
def test_apt_keeps_a_branch_where_the_repository_has_a_newer_one(
    tmp_path: Path, system: str, branch: str, gpu_id: str
) -> None:
    """Driver, fabric manager, NSCQ and IMEX, and what they depend on: one version of the declared branch."""
    target = machine(system, gpu_id, switches=4 if gpu_id == "2335" else 0)
    choice = choose(target, declared_gpu(1), GpuInputs(driver=branch, source="cuda"))
    pins = gpu_repository.entries(target, choice, None)[-1]
    assert pins.path == gpu_repository.PINS
    wanted = (*packages.driver(target, choice), *packages.fabric(target, choice))
    names = [package.name for package in wanted if package.name != "nvlsm"]
    names += ["firmware-nvidia-gsp", "libcuda1", "libnvidia-ptxjitcompiler1", "nvidia-modprobe"]
    apt = real_apt.RealApt(tmp_path)
    versions = [f"{branch}.126.20-1", f"{branch}.95.05-1", "610.10.01-1"]
    lines = [index(tmp_path, f"NVIDIA {k}", dict.fromkeys(names, version)) for k, version in enumerate(versions)]
    (tmp_path / "etc/apt/sources.list").write_text("".join(lines))
    (tmp_path / "etc/apt/preferences.d/60-rackproof-nvidia").write_text(pins.content)
    answer = apt.run(f"apt-get -q update >/dev/null && apt-cache policy {' '.join(names)}").stdout
    chosen = dict(re.findall(r"^(\S+):\n.*\n  Candidate: (\S+)$", answer, re.MULTILINE))
    assert chosen == dict.fromkeys(names, f"{branch}.126.20-1")
    assert all(package.satisfied_by(f"{branch}.126.20-1") for package in wanted if package.name in chosen)
    assert not any(package.satisfied_by("610.10.01-1") for package in wanted if package.name in chosen)
