"""Package names of the GPU stack, by operating system, repository and branch. Pure.

Sources: NVIDIA's driver installation guide ("Kernel Modules", "Compute-only", the renames of Ubuntu's packages at 590),
its Fabric Manager guide (nvlink5), the archives of Debian 12 and 13 and of Ubuntu, DCGM's and GPUDirect Storage's
installation guides, and Azure's image scripts for the fabric manager's name before and after 580.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from rackproof.configure.gpu.driver import Choice
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.gpu.tools import build_packages
from rackproof.configure.package_transaction.transaction import Package
from rackproof.core.architecture import Gpu
from rackproof.core.machine import Machine

FABRIC_MANAGER_RENAMED: Final = 580
UBUNTU_RENAMED: Final = 590
COMPUTE_ONLY: Final = 560
"""First branch that has packages without a desktop's."""
CUDA13: Final = 580

TOOLKIT: Final = (
    "libnvidia-container1",
    "libnvidia-container-tools",
    "nvidia-container-toolkit-base",
    "nvidia-container-toolkit",
)
"""One set: a newer library under an older tool has kept containers from starting."""


def headers(machine: Machine, stack: GpuInputs) -> tuple[Package, ...]:
    """Headers of the running kernel, for which DKMS builds first."""
    if stack.headers:
        return tuple(Package(name) for name in stack.headers)
    if machine.family == "debian":
        return (Package(f"linux-headers-{machine.kernel}"),)
    release = machine.kernel.removesuffix(f".{machine.arch}")
    return (Package("kernel-devel", release), Package("kernel-headers"))


def stream(machine: Machine, choice: Choice) -> str | None:
    """The stream of RHEL's module nvidia-driver that is to be enabled; RHEL 10 has none any more."""
    if machine.family != "rhel" or int(machine.major or 0) >= 10:
        return None
    kind = "" if choice.precompiled else "-open" if choice.flavour == "open" else "-dkms"
    return f"{choice.branch}{kind}"


def driver(machine: Machine, choice: Choice) -> tuple[Package, ...]:
    """Libraries, tools and kernel modules of the driver, without anything for a desktop."""
    if machine.family == "rhel":
        return _rhel_driver(machine, choice)
    if machine.os_id == "debian":
        return _debian_driver(choice)
    return _ubuntu_driver(machine, choice)


def _versioned(choice: Choice, names: Iterable[str]) -> tuple[Package, ...]:
    """In the driver's version, or of its branch: NVIDIA's repository has all branches under the same names.

    A distribution's packages have the branch in their names, or only one.
    """
    of_branch = f"{choice.branch}.*" if choice.source == "cuda" else None
    return tuple(Package(name, f"{choice.version}-*" if choice.version else of_branch) for name in names)


def _debian_driver(choice: Choice) -> tuple[Package, ...]:
    dkms = "nvidia-open-kernel-dkms" if choice.flavour == "open" else "nvidia-kernel-dkms"
    if choice.source == "distribution":
        # nvidia-driver is made for desktops; nvidia-kernel-support brings the aliases and the udev rules.
        tools = _versioned(choice, (dkms, "libcuda1", "libnvidia-ml1", "nvidia-smi"))
        # From other source packages, with versions of their own.
        return (*tools, Package("nvidia-persistenced"), Package("nvidia-modprobe"))
    if choice.branch < COMPUTE_ONLY:
        meta = "nvidia-open" if choice.flavour == "open" else "cuda-drivers"
        return _versioned(choice, (f"{meta}-{choice.branch}",))
    modules = "nvidia-kernel-open-dkms" if choice.flavour == "open" else "nvidia-kernel-dkms"
    return _versioned(choice, (modules, "nvidia-driver-cuda", "nvidia-persistenced"))


def _ubuntu_driver(machine: Machine, choice: Choice) -> tuple[Package, ...]:
    open_ = "-open" if choice.flavour == "open" else ""
    if choice.source == "distribution":
        branch = f"{choice.branch}-server"
        if choice.precompiled:
            return (
                Package(f"linux-modules-nvidia-{branch}{open_}-{machine.kernel}"),
                *_versioned(choice, (f"nvidia-headless-no-dkms-{branch}{open_}", f"nvidia-utils-{branch}")),
            )
        return _versioned(choice, (f"nvidia-headless-{branch}{open_}", f"nvidia-utils-{branch}"))
    if choice.branch >= UBUNTU_RENAMED:
        return _versioned(choice, (f"nvidia-dkms{open_}", "libnvidia-compute", "nvidia-persistenced"))
    names = (f"nvidia-dkms-{choice.branch}{open_}", *(f"{tool}-{choice.branch}" for tool in _UBUNTU_TOOLS))
    return _versioned(choice, names)


_UBUNTU_TOOLS: Final = ("libnvidia-compute", "libnvidia-cfg1", "nvidia-compute-utils", "nvidia-utils")


def _rhel_driver(machine: Machine, choice: Choice) -> tuple[Package, ...]:
    tools = ("nvidia-driver-cuda", "nvidia-persistenced")
    if not choice.precompiled:
        return _versioned(
            choice, ("kmod-nvidia-open-dkms" if choice.flavour == "open" else "kmod-nvidia-latest-dkms", *tools)
        )
    if choice.version is None:
        return (Package("kmod-nvidia"), *_versioned(choice, tools))
    kernel = machine.kernel.rpartition(".el")[0] or machine.kernel
    return (Package(f"kmod-nvidia-{choice.version}-{kernel}"), *_versioned(choice, tools))


