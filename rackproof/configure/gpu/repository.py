"""Repositories that the packages of the GPU stack come from, and must not come from, without a version set."""

from __future__ import annotations

from rackproof.configure.files import RemoteFile
from rackproof.configure.gpu.driver import Choice
from rackproof.configure.inputs import Repository
from rackproof.configure.shared_files import rendered
from rackproof.configure.versions.repositories import declared_file
from rackproof.core.machine import Machine

NAME = "cuda"
_MORE = ("repo_gpgcheck=1", "excludepkgs=mft* kernel-mft*")
"""Lines of dnf's file."""
PINS = "/etc/apt/preferences.d/60-rackproof-nvidia"
DRIVER_PACKAGES = (
    "nvidia-dkms* nvidia-driver* nvidia-headless* nvidia-utils* nvidia-compute-utils* nvidia-kernel-* nvidia-open*"
    " libnvidia-compute* libnvidia-cfg1* nvidia-fabricmanager* cuda-drivers* libcuda1"
)
OWN_DRIVER_PACKAGES = (
    f"{DRIVER_PACKAGES} nvidia-persistenced* nvidia-modprobe* nvidia-smi* nvidia-settings* nvidia-alternative*"
    " nvidia-legacy-check* nvidia-support* nvidia-firmware* firmware-nvidia-* nvidia-imex* libnvidia-common*"
    " libnvidia-decode* libnvidia-encode* libnvidia-extra* libnvidia-gl* libnvidia-gpucomp* libnvidia-ml*"
    " libnvidia-nscq* libnvidia-nvvm* libnvidia-ptxjitcompiler*"
)
"""Also packages of the same name at the distribution and NVIDIA, where the driver is the distribution's and NVIDIA's
repository is there for the tools."""


def pinned(choice: Choice) -> str | None:
    """The driver's version in apt's notation, or its branch, as NVIDIA's packages ``nvidia-driver-pinning-…`` pin them
    (driver installation guide, version locking); RHEL's module streams do it there. A distribution has one branch under
    one name."""
    if choice.version:
        return f"{choice.version}-*"
    return f"{choice.branch}.*" if choice.source == "cuda" else None


def entries(machine: Machine, choice: Choice, repository: Repository | None) -> tuple[RemoteFile, ...]:
    """The repository, where something comes from it, and apt's pins: the whole driver comes from one source."""
    family, cuda = machine.family, choice.source == "cuda"
    entries_: list[RemoteFile] = []
    if repository:
        entries_.append(declared_file(NAME, "NVIDIA CUDA", repository, family, *_MORE))
    if family == "debian":
        own = "o=Debian" if machine.os_id == "debian" else "o=Ubuntu"
        beside = repository is not None and not cuda
        entries_.append(
            rendered(
                PINS, unwanted=own if cuda else "l=NVIDIA CUDA", pinned=pinned(choice), own_first=beside,
                driver=OWN_DRIVER_PACKAGES if beside else DRIVER_PACKAGES,
            )
        )  # fmt: skip
    return tuple(entries_)
