"""Contradictions inside a version set: what cannot work whatever the rack is. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rackproof.core.versions import tables
from rackproof.core.versions.models import DISTRIBUTION, Component, Components, Platform, VersionSet, major
from rackproof.core.versions.tables import numbers


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two statements of a set that cannot both be right."""

    id: str
    platform: str
    key: str
    """Where the second of them stands, ``components.fabric_manager.version``."""
    message: str
    """What is expected and why, in one line."""
    way_out: str
    source: str

    @property
    def sentence(self) -> str:
        return f"{self.platform}: {self.key}: {self.message}; {self.way_out}"


@dataclass(frozen=True, slots=True)
class _Found:
    key: str
    message: str
    way_out: str
    source: str


Rule = Callable[[str, Platform], Iterator[_Found]]


def contradictions(versions: VersionSet) -> tuple[Contradiction, ...]:
    """Everything that is wrong, platform by platform, in the order of the rules."""
    return tuple(
        Contradiction(id, name, found.key, found.message, found.way_out, found.source)
        for name, platform in versions.platforms.items()
        for id, rule in RULES.items()
        for found in rule(name, platform)
    )


def is_rhel(platform_name: str) -> bool:
    return platform_name.partition("-")[0] in ("rhel", "rocky", "almalinux", "centos", "ol")


def _fabric_manager_version(name: str, platform: Platform) -> Iterator[_Found]:
    driver, manager = platform.components.driver, platform.components.fabric_manager
    if driver and manager and manager.version != driver.version:
        yield _Found(
            "components.fabric_manager.version",
            f"expected exactly the driver's {driver.version}, actual {manager.version}",
            "lock both at one version; the fabric manager refuses every other driver",
            tables.FABRIC_MANAGER_SOURCE,
        )