def fabric(machine: Machine, choice: Choice) -> tuple[Package, ...]:
    """Fabric manager, NVLSM and IMEX, as the hardware needs them."""
    names: list[str] = []
    if choice.fabric_manager:
        names.append(fabric_manager_name(machine, choice))
        names.append(_nscq(machine, choice))
    packages = _versioned(choice, names)
    if choice.nvlsm:
        meta = "nvlink5" if choice.branch >= UBUNTU_RENAMED else f"nvlink5-{choice.branch}"
        # nvlsm has versions of its own.
        packages = (*packages, Package("nvlsm"), *_versioned(choice, (meta,)))
    if choice.imex:
        imex = "nvidia-imex" if choice.branch >= FABRIC_MANAGER_RENAMED else f"nvidia-imex-{choice.branch}"
        packages = (*packages, *_versioned(choice, (imex,)))
    return packages


def fabric_manager_name(machine: Machine, choice: Choice) -> str:
    if machine.os_id == "ubuntu" and choice.source == "distribution":
        return f"nvidia-fabricmanager-{choice.branch}"
    if choice.branch >= FABRIC_MANAGER_RENAMED:
        return "nvidia-fabricmanager"
    return "nvidia-fabric-manager" if machine.family == "rhel" else f"nvidia-fabricmanager-{choice.branch}"


def _nscq(machine: Machine, choice: Choice) -> str:
    own = machine.os_id == "ubuntu" and choice.source == "distribution"
    if choice.branch >= FABRIC_MANAGER_RENAMED and not own:
        return "libnvidia-nscq"
    return f"libnvidia-nscq-{choice.branch}"


def tools(machine: Machine, choice: Choice, stack: GpuInputs, declared: Gpu) -> tuple[Package, ...]:
    """CUDA, NCCL, DCGM, GDRCopy and GPUDirect Storage, as declared."""
    debian = machine.family == "debian"
    packages: list[Package] = []
    if stack.cuda:
        packages.append(Package(f"cuda-toolkit-{stack.cuda.replace('.', '-')}"))
    if stack.nccl:
        development = "libnccl-dev" if debian else "libnccl-devel"
        packages += [Package(name, stack.nccl) for name in ("libnccl2" if debian else "libnccl", development)]
    if wants_dcgm(stack, declared):
        cuda = stack.dcgm_cuda or (13 if choice.branch >= CUDA13 else 12)
        packages.append(Package(f"datacenter-gpu-manager-4-cuda{cuda}"))
    if stack.gdrcopy:
        names = ("gdrdrv-dkms", "libgdrapi", "gdrcopy") if debian else ("gdrcopy-kmod", "gdrcopy")
        packages += [Package(name) for name in names]
    if declared.gds:
        packages += _gds(stack)
    packages += [Package(name) for name in (*build_packages(stack, machine.family), *stack.packages)]
    return tuple(packages)


def wants_dcgm(stack: GpuInputs, declared: Gpu) -> bool:
    return stack.dcgm if stack.dcgm is not None else declared.dcgm_level is not None


def with_dcgm(stack: GpuInputs, choice: Choice, programs: Collection[str], locked: bool) -> GpuInputs:
    """The stack with DCGM where ``dcgmi`` is among the architecture's programs.

    Not where it could not be installed: NVIDIA's repository has it, no distribution's; with a version set (``locked``)
    it comes from there or not at all.
    """
    has_it = not locked and (choice.source == "cuda" or stack.repository is not None)
    return stack.model_copy(update={"dcgm": True}) if stack.dcgm is None and "dcgmi" in programs and has_it else stack


def _gds(stack: GpuInputs) -> tuple[Package, ...]:
    """The kernel's own P2PDMA needs no nvidia-fs, but the library and gdscheck of the CUDA that is declared."""
    suffix = f"-{stack.cuda.replace('.', '-')}" if stack.cuda else ""
    if stack.gds_method == "p2pdma" and suffix:
        return (Package(f"libcufile{suffix}"), Package(f"gds-tools{suffix}"))
    return (Package(f"nvidia-gds{suffix}"),)


def container_toolkit(stack: GpuInputs, runtimes: Iterable[str] = ()) -> tuple[Package, ...]:
    """All packages of the toolkit in one version."""
    if not [*stack.runtimes, *runtimes] and stack.container_toolkit is None:
        return ()
    version = None if stack.container_toolkit in (None, "latest") else stack.container_toolkit
    return tuple(Package(name, version) for name in TOOLKIT)


@dataclass(frozen=True, slots=True)
class NodePackages:
    """Packages of one node beside its version set, in installation order."""

    headers: tuple[Package, ...]
    driver: tuple[Package, ...]
    """Driver packages, with those of the fabric manager, NVLSM and IMEX."""
    tools: tuple[Package, ...]


def node_packages(
    machine: Machine,
    choice: Choice,
    stack: GpuInputs,
    declared: Gpu,
    locked: Collection[str] | None = None,
    release: str | None = None,
) -> NodePackages:
    """``locked``: packages of a version set that has the driver, None without one; ``release``: its kernel, where
    another one still runs."""
    driver_ = (*driver(machine, choice), *fabric(machine, choice))
    return NodePackages(
        # Many mirrors drop headers of a superseded kernel, and nothing is built for it any more.
        headers=headers(machine, stack) if choice.dkms and release is None else (),
        driver=driver_ if locked is None else (),
        tools=tuple(
            package for package in tools(machine, choice, stack, declared) if package.name not in (locked or ())
        ),
    )
