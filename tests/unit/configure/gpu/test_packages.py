"""Names of packages by operating system, repository, branch and GPUs."""

from __future__ import annotations

import pytest

from rackproof.configure.gpu import packages
from rackproof.configure.gpu.driver import choose
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.package_transaction.transaction import Package
from tests.unit.configure.gpu.machines import declared_gpu, machine


def names(os: str, gpu: str, switches: int = 0, declared: dict | None = None, **inputs: object) -> list[str]:  # type: ignore[type-arg]
    target = machine(os, gpu, switches=switches)
    stack = GpuInputs.model_validate(inputs)
    gpus = declared_gpu(1, **(declared or {}))
    choice = choose(target, gpus, stack)
    wanted = (
        *(packages.headers(target, stack) if choice.dkms else ()),
        *packages.driver(target, choice),
        *packages.fabric(target, choice),
        *packages.tools(target, choice, stack, gpus),
        *packages.container_toolkit(stack),
    )
    return [f"{package.name}={package.version}" if package.version else package.name for package in wanted]


V = "580.126.20"
HEADERS = {"debian": "linux-headers-6.12.48+deb13-amd64", "ubuntu": "linux-headers-6.8.0-51-generic"}
RHEL = ["kernel-devel=5.14.0-427.13.1.el9_4", "kernel-headers"]


@pytest.mark.parametrize(
    ("os", "gpu", "inputs", "expected"),
    [
        ("debian 13", "26b9", {}, [HEADERS["debian"], "nvidia-kernel-dkms", "libcuda1", "libnvidia-ml1", "nvidia-smi",
                                   "nvidia-persistenced", "nvidia-modprobe"]),
        ("debian 13", "26b9", {"flavour": "open"}, [
            HEADERS["debian"], "nvidia-open-kernel-dkms", "libcuda1", "libnvidia-ml1", "nvidia-smi",
            "nvidia-persistenced", "nvidia-modprobe"]),
        ("debian 13", "26b9", {"driver": V}, [
            HEADERS["debian"], f"nvidia-kernel-open-dkms={V}-*", f"nvidia-driver-cuda={V}-*",
            f"nvidia-persistenced={V}-*"]),
        # Debian builds the daemon and nvidia-modprobe from sources of their own: they have other versions.
        ("debian 12", "1db1", {"driver": "535.247.01", "source": "distribution"}, [
            HEADERS["debian"], *(f"{tool}=535.247.01-*" for tool in (
                "nvidia-kernel-dkms", "libcuda1", "libnvidia-ml1", "nvidia-smi")),
            "nvidia-persistenced", "nvidia-modprobe"]),
        ("debian 12", "1db1", {"driver": V}, [
            HEADERS["debian"], f"nvidia-kernel-dkms={V}-*", f"nvidia-driver-cuda={V}-*", f"nvidia-persistenced={V}-*"]),
        ("debian 12", "20b2", {"driver": "550.54.15"}, [HEADERS["debian"], "cuda-drivers-550=550.54.15-*"]),
        ("ubuntu 24.04", "2335", {"driver": V}, [
            HEADERS["ubuntu"], f"nvidia-dkms-580-open={V}-*", f"libnvidia-compute-580={V}-*",
            f"libnvidia-cfg1-580={V}-*", f"nvidia-compute-utils-580={V}-*", f"nvidia-utils-580={V}-*"]),
        ("ubuntu 22.04", "1db1", {"driver": "580"}, [
            HEADERS["ubuntu"], "nvidia-dkms-580=580.*", "libnvidia-compute-580=580.*", "libnvidia-cfg1-580=580.*",
            "nvidia-compute-utils-580=580.*", "nvidia-utils-580=580.*"]),
        ("ubuntu 24.04", "2335", {"driver": "595"}, [
            HEADERS["ubuntu"], "nvidia-dkms-open=595.*", "libnvidia-compute=595.*", "nvidia-persistenced=595.*"]),
        ("ubuntu 24.04", "2335", {"source": "distribution", "driver": "580"}, [
            HEADERS["ubuntu"], "nvidia-headless-580-server-open", "nvidia-utils-580-server"]),
        ("ubuntu 24.04", "1db1", {"source": "distribution", "driver": "580"}, [
            HEADERS["ubuntu"], "nvidia-headless-580-server", "nvidia-utils-580-server"]),
        ("ubuntu 24.04", "2335", {"source": "distribution", "driver": V, "precompiled": True}, [
            "linux-modules-nvidia-580-server-open-6.8.0-51-generic", f"nvidia-headless-no-dkms-580-server-open={V}-*",
            f"nvidia-utils-580-server={V}-*"]),
        ("rocky 9.4", "2335", {"driver": V}, [
            *RHEL, f"kmod-nvidia-open-dkms={V}-*", f"nvidia-driver-cuda={V}-*", f"nvidia-persistenced={V}-*"]),
        ("rhel 9.4", "1db1", {"driver": "580"}, [
            *RHEL, "kmod-nvidia-latest-dkms=580.*", "nvidia-driver-cuda=580.*", "nvidia-persistenced=580.*"]),
        ("rhel 9.4", "1db1", {"driver": V, "precompiled": True}, [
            f"kmod-nvidia-{V}-5.14.0-427.13.1", f"nvidia-driver-cuda={V}-*", f"nvidia-persistenced={V}-*"]),
    ],
)  # fmt: skip
def test_driver(os: str, gpu: str, inputs: dict[str, object], expected: list[str]) -> None:
    assert names(os, gpu, **inputs) == expected


