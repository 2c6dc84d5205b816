"""Contradictions of driver, fabric manager, CUDA and the libraries on it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rackproof.core.version_numbers import numbers, without_epoch
from rackproof.core.versions import tables
from rackproof.core.versions.finding import Contradiction, is_rhel
from rackproof.core.versions.models import Component, Driver, Platform, major


def fabric_manager_version(name: str, platform: Platform) -> Iterator[Contradiction]:
    driver, manager = platform.components.driver, platform.components.fabric_manager
    if driver and manager and manager.version != driver.version:
        yield Contradiction(
            "components.fabric_manager.version",
            f"expected exactly the driver's {driver.version}, actual {manager.version}",
            "lock both at one version; the fabric manager refuses every other driver",
            tables.FABRIC_MANAGER_SOURCE,
        )


def package_versions(name: str, platform: Platform) -> Iterator[Contradiction]:
    """A component's version differs from its main package's."""
    for key in ("driver", "fabric_manager", "imex", "nccl", "container_toolkit", "dcgm"):
        component: Component | None = getattr(platform.components, key)
        if component is None:
            continue
        for package, version in component.packages.items():
            upstream = without_epoch(version)
            if _is_main(key, package) and not re.match(rf"{re.escape(component.version)}(?![0-9.])", upstream):
                yield Contradiction(
                    f"components.{key}.packages.{package}",
                    f"expected a version that begins with {component.version}, actual {version}",
                    "correct one of the two",
                    "the set itself",
                )


def _is_main(key: str, package: str) -> bool:
    pattern = {
        "driver": r"nvidia-open|cuda-drivers|nvidia-driver(-cuda)?|(kmod-nvidia|nvidia-kernel|nvidia-dkms)-.*",
        "fabric_manager": r"nvidia-fabric-?manager(-\d+)?",
        "imex": r"nvidia-imex.*",
        "nccl": r"libnccl2?(-dev(el)?)?",
        "container_toolkit": r"nvidia-container-toolkit",
        "dcgm": r"datacenter-gpu-manager(-4-core)?",
    }[key]
    return re.fullmatch(pattern, package) is not None


def fabric_manager_name(name: str, platform: Platform) -> Iterator[Contradiction]:
    manager = platform.components.fabric_manager
    branch = major(manager.version) if manager else None
    if manager is None or branch is None:
        return
    if branch >= tables.FABRIC_MANAGER_RENAMED:
        expected = {"nvidia-fabricmanager"}
    else:
        expected = {"nvidia-fabric-manager"} if is_rhel(name) else {f"nvidia-fabricmanager-{branch}"}
    if name.startswith("debian"):
        expected.add(f"nvidia-fabricmanager-{branch}")
    named = [package for package in manager.packages if re.match(r"nvidia-fabric-?manager(-\d+)?$", package)]
    for package in named:
        if package not in expected:
            yield Contradiction(
                f"components.fabric_manager.packages.{package}",
                f"expected {' or '.join(sorted(expected))} for branch {branch}, actual {package}",
                f"the package changed its name at branch {tables.FABRIC_MANAGER_RENAMED}",
                tables.FABRIC_MANAGER_SOURCE,
            )
    if manager.packages and not named:
        yield Contradiction(
            "components.fabric_manager.packages",
            f"expected {' or '.join(sorted(expected))}, actual {', '.join(manager.packages)}",
            "name the package of the fabric manager",
            tables.FABRIC_MANAGER_SOURCE,
        )


def one_repository_a_driver(name: str, platform: Platform) -> Iterator[Contradiction]:
    components = platform.components
    driver = components.driver
    for key in ("fabric_manager", "imex"):
        other: Component | None = getattr(components, key)
        if driver and other and other.packages and driver.packages and other.repository != driver.repository:
            yield Contradiction(
                f"components.{key}.repository",
                f"comes from {other.repository}, the driver from {driver.repository}",
                "take both from one repository, which builds them together",
                "oci-hpc-images ansible/roles/nvidia_driver (one driver repository only)",
            )


def cuda_driver(name: str, platform: Platform) -> Iterator[Contradiction]:
    driver, cuda = platform.components.driver, platform.components.cuda
    release = major(cuda.version) if cuda else None
    if cuda and release and (needs := _newer_driver(driver, min(release, max(tables.CUDA_DRIVERS)))):
        yield Contradiction(
            "components.cuda.version",
            f"CUDA {cuda.version} {needs}",
            "lock a newer driver, or an older CUDA",
            tables.CUDA_SOURCE,
        )


def _newer_driver(driver: Driver | None, cuda: int) -> str:
    """``needs driver 580.65.06 or newer, actual 570.86.15``; empty if the driver suffices for this release of CUDA."""
    oldest = tables.CUDA_DRIVERS.get(cuda)
    if driver is None or oldest is None or numbers(driver.version) >= oldest:
        return ""
    return f"needs driver {'.'.join(map(str, oldest))} or newer, actual {driver.version}"


def cuda_suffix(version: str) -> tuple[int, ...] | None:
    """``(13, 0)`` of ``2.30.4-1+cuda13.0``."""
    match = re.search(r"\+cuda(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def nccl_cuda(name: str, platform: Platform) -> Iterator[Contradiction]:
    nccl, cuda = platform.components.nccl, platform.components.cuda
    if nccl is None:
        return
    suffixes = {package: cuda_suffix(version) for package, version in nccl.packages.items()}
    for package, suffix in suffixes.items():
        if suffix and cuda and suffix[0] != major(cuda.version):
            yield Contradiction(
                f"components.nccl.packages.{package}",
                f"built for CUDA {suffix[0]}.{suffix[1]}, the set has CUDA {cuda.version}",
                "take NCCL's package with the suffix of the set's CUDA",
                "NVIDIA NCCL installation guide (packages carry +cudaX.Y)",
            )
    if len(set(nccl.packages.values())) > 1:
        yield Contradiction(
            "components.nccl.packages",
            f"expected one version for all, actual {', '.join(sorted(set(nccl.packages.values())))}",
            "library and headers must be of one build",
            "NVIDIA NCCL installation guide",
        )
    driver = platform.components.driver
    for package, suffix in suffixes.items():
        if suffix and cuda is None and (needs := _newer_driver(driver, suffix[0])):
            yield Contradiction(
                f"components.nccl.packages.{package}",
                f"built for CUDA {suffix[0]}, which {needs}",
                "take NCCL's package for an older CUDA",
                tables.CUDA_SOURCE,
            )


def dcgm_cuda(name: str, platform: Platform) -> Iterator[Contradiction]:
    dcgm, cuda, driver = platform.components.dcgm, platform.components.cuda, platform.components.driver
    for package in dcgm.packages if dcgm else ():
        match = re.search(r"-cuda(\d+)$", package)
        if match is None:
            continue
        needed = int(match[1])
        if cuda and major(cuda.version) != needed:
            yield Contradiction(
                f"components.dcgm.packages.{package}",
                f"is for CUDA {needed}, the set has CUDA {cuda.version}",
                f"take datacenter-gpu-manager-4-cuda{major(cuda.version)}",
                "NVIDIA DCGM user guide, installation (one package a major version of CUDA)",
            )
        elif needs := _newer_driver(driver, needed):
            yield Contradiction(
                f"components.dcgm.packages.{package}",
                f"is for CUDA {needed}, which {needs}",
                "take the package for an older CUDA",
                tables.CUDA_SOURCE,
            )


def gds_flavour(name: str, platform: Platform) -> Iterator[Contradiction]:
    driver, gds = platform.components.driver, platform.components.gds
    if gds is None:
        return
    source = "NVIDIA GPUDirect Storage installation guide"
    if driver is None:
        yield Contradiction("components.gds", "GPUDirect Storage without a driver in the set", "add the driver", source)
    elif gds.nvidia_fs_for and gds.nvidia_fs_for != driver.flavour:
        yield Contradiction(
            "components.gds.nvidia_fs_for",
            f"nvidia-fs is built for the {gds.nvidia_fs_for} modules, the driver is {driver.flavour}",
            "take the package of nvidia-fs that goes with the driver",
            source,
        )
    if gds.nvidia_fs and not gds.dkms and not any("kmod" in package for package in gds.packages):
        yield Contradiction(
            "components.gds.dkms",
            f"nvidia-fs {gds.nvidia_fs} is a module without a dkms or kmod package",
            "set dkms: [nvidia-fs], or leave nvidia_fs out where the kernel's P2PDMA is used",
            source,
        )


def driver_packages(name: str, platform: Platform) -> Iterator[Contradiction]:
    """Packages of the other flavour, of another branch, or of another repository."""
    driver = platform.components.driver
    if driver is None:
        return
    source = "NVIDIA driver installation guide; azhpc-images components/install_nvidiagpudriver.sh"
    for package in driver.packages:
        is_open = bool(tables.OPEN_MODULES.search(package))
        is_closed = package in ("cuda-drivers", "nvidia-kernel-dkms", "kmod-nvidia-latest-dkms", "nvidia-legacy")
        if (is_open and driver.flavour == "proprietary") or (is_closed and driver.flavour == "open"):
            yield Contradiction(
                f"components.driver.packages.{package}",
                f"brings the {'open' if is_open else 'proprietary'} modules, flavour is {driver.flavour}",
                "take the packages of one flavour",
                source,
            )
        branch = re.search(r"-(\d{3})(-|$)", package)
        if branch and driver.branch is not None and int(branch[1]) != driver.branch:
            yield Contradiction(
                f"components.driver.packages.{package}",
                f"is of branch {branch[1]}, the driver is {driver.version}",
                "take the packages of one branch",
                source,
            )
        if package.startswith(f"{tables.PINNING}-") and package != f"{tables.PINNING}-{driver.version}":
            pinned = package.removeprefix(f"{tables.PINNING}-")
            if pinned not in (str(driver.branch), driver.version):
                yield Contradiction(
                    f"components.driver.packages.{package}",
                    f"pins {pinned}, the driver is {driver.version}",
                    f"take {tables.PINNING}-{driver.version}",
                    source,
                )
    if driver.precompiled and driver.dkms:
        yield Contradiction(
            "components.driver.dkms",
            "precompiled modules, and modules that DKMS builds",
            "leave dkms out, or set precompiled: false",
            source,
        )
    if driver.packages and not driver.precompiled and not driver.dkms:
        yield Contradiction(
            "components.driver.dkms",
            "modules that are neither precompiled nor built by DKMS",
            "set dkms: [nvidia], or precompiled: true",
            source,
        )