def _package_versions(name: str, platform: Platform) -> Iterator[_Found]:
    """A component says one version and its main package another."""
    for key in ("driver", "fabric_manager", "nvlsm", "imex", "nccl", "container_toolkit", "dcgm"):
        component: Component | None = getattr(platform.components, key)
        if component is None or key in ("nvlsm",):
            continue
        for package, version in component.packages.items():
            upstream = re.sub(r"^\d+:", "", version)
            if _is_main(key, package) and not re.match(rf"{re.escape(component.version)}(?![0-9.])", upstream):
                yield _Found(
                    f"components.{key}.packages.{package}",
                    f"expected a version that begins with {component.version}, actual {version}",
                    "one of the two is a slip of the pen",
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


def _fabric_manager_name(name: str, platform: Platform) -> Iterator[_Found]:
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
            yield _Found(
                f"components.fabric_manager.packages.{package}",
                f"expected {' or '.join(sorted(expected))} for branch {branch}, actual {package}",
                f"the package changed its name at branch {tables.FABRIC_MANAGER_RENAMED}",
                tables.FABRIC_MANAGER_SOURCE,
            )
    if manager.packages and not named:
        yield _Found(
            "components.fabric_manager.packages",
            f"expected {' or '.join(sorted(expected))}, actual {', '.join(manager.packages)}",
            "name the package of the fabric manager",
            tables.FABRIC_MANAGER_SOURCE,
        )


def _cuda_driver(name: str, platform: Platform) -> Iterator[_Found]:
    driver, cuda = platform.components.driver, platform.components.cuda
    release = major(cuda.version) if cuda else None
    if driver is None or cuda is None or release is None:
        return
    oldest = tables.CUDA_DRIVERS.get(release)
    if oldest is None:
        newest = max(tables.CUDA_DRIVERS)
        if release > newest and numbers(driver.version) <= tables.CUDA_DRIVERS[newest]:
            oldest = tables.CUDA_DRIVERS[newest]
        else:
            return
    if numbers(driver.version) < oldest:
        yield _Found(
            "components.cuda.version",
            f"CUDA {cuda.version} needs driver {'.'.join(map(str, oldest))} or newer, actual {driver.version}",
            "lock a newer driver, or an older CUDA",
            tables.CUDA_SOURCE,
        )


def cuda_suffix(version: str) -> tuple[int, ...] | None:
    """``(13, 0)`` of ``2.30.4-1+cuda13.0``."""
    match = re.search(r"\+cuda(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def _nccl_cuda(name: str, platform: Platform) -> Iterator[_Found]:
    nccl, cuda = platform.components.nccl, platform.components.cuda
    if nccl is None:
        return
    suffixes = {package: cuda_suffix(version) for package, version in nccl.packages.items()}
    for package, suffix in suffixes.items():
        if suffix and cuda and suffix[0] != major(cuda.version):
            yield _Found(
                f"components.nccl.packages.{package}",
                f"built for CUDA {suffix[0]}.{suffix[1]}, the set has CUDA {cuda.version}",
                "take NCCL's package with the suffix of the set's CUDA",
                "NVIDIA NCCL installation guide (packages carry +cudaX.Y)",
            )
    if len(set(nccl.packages.values())) > 1:
        yield _Found(
            "components.nccl.packages",
            f"expected one version for all, actual {', '.join(sorted(set(nccl.packages.values())))}",
            "library and headers must be of one build",
            "NVIDIA NCCL installation guide",
        )
    driver = platform.components.driver
    for package, suffix in suffixes.items():
        oldest = tables.CUDA_DRIVERS.get(suffix[0]) if suffix else None
        if suffix and oldest and driver and cuda is None and numbers(driver.version) < oldest:
            yield _Found(
                f"components.nccl.packages.{package}",
                f"built for CUDA {suffix[0]}, which needs driver {'.'.join(map(str, oldest))}, actual {driver.version}",
                "take NCCL's package for an older CUDA",
                tables.CUDA_SOURCE,
            )


def _dcgm_cuda(name: str, platform: Platform) -> Iterator[_Found]:
    dcgm, cuda, driver = platform.components.dcgm, platform.components.cuda, platform.components.driver
    for package in dcgm.packages if dcgm else ():
        match = re.search(r"-cuda(\d+)$", package)
        if match is None:
            continue
        wanted = int(match[1])
        oldest = tables.CUDA_DRIVERS.get(wanted)
        if cuda and major(cuda.version) != wanted:
            yield _Found(
                f"components.dcgm.packages.{package}",
                f"is for CUDA {wanted}, the set has CUDA {cuda.version}",
                f"take datacenter-gpu-manager-4-cuda{major(cuda.version)}",
                "NVIDIA DCGM user guide, installation (one package a major version of CUDA)",
            )
        elif driver and oldest and numbers(driver.version) < oldest:
            yield _Found(
                f"components.dcgm.packages.{package}",
                f"is for CUDA {wanted}, which needs driver {'.'.join(map(str, oldest))}, actual {driver.version}",
                "take the package for an older CUDA",
                tables.CUDA_SOURCE,
            )


def _gds_flavour(name: str, platform: Platform) -> Iterator[_Found]:
    driver, gds = platform.components.driver, platform.components.gds
    if gds is None:
        return
    source = "NVIDIA GPUDirect Storage installation guide"
    if driver is None:
        yield _Found("components.gds", "GPUDirect Storage without a driver in the set", "add the driver", source)
    elif gds.nvidia_fs_for and gds.nvidia_fs_for != driver.flavour:
        yield _Found(
            "components.gds.nvidia_fs_for",
            f"nvidia-fs is built for the {gds.nvidia_fs_for} modules, the driver is {driver.flavour}",
            "take the package of nvidia-fs that goes with the driver",
            source,
        )
    if gds.nvidia_fs and not gds.dkms and not any("kmod" in package for package in gds.packages):
        yield _Found(
            "components.gds.dkms",
            f"nvidia-fs {gds.nvidia_fs} is a module that nothing builds: no dkms and no kmod package",
            "say dkms: [nvidia-fs], or leave nvidia_fs out where the kernel's P2PDMA is used",
            source,
        )


def _driver_packages(name: str, platform: Platform) -> Iterator[_Found]:
    """Packages of the other flavour, of another branch, of two repositories' naming."""
    driver = platform.components.driver
    if driver is None:
        return
    source = "NVIDIA driver installation guide; azhpc-images components/install_nvidiagpudriver.sh"
    for package in driver.packages:
        is_open = bool(re.search(r"(^nvidia-open|-open(-|$)|-open-dkms)", package))
        is_closed = package in ("cuda-drivers", "nvidia-kernel-dkms", "kmod-nvidia-latest-dkms", "nvidia-legacy")
        if (is_open and driver.flavour == "proprietary") or (is_closed and driver.flavour == "open"):
            yield _Found(
                f"components.driver.packages.{package}",
                f"brings the {'open' if is_open else 'proprietary'} modules, flavour is {driver.flavour}",
                "take the packages of one flavour",
                source,
            )
        branch = re.search(r"-(\d{3})(-|$)", package)
        if branch and driver.branch is not None and int(branch[1]) != driver.branch:
            yield _Found(
                f"components.driver.packages.{package}",
                f"is of branch {branch[1]}, the driver is {driver.version}",
                "take the packages of one branch",
                source,
            )
        if package.startswith(f"{tables.PINNING}-") and package != f"{tables.PINNING}-{driver.version}":
            pinned = package.removeprefix(f"{tables.PINNING}-")
            if pinned not in (str(driver.branch), driver.version):
                yield _Found(
                    f"components.driver.packages.{package}",
                    f"pins {pinned}, the driver is {driver.version}",
                    f"take {tables.PINNING}-{driver.version}",
                    source,
                )
    if driver.precompiled and driver.dkms:
        yield _Found(
            "components.driver.dkms",
            "precompiled modules, and modules that DKMS builds",
            "leave dkms out, or say precompiled: false",
            source,
        )
    if driver.packages and not driver.precompiled and not driver.dkms:
        yield _Found(
            "components.driver.dkms",
            "modules that are neither precompiled nor built by DKMS",
            "say dkms: [nvidia], or precompiled: true",
            source,
        )


def _kernel_headers(name: str, platform: Platform) -> Iterator[_Found]:
    kernel = platform.components.kernel
    if kernel is None or not kernel.packages:
        return
    release = kernel.version
    if is_rhel(name):
        base = release.removesuffix(".x86_64").removesuffix(".aarch64")
        images = [p for p, v in kernel.packages.items() if p in ("kernel", "kernel-core") and v.endswith(base)]
        headers = [p for p, v in kernel.packages.items() if p == "kernel-devel" and v.endswith(base)]
        wanted = f"kernel-core and kernel-devel at {base}"
    else:
        images = [p for p in kernel.packages if re.match(r"linux-image-(unsigned-)?", p) and p.endswith(release)]
        headers = [p for p in kernel.packages if p == f"linux-headers-{release}"]
        wanted = f"linux-image-{release} and linux-headers-{release}"
    builds = any(each.dkms for _, each in platform.components.named())
    if not images or (builds and not headers):
        yield _Found(
            "components.kernel.packages",
            f"expected {wanted}, actual {', '.join(kernel.packages)}",
            "kernel and headers must be of the locked release, or DKMS builds for another one",
            "DeepOps nvidia-driver role, install-redhat.yml; slurm-appliance PR 428, 465",
        )


def _kernel_for_dkms(name: str, platform: Platform) -> Iterator[_Found]:
    built = [key for key, each in platform.components.named() if each.dkms]
    if built and platform.components.kernel is None:
        yield _Found(
            "components.kernel",
            f"{', '.join(built)} build modules with DKMS, and the set has no kernel to build them for",
            "lock kernel and headers as well",
            "slurm-appliance PR 428, 465, 489, 496",
        )
    precompiled = platform.components.driver is not None and platform.components.driver.precompiled
    if precompiled and platform.components.kernel is None:
        yield _Found(
            "components.kernel",
            "precompiled modules are for one kernel, and the set has none",
            "lock the kernel that they are for",
            "NVIDIA driver installation guide, precompiled streams",
        )


def _ofed_end(name: str, platform: Platform) -> Iterator[_Found]:
    network = platform.components.network
    if network is None:
        return
    if network.stack == "mlnx_ofed" and numbers(network.version)[:2] > tables.OFED_LAST:
        yield _Found(
            "components.network.version",
            f"there is no MLNX_OFED {network.version}: 24.10 is the last",
            "take DOCA-OFED (stack: doca)",
            tables.OFED_LAST_SOURCE,
        )
    if network.stack == "inbox" and network.packages and any("ofed" in package for package in network.packages):
        yield _Found(
            "components.network.packages",
            "the stack is inbox, and packages of OFED are listed",
            "say stack: doca or mlnx_ofed, or leave the packages out",
            "the set itself",
        )
    inside = tables.DOCA_OFED.get(numbers(network.version)[:2]) if network.stack == "doca" else None
    if inside and network.ofed and numbers(network.ofed)[:2] != inside:
        yield _Found(
            "components.network.ofed",
            f"DOCA {network.version} has OFED {inside[0]}.{inside[1]:02d} inside, actual {network.ofed}",
            "read the release notes of DOCA-Host",
            tables.DOCA_OFED_SOURCE,
        )


def ofed_of(components: Components) -> tuple[int, ...] | None:
    """Version of the OFED that clients are built against; None for the kernel's own."""
    network = components.network
    if network is None or network.stack == "inbox":
        return None
    if network.stack == "mlnx_ofed":
        return numbers(network.version)[:2]
    return numbers(network.ofed)[:2] if network.ofed else tables.DOCA_OFED.get(numbers(network.version)[:2])


def _client_builds(name: str, platform: Platform) -> Iterator[_Found]:
    """A client that was built against another OFED, or for another kernel, than the set's."""
    components = platform.components
    ofed = ofed_of(components)
    shown = "inbox" if ofed is None else ".".join(f"{part:02d}" for part in ofed)
    for kind, client in components.clients.items():
        if client.ofed is not None:
            built = None if client.ofed == "inbox" else numbers(client.ofed)[:2]
            if built != ofed:
                yield _Found(
                    f"components.clients.{kind}.ofed",
                    f"built against OFED {client.ofed}, the set has {shown}",
                    "build the client again (/usr/src/ofa_kernel/default), or lock the network stack that it is for",
                    "slurm-appliance ansible/roles/lustre; BeeGFS client autobuild (OFED_INCLUDE_PATH)",
                )
        if client.kernel is not None and components.kernel and client.kernel != components.kernel.version:
            yield _Found(
                f"components.clients.{kind}.kernel",
                f"its modules are for kernel {client.kernel}, the set has {components.kernel.version}",
                "lock the client's build for this kernel, or the kernel that it is for",
                "Lustre, Storage Scale and vastnfs packages are tied to one kernel",
            )


def _one_repository_a_driver(name: str, platform: Platform) -> Iterator[_Found]:
    components = platform.components
    driver = components.driver
    for key in ("fabric_manager", "imex"):
        other: Component | None = getattr(components, key)
        if driver and other and other.packages and driver.packages and other.repository != driver.repository:
            yield _Found(
                f"components.{key}.repository",
                f"comes from {other.repository}, the driver from {driver.repository}",
                "take both from one repository: they are built together",
                "oci-hpc-images ansible/roles/nvidia_driver (one driver repository only)",
            )


def _repository_kind(name: str, platform: Platform) -> Iterator[_Found]:
    kind = "dnf" if is_rhel(name) else "apt"
    for repository, each in platform.repositories.items():
        if each.kind != kind:
            yield _Found(
                f"repositories.{repository}.kind",
                f"expected {kind} on {name}, actual {each.kind}",
                "every platform has its own repositories",
                "the set itself",
            )


def _mft_follows_doca(name: str, platform: Platform) -> Iterator[_Found]:
    network, cuda = platform.components.network, platform.components.cuda or platform.components.driver
    if network is None or network.stack != "doca" or cuda is None or cuda.repository == DISTRIBUTION:
        return
    if cuda.repository == network.repository:
        return
    exclude = platform.repositories[cuda.repository].exclude
    if not any(pattern.startswith("mft") for pattern in exclude):
        yield _Found(
            f"repositories.{cuda.repository}.exclude",
            "CUDA's repository has firmware tools too, and they must follow DOCA",
            "exclude [mft*, kernel-mft*] there",
            "azhpc-images components/install_doca.sh",
        )


RULES: dict[str, Rule] = {
    # id: rule; ids stand in messages and in tests
    "repository-kind": _repository_kind,
    "fabric-manager-version": _fabric_manager_version,
    "fabric-manager-name": _fabric_manager_name,
    "fabric-manager-repository": _one_repository_a_driver,
    "package-version": _package_versions,
    "driver-packages": _driver_packages,
    "cuda-driver": _cuda_driver,
    "nccl-cuda": _nccl_cuda,
    "dcgm-cuda": _dcgm_cuda,
    "gds-driver": _gds_flavour,
    "kernel-headers": _kernel_headers,
    "kernel-missing": _kernel_for_dkms,
    "ofed-version": _ofed_end,
    "client-build": _client_builds,
    "mft-repository": _mft_follows_doca,
}