@pytest.mark.parametrize(
    ("os", "gpu", "switches", "inputs", "expected"),
    [
        ("ubuntu 24.04", "2335", 4, {"driver": V}, [f"nvidia-fabricmanager={V}-*", f"libnvidia-nscq={V}-*"]),
        ("ubuntu 24.04", "2335", 4, {"driver": "570.172.08"},
         ["nvidia-fabricmanager-570=570.172.08-*", "libnvidia-nscq-570=570.172.08-*"]),
        ("ubuntu 24.04", "2335", 4, {"driver": V, "source": "distribution"},
         [f"nvidia-fabricmanager-580={V}-*", f"libnvidia-nscq-580={V}-*"]),
        ("rocky 9.4", "2335", 4, {"driver": "570.172.08"},
         ["nvidia-fabric-manager=570.172.08-*", "libnvidia-nscq-570=570.172.08-*"]),
        ("rocky 9.4", "2901", 0, {"driver": V},
         [f"nvidia-fabricmanager={V}-*", f"libnvidia-nscq={V}-*", "nvlsm", f"nvlink5-580={V}-*"]),
        ("ubuntu 24.04", "3182", 0, {"driver": "595"},
         ["nvidia-fabricmanager=595.*", "libnvidia-nscq=595.*", "nvlsm", "nvlink5=595.*"]),
        ("ubuntu 24.04", "2941", 0, {"driver": V}, [f"nvidia-imex={V}-*"]),
        ("ubuntu 24.04", "2941", 0, {"driver": "570.172.08"}, ["nvidia-imex-570=570.172.08-*"]),
        ("ubuntu 24.04", "26b9", 0, {"driver": V}, []),
    ],
)  # fmt: skip
def test_fabric(os: str, gpu: str, switches: int, inputs: dict[str, object], expected: list[str]) -> None:
    with_driver = names(os, gpu, switches, **inputs)
    known = ("fabric", "nscq", "nvl", "imex")
    assert [name for name in with_driver if any(word in name for word in known)] == expected


@pytest.mark.parametrize(
    ("os", "declared", "inputs", "expected"),
    [
        ("ubuntu 24.04", {"dcgm_level": 1}, {}, ["datacenter-gpu-manager-4-cuda13"]),
        ("rocky 9.4", {"dcgm_level": 1}, {"driver": "570"}, ["datacenter-gpu-manager-4-cuda12"]),
        ("rocky 9.4", {"dcgm_level": 1}, {"dcgm": False}, []),
        ("ubuntu 24.04", {}, {"cuda": "13.0", "nccl": "2.28.3-1+cuda13.0"},
         ["cuda-toolkit-13-0", "libnccl2=2.28.3-1+cuda13.0", "libnccl-dev=2.28.3-1+cuda13.0"]),
        ("rocky 9.4", {}, {"nccl": "2.28.3-1+cuda13.0"},
         ["libnccl=2.28.3-1+cuda13.0", "libnccl-devel=2.28.3-1+cuda13.0"]),
        ("ubuntu 24.04", {"gds": "NVMe"}, {}, ["nvidia-gds"]),
        ("ubuntu 24.04", {"gds": "NVMe"}, {"cuda": "13.0", "gds_method": "p2pdma"},
         ["cuda-toolkit-13-0", "libcufile-13-0", "gds-tools-13-0"]),
        ("ubuntu 24.04", {}, {"gdrcopy": True}, ["gdrdrv-dkms", "libgdrapi", "gdrcopy"]),
        ("rocky 9.4", {}, {"gdrcopy": True, "packages": ["nsight-systems"]},
         ["gdrcopy-kmod", "gdrcopy", "nsight-systems"]),
        ("ubuntu 24.04", {}, {"container_toolkit": "1.18.0-1"}, [f"{tool}=1.18.0-1" for tool in packages.TOOLKIT]),
        ("ubuntu 24.04", {}, {"runtimes": ["docker"]}, list(packages.TOOLKIT)),
    ],
)  # fmt: skip
def test_tools(os: str, declared: dict[str, object], inputs: dict[str, object], expected: list[str]) -> None:
    base = {key: value for key, value in inputs.items() if key == "driver"}
    assert names(os, "2335", declared=declared, **inputs)[len(names(os, "2335", **base)) :] == expected


@pytest.mark.parametrize(
    ("wanted", "installed", "expected"),
    [
        (None, "anything", True),
        (None, None, False),
        (f"{V}-*", f"{V}-0ubuntu1", True),
        (f"{V}-*", f"3:{V}-1.el9", True),
        (f"{V}-*", "580.126.2-1", False),
        ("580.126.2-*", f"{V}-1", False),
        ("1.18.0-1", "1.18.0-1", True),
        ("1.18.0-1", "1.18.0-10", False),
        ("2.28.3-1+cuda13.0", "2.28.3-1+cuda13.0", True),
        ("2.28.3-1+cuda13.0", "2.28.3-1+cuda12.9", False),
        (f"3:{V}-1.el9", f"{V}-1.el9", True),
    ],
)
def test_versions(wanted: str | None, installed: str | None, expected: bool) -> None:
    assert Package("nvidia", wanted).satisfied_by(installed) is expected


@pytest.mark.parametrize(
    ("os", "gpu", "inputs", "expected"),
    [
        ("rocky 9.4", "2335", {"driver": V}, "580-open"),
        ("rocky 9.4", "1db1", {"driver": V}, "580-dkms"),
        ("rocky 9.4", "1db1", {"driver": V, "precompiled": True}, "580"),
        ("ubuntu 24.04", "2335", {"driver": V}, None),
    ],
)
def test_streams_of_rhel(os: str, gpu: str, inputs: dict[str, object], expected: str | None) -> None:
    target = machine(os, gpu)
    assert packages.stream(target, choose(target, declared_gpu(1), GpuInputs.model_validate(inputs))) == expected
