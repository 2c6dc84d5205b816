"""Vendors' figures for checking version sets, with their sources."""

from __future__ import annotations

import re
from typing import Final

FABRIC_MANAGER_SOURCE: Final = "azhpc-images components/install_nvidia_fabric_manager.sh (2026-07-29)"
FABRIC_MANAGER_RENAMED: Final = 580
"""From this branch on, all repositories name the package nvidia-fabricmanager."""

CUDA_SOURCE: Final = (
    "NVIDIA CUDA Toolkit release notes, table 2 (minor version compatibility);"
    " NVIDIA, Supported Drivers and CUDA Toolkit Versions (branch 580 for CUDA 13)"
)
CUDA_DRIVERS: Final[dict[int, tuple[int, ...]]] = {
    # major version of CUDA: oldest driver on Linux
    11: (450, 80, 2),
    12: (525, 60, 13),
    13: (580,),
}
CUDA_LAST: Final[dict[str, int]] = {"Maxwell": 12, "Pascal": 12, "Volta": 12}
"""Generation: the last major version of CUDA that compiles for it."""

GENERATION_SOURCE: Final = "NVIDIA driver installation guide, Kernel Modules"
"""Which modules and branches a generation needs is in ``rackproof.core.gpu_generations``."""
BRANCH_SOURCE: Final = "NVIDIA data center driver release notes (580 is the last branch for Maxwell, Pascal and Volta)"

OFED_LAST_SOURCE: Final = "NVIDIA MLNX_OFED to DOCA-OFED transition guide"
OFED_LAST: Final = (24, 10)
"""Last release of MLNX_OFED; its successor is DOCA-OFED."""
DOCA_OFED: Final[dict[tuple[int, ...], tuple[int, int]]] = {
    # DOCA: its OFED
    (2, 9): (24, 10),
    (2, 10): (25, 1),
    (3, 0): (25, 4),
    (3, 1): (25, 7),
    (3, 2): (25, 10),
}
DOCA_OFED_SOURCE: Final = "NVIDIA DOCA-Host release notes; azhpc-images versions.json (DOCA 3.2.x, OFED 25.10)"

NVLSM_SOURCE: Final = "NVIDIA Fabric Manager user guide, NVLSM of fourth generation NVSwitch"
PINNING: Final = "nvidia-driver-pinning"
"""Prefix of packages that are installed first: they pin the driver branch for the dependencies of the others."""
OPEN_MODULES: Final = re.compile(r"^nvidia-open|-open(-|$)")
"""In names of packages with the driver's open modules: ``nvidia-open``, ``nvidia-driver-580-open``,
``kmod-nvidia-open-dkms``."""
KERNEL_PACKAGES: Final = re.compile(r"kernel(-(core|modules|modules-core|modules-extra|devel|devel-matched))?")
"""RHEL keeps several versions of these at once."""

WEKA_OFED_LAST: Final = (24, 4)
WEKA_SOURCE: Final = "weka/tools install/scripts.d (2026-07-01)"
