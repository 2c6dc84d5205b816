"""The driver stack of a node with real GPUs: choice, files, units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyinfra import logger
from pyinfra.context import host

from rackproof.configure.files import Absent, Entry, RemoteFile
from rackproof.configure.gpu import install, nccl, runtimes, storage, tuning
from rackproof.configure.gpu import packages as names
from rackproof.configure.gpu import repository as gpu_repository
from rackproof.configure.gpu.driver import Choice, choose, gpudirect_warning, hardware_problems
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.gpu.state import FABRIC_UNIT
from rackproof.configure.inputs import Repository
from rackproof.configure.settings import read_inputs
from rackproof.configure.shared_files import boot_modules, rendered
from rackproof.configure.site import Site
from rackproof.configure.units import Unit
from rackproof.configure.versions.site import packages_here, platform_here
from rackproof.core.architecture import Gpu, Nic
from rackproof.core.gpu_generations import UnsupportedGpu
from rackproof.core.machine import Machine
from rackproof.core.nvlink_domain import SERVICE, imex_addresses
from rackproof.errors import DeclarationError

INSTALL_TIMEOUT_S = 3600
"""Seconds for one operation: CUDA over a slow mirror, DKMS builds and initramfs images for several kernels."""
RDMA_FILE_SYSTEMS = frozenset({"IBM Spectrum Scale", "WekaFS", "Userspace RDMA"})
"""File systems to which cuFile opens RDMA connections of its own: it needs this node's addresses."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The stack that one node gets."""

    machine: Machine
    declared: Gpu
    stack: GpuInputs
    choice: Choice
    options: dict[str, str]
    packages: names.NodePackages
    """Without the version set's, which are installed as its stages."""
    tuning: tuning.Tuning
    versions: bool
    """Whether a version set brings repositories and versions."""
    release: str | None = None
    """Kernel of the version set where another one still runs."""
    toolkit: bool = False
    """Whether the container toolkit is installed from the same repository, by its own deploy."""
    diagnosed: tuple[str, ...] = ()
    """Keys of the architecture that have ``dcgmi diag`` run on the node."""

    @property
    def repository(self) -> Repository | None:
        """NVIDIA's repository, where something comes from it and no version set brings it."""
        wanted_ = self.choice.source == "cuda" or self.packages.tools or self.toolkit
        return self.stack.repository if wanted_ and not self.versions else None

    @property
    def persistenced(self) -> bool:
        wanted = self.stack.persistenced
        return wanted if wanted is not None else self.declared.persistence != "Disabled"


def why_nothing(site: Site) -> str | None:
    declared = site.architecture.gpu
    return None if site.has_role("gpu") and declared and declared.count else "the architecture gives this node no GPUs"


def proves_storage(site: Site) -> bool:
    """Whether GPUDirect Storage is declared for real GPUs of the node."""
    return site.real_gpus is not None and bool(site.real_gpus.gds)


def plan_of(site: Site, machine: Machine) -> Plan:
    """Raises DeclarationError for a contradiction, UnsupportedGpu where this node cannot have it."""
    declared = site.architecture.gpu
    if declared is None:
        raise DeclarationError("the architecture has no GPUs")
    stack = read_inputs(site.node, GpuInputs)
    settings_ = tuning.tuning(declared, stack)
    platform = platform_here()
    component = platform.components.driver if platform else None
    choice = choose(machine, declared, stack, component)
    stack = names.with_dcgm(stack, choice, site.architecture.tools.programs, component is not None)
    kernel = platform.components.kernel if platform else None
    release = kernel.version if kernel and kernel.version != machine.kernel else None
    locked = _locked(choice, declared) if component else None
    return Plan(
        machine=machine,
        declared=declared,
        stack=stack,
        choice=choice,
        options=module_options(declared, stack, choice, machine.arch),
        packages=names.node_packages(machine, choice, stack, declared, locked, release),
        tuning=settings_,
        versions=component is not None,
        release=release,
        toolkit=bool(
            names.container_toolkit(stack, runtimes.handing_out(site.architecture.containers, site.node.groups, stack))
        ),
        diagnosed=tuple(diagnosed(site)),
    )


