"""One stage of the version set: its exact packages, and their DKMS modules."""

from __future__ import annotations

from rackproof.configure.versions import operations, plan
from rackproof.configure.versions.site import locked, take, taken

INSTALL_TIMEOUT_S = 3600
"""CUDA over a slow mirror, and DKMS on many kernels."""


def stage(name: str, title: str) -> None:
    """Install a stage, or one component (``clients.weka``), and build its DKMS modules for the locked kernel.

    Call it from a deploy. Does nothing without a version set, or when the set has no packages for the stage. Deploys
    call the stages in the order of ``rackproof.core.versions.STAGES``: a driver links to symbols of the network stack,
    and file-system clients are built against both.
    """
    lock = plan.lock_here()
    earlier = taken()
    packages = locked(name) if lock else ()
    if lock is None or not packages:
        return
    platform, machine, _ = lock
    operations.exact_packages(
        name=title, packages=packages, family=machine.family,
        earlier=sorted(earlier.intersection(package.name for package in packages)), _timeout=INSTALL_TIMEOUT_S,
    )  # fmt: skip
    modules = plan.dkms_of(platform, tuple(dict.fromkeys(package.component for package in packages)))
    release = platform.components.kernel.version if platform.components.kernel else machine.kernel
    if modules:
        operations.dkms_modules(
            name=f"{title}: modules", modules=modules, release=release, family=machine.family,
            earlier=[module for module in modules if f"dkms {module}" in earlier], _timeout=INSTALL_TIMEOUT_S,
        )  # fmt: skip
        take(f"dkms {module}" for module in modules)
