"""Which parts of driver, fabric manager and network stack a run would replace."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra.context import host

from rackproof.configure.gpu import install, packages
from rackproof.configure.gpu.driver import choose
from rackproof.configure.gpu.facts import GpuFacts
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.gpu.state import GpuState
from rackproof.configure.nic import stack
from rackproof.configure.nic.declared import Declared, declared_here, uses_adapters_here
from rackproof.configure.nic.facts import StackState as AskStack
from rackproof.configure.settings import read_inputs
from rackproof.configure.site import Site
from rackproof.configure.versions.facts import PackageStates
from rackproof.configure.versions.site import packages_here, platform_here
from rackproof.configure.versions.state import PackageState, is_installed
from rackproof.core.gpu_generations import UnsupportedGpu
from rackproof.core.machine import Machine
from rackproof.core.versions import LockedPackage
from rackproof.errors import Refused


def why_nothing(site: Site) -> str | None:
    return None if site.real_gpus and site.in_slurm else "no GPUs, or rackproof does not manage slurmd here"


def has_adapters(site: Site) -> bool:
    """Whether the deploy manages drivers of real adapters here. Raises DeclarationError when the inventory contradicts
    itself."""
    fabric = site.architecture.fabric
    return fabric is not None and fabric.kind != "soft-roce" and uses_adapters_here(site)


def of_packages(wanted: Sequence[LockedPackage], state: PackageState, family: str) -> tuple[str, ...]:
    """Replaced packages of a version set."""
    return tuple(
        _becomes(package.name, " ".join(state.installed.get(package.name, ())), package.version)
        for package in wanted
        if not is_installed(package, state, family)
    )


def of_driver(target: install.WantedDriver, state: GpuState) -> tuple[str, ...]:
    """Replaced packages of the driver, without a version set."""
    return tuple(
        _becomes(package.name, state.packages.get(package.name, ""), package.version or "what the repository has")
        for package in install.plan_driver(target, state).install
    )


def _becomes(name: str, actual: str, wanted: str) -> str:
    return f"{name} {actual or '(not installed)'} becomes {wanted}"


def of_network(declared: Declared, state: stack.StackState) -> tuple[str, ...]:
    """Further replacements of the network stack: an OFED that is removed, and a restart that ends all RDMA
    connections."""
    inputs = declared.stack
    try:
        plan = stack.plan_removal(declared.source, declared.ofed, state, inputs.remove_old)
    except Refused:
        return ()  # reported by preflight
    removed = tuple(change.line for change in plan.changes)
    restarted = stack.restarts(declared.source, state, inputs.drivers_by == "restart")
    return (*removed, *(("openibd is restarted with other modules",) if restarted else ()))


def pending_swaps(
    site: Site, machine: Machine, installed: PackageState | None, drivers: stack.StackState | None
) -> tuple[str, ...] | None:
    """Replacements on the current node, one sentence each; None when a fact could not be read.

    ``installed`` and ``drivers``: the node's answers. Raises DeclarationError when the inventory contradicts itself.
    """
    if not site.real_gpus or machine.family not in ("debian", "rhel"):
        return ()
    swaps: list[str] = []
    if locked := (*packages_here("network"), *packages_here("driver")):
        if installed is None:
            return None
        swaps += of_packages(locked, installed, machine.family)
    platform = platform_here()
    if platform is None or platform.components.driver is None:
        release = platform.components.kernel.version if platform and platform.components.kernel else machine.kernel
        target = _target(site, machine, None if release == machine.kernel else release)
        if target is not None:
            names = [package.name for package in target.packages]
            state = host.get_fact(GpuFacts, packages_wanted=names, family=machine.family, smi=False)
            if state is None:
                return None
            swaps += of_driver(target, state)
    if has_adapters(site) and (declared := declared_here()).drivers:
        if drivers is None:
            return None
        swaps += of_network(declared, drivers)
    return tuple(swaps)


def pending_swaps_here(site: Site, machine: Machine) -> tuple[str, ...] | None:
    """``pending_swaps`` of the current node; reads the facts."""
    if not site.real_gpus or machine.family not in ("debian", "rhel"):
        return ()
    names = [package.name for package in packages_here("all")]
    installed = host.get_fact(PackageStates, names=names, family=machine.family) if names else None
    return pending_swaps(site, machine, installed, host.get_fact(AskStack) if has_adapters(site) else None)


def _target(site: Site, machine: Machine, release: str | None) -> install.WantedDriver | None:
    """Packages of the wanted driver; None for unsupported GPUs."""
    declared = site.real_gpus
    if declared is None:
        return None
    try:
        inputs = read_inputs(site.node, GpuInputs)
        choice = choose(machine, declared, inputs)
    except UnsupportedGpu:
        return None  # reported by preflight
    driver_packages = packages.node_packages(machine, choice, inputs, declared, None, release).driver
    return install.WantedDriver(choice, driver_packages, packages.stream(machine, choice), release=release)