def diagnosed(site: Site) -> Iterator[str]:
    """Keys of the architecture that have ``dcgmi diag`` run on the node."""
    if site.architecture.gpu and site.architecture.gpu.dcgm_level is not None:
        yield "gpu.dcgm_level"
    for name, profile in site.architecture.profiles.items():
        if profile.gpu and profile.gpu.diagnoses and site.has_role(profile.gpu.members):
            yield f"profiles.{name}.gpu.diagnoses"


def _locked(choice: Choice, declared: Gpu) -> frozenset[str]:
    """Packages of the version set beside the driver's. Raises UnsupportedGpu where it lacks what these GPUs need."""
    needed = {
        "driver": True,
        "fabric_manager": choice.fabric_manager,
        "nvlsm": choice.nvlsm,
        "imex": choice.imex,
    }
    have = {package.component for package in packages_here("driver")}
    for component, due in needed.items():
        if due and component not in have:
            raise UnsupportedGpu(
                f"the version set says nothing about {component}, which these GPUs need ({choice.switches} NVSwitches"
                f" on the PCI bus, {', '.join(choice.generations)}): add it, and lock the set again"
            )
    further = (*packages_here("gpu"), *(packages_here("gds") if declared.gds else ()))
    return frozenset(package.name for package in further)


def warn(plan: Plan) -> None:
    for problem in warnings(plan):
        logger.warning("%s: %s", host.name, problem)


def warnings(plan: Plan) -> tuple[str, ...]:
    """Warnings that do not stop an installation."""
    problems = list(hardware_problems(plan.machine, plan.declared))
    if gpudirect := gpudirect_warning(plan.machine, plan.declared, plan.choice.flavour):
        problems.append(gpudirect)
    if plan.stack.dcgm_exporter and plan.diagnosed:
        problems.append(
            f"{plan.stack.dcgm_exporter} profiles GPUs all the time, and only one client may: stop it while dcgmi diag"
            f" runs ({', '.join(plan.diagnosed)})"
        )
    return tuple(problems)


def module_options(declared: Gpu, stack: GpuInputs, choice: Choice, arch: str) -> dict[str, str]:
    """Options of the module nvidia: declared by the architecture, set by the site, needed by the hardware."""
    names_ = {value: key for key, value in install.PARAMETERS.items()}
    parameters = {f"NVreg_{names_.get(name, name)}": value for name, value in (declared.parameters or {}).items()}
    needed = {"NVreg_CreateImexChannel0": "1"} if choice.imex else {}
    if arch == "x86_64" and storage.by_p2pdma(declared, stack):
        needed["NVreg_RegistryDwords"] = storage.P2PDMA_REGISTRY
    return {**needed, **stack.module_options, **parameters}


def wanted(plan: Plan, entries: tuple[Entry, ...]) -> install.WantedDriver:
    locked = [f"{package.name} {package.version}" for package in packages_here("driver")] if plan.versions else ()
    return install.WantedDriver(
        choice=plan.choice,
        packages=plan.packages.driver,
        # A version set's repositories show every version whatever the stream; a mirror may have no streams.
        stream=None if plan.versions else names.stream(plan.machine, plan.choice),
        options=plan.options,
        stamp=install.stamp((entry for entry in entries if isinstance(entry, RemoteFile)), locked),
        hold=plan.stack.hold and not plan.versions,
        modules=modules(plan),
        release=plan.release,
    )


def modules(plan: Plan) -> tuple[str, ...]:
    """Kernel modules that are loaded now and at every boot; nvidia-fs is loaded with its package.

    Switches behind a bridge in an adapter are managed with InfiniBand datagrams, whatever the fabric of the rack is.
    """
    umad = ("ib_umad",) if plan.choice.nvlsm else ()
    return (*umad, "nvidia", "nvidia_uvm", *(("nvidia_peermem",) if plan.choice.peermem else ()))


def files(site: Site, plan: Plan) -> tuple[Entry, ...]:
    """Everything but the repository's key and the unit of the fabric manager."""
    choice, stack, declared = plan.choice, plan.stack, plan.declared
    fs = ("nvidia_fs",) if declared.gds and stack.gds_method == "nvidia-fs" else ()
    boot = [name.replace("_", "-") for name in (*modules(plan), *fs)]
    nodes = "/etc/nvidia-imex/nodes_config.cfg"
    entries: list[Entry] = [
        rendered(
            "/etc/modprobe.d/rackproof-nvidia.conf",
            blacklist=install.OTHERS,
            options=plan.options,
            p2pdma=plan.machine.arch == "x86_64" and storage.by_p2pdma(declared, stack),
        ),
        boot_modules("gpu", "GPUs", boot),
        *(() if plan.versions else gpu_repository.entries(plan.machine, plan.choice, plan.repository)),
        *_persistence(plan),
        *_settings(plan),
    ]
    if choice.fabric_manager:
        entries.append(
            rendered(f"/etc/systemd/system/{FABRIC_UNIT}.d/rackproof.conf", pci_switches=choice.switches > 0)
        )
    if choice.imex:
        gpus = site.architecture.gpu.count if site.architecture.gpu else 0
        addresses = imex_addresses(site.rack, site.node, gpus)
        entries.append(rendered(nodes, restart=(SERVICE,), nodes=addresses))
    lines = nccl_settings(site, declared, stack)
    entries.append(rendered(nccl.PATH, settings=lines) if lines else Absent(nccl.PATH))
    if declared.gds:
        rdma = RDMA_FILE_SYSTEMS.intersection(declared.gds)
        addresses = tuple(str(address.ip) for address in site.settings.fabric_addresses) if rdma else ()
        entries.append(RemoteFile(storage.PATH, storage.cufile(declared, stack, addresses)))
    return tuple(entries)


def _persistence(plan: Plan) -> tuple[Entry, ...]:
    path = "/etc/systemd/system/nvidia-persistenced.service.d/rackproof.conf"
    if not plan.persistenced:
        return (Absent(path, restart=("nvidia-persistenced.service",)),)
    return (rendered(path, restart=("nvidia-persistenced.service",)),)


def _settings(plan: Plan) -> tuple[Entry, ...]:
    service = f"/etc/systemd/system/{tuning.SERVICE}"
    if not plan.tuning and not plan.persistenced:
        return (Absent(service), Absent(tuning.SCRIPT))
    return (
        rendered(service, persistenced=plan.persistenced),
        rendered(tuning.SCRIPT, restart=(tuning.SERVICE,), mode="755", tuning=plan.tuning),
    )


def nccl_settings(site: Site, declared: Gpu, stack: GpuInputs) -> dict[str, str]:
    over = {**stack.nccl_conf, **(declared.nccl or {})}
    return nccl.settings(site.architecture.fabric, nics(site), stack.nccl_hca, over)


def nics(site: Site) -> tuple[Nic, ...]:
    """The ports of this node's roles."""
    roles = site.architecture.roles
    return tuple(
        nic for group in site.node.groups if group in roles for nic in (roles[group].expect.nics or ())
    )  # fmt: skip


def units(plan: Plan) -> tuple[Unit, ...]:
    """In the order in which they are started: nvidia-persistenced, which keeps the driver loaded, first."""
    wanted_units = [
        Unit("nvidia-persistenced.service", enabled=None if plan.persistenced else False, running=plan.persistenced)
    ]
    if plan.choice.fabric_manager:
        # "Active" is not sufficient: no CUDA program starts until every GPU has registered.
        registered = (
            "s=$(timeout 60 nvidia-smi -q | grep -A 1 -w Fabric | grep 'State  *:')"
            """ && ! printf '%s\\n' "$s" | grep -qv ': *Completed'"""
        )
        wanted_units.append(Unit(FABRIC_UNIT, proof=registered if plan.declared.fabric == "Completed" else None))
    if plan.choice.imex:
        wanted_units.append(Unit(SERVICE))
    if plan.tuning or plan.persistenced:
        wanted_units.append(Unit(tuning.SERVICE))
    if names.wants_dcgm(plan.stack, plan.declared):
        wanted_units.append(Unit("nvidia-dcgm.service"))
    if plan.stack.dcgm_exporter:
        wanted_units.append(Unit(plan.stack.dcgm_exporter))
    return tuple(wanted_units)
