"""The version set: repositories and their keys, the exact packages of each stage, holds, and reading it all back.

Other deploys call the stages in the order of ``rackproof.core.versions.STAGES``: a driver links to symbols of the
network stack, file-system clients are built against both. Without ``versions_lock`` in the inventory nothing here
does or asks anything.
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.context import host

from rackproof.configure import operations as common
from rackproof.configure.machine import family_here, machine_here
from rackproof.configure.nic import operations as nic_operations
from rackproof.configure.nic.declared import locked_firmware, nic_stack, uses_adapters_here
from rackproof.configure.nic.devices import VENDOR as ADAPTERS
from rackproof.configure.packages import VERSION_LOCK
from rackproof.configure.site import here
from rackproof.configure.units import Unit
from rackproof.configure.versions import file_operations, operations, repositories
from rackproof.configure.versions.downloads import Placed, placed
from rackproof.configure.versions.install import Options
from rackproof.configure.versions.site import (
    VersionInputs,
    locked,
    packages_here,
    platform_here,
    take,
    taken,
    version_inputs,
    versions_here,
)
from rackproof.core.machine import Machine
from rackproof.core.versions import Platform, stage_components, stage_dkms
from rackproof.core.versions.consistency import contradictions

INSTALL_TIMEOUT_S = 3600
"""CUDA over a slow mirror, and DKMS on many kernels."""
REST = {
    # stage: what it is called
    "network": "Network stack",
    "driver": "GPU driver",
    "gpu": "GPU tools",
    "gds": "GPUDirect Storage",
    "clients": "File-system clients",
    "others": "Other locked packages",
}
FREEZE_UNITS = {
    "debian": ("apt-daily.timer", "apt-daily-upgrade.timer", "unattended-upgrades.service"),
    "rhel": ("dnf-automatic.timer", "dnf-automatic-install.timer", "dnf-automatic-download.timer"),
}
"""What upgrades a node behind everybody's back."""


@deploy("Versions: freeze and repositories")
def repositories_and_freeze() -> None:
    """Before the first installation: nothing upgrades by itself, and packages come from where the set says."""
    found = _here()
    if found is None:
        return
    platform, machine, inputs = found
    if here().architecture.system.unattended_upgrades != "frozen":  # else the base has stopped them
        common.units(name="No upgrades by themselves", wanted=freeze_units(machine.family))
    if machine.family == "rhel" and inputs.hold:
        common.packages(name="Version lock", names=VERSION_LOCK, family="rhel")
    used = {each.repository for each in packages_here("all")}
    wanted = {name: each for name, each in platform.repositories.items() if name in used}
    if not wanted:
        return
    try:
        keys = repositories.keys(wanted, inputs.mirrors)
        entries = repositories.files(platform, wanted, machine, inputs.mirrors, inputs.proxy)
    except ValueError as error:
        raise DeployError(f"{host.name}: versions_lock: {error}") from None
    operations.signing_keys(name="Repository keys", wanted=keys, family=machine.family, proxy=inputs.proxy)
    common.files(name="Repositories", entries=entries)


@deploy("Versions: kernel")
def kernel() -> None:
    """Kernel and headers of exactly the locked release, chosen in the boot loader; a reboot is asked for."""
    found = _here()
    if found is None or found[0].components.kernel is None:
        return
    platform, machine, _ = found
    stage("kernel", "Kernel and headers")
    release = platform.components.kernel.version if platform.components.kernel else ""
    operations.boot_kernel(name="Kernel of the next start", release=release, family=machine.family)


def stage(name: str, title: str) -> None:
    """Install a stage, or one component (``clients.weka``), and build its DKMS modules for the locked kernel.

    To be called from within a deploy. Does and asks nothing without a version set, or where the set has nothing.
    """
    found = _here()
    earlier = taken()
    packages = locked(name) if found else ()
    if found is None or not packages:
        return
    platform, machine, inputs = found
    operations.exact_packages(
        name=title, packages=packages, options=options(inputs, machine),
        earlier=sorted(earlier.intersection(each.name for each in packages)), _timeout=INSTALL_TIMEOUT_S,
    )  # fmt: skip
    modules = dkms_of(platform, tuple(dict.fromkeys(each.component for each in packages)))
    release = platform.components.kernel.version if platform.components.kernel else machine.kernel
    if modules:
        operations.dkms_modules(
            name=f"{title}: modules", modules=modules, release=release, family=machine.family,
            earlier=[each for each in modules if f"dkms {each}" in earlier], _timeout=INSTALL_TIMEOUT_S,
        )  # fmt: skip
        take(f"dkms {each}" for each in modules)


@deploy("Versions: network stack")
def network_stack() -> None:
    """DOCA or OFED, before the GPU driver, which links to its symbols."""
    stage("network", "Network stack")


@deploy("Versions: the rest")
def rest() -> None:
    """Whatever of the set no other deploy has installed by now."""
    for name, title in REST.items():
        stage(name, title)
    found = _here()
    if found is not None and (files := placed_files(*found)):
        file_operations.placed_files(
            name="Files of the set", wanted=files, proxy=found[2].proxy, _timeout=INSTALL_TIMEOUT_S
        )


@deploy("Versions: hold and read back")
def hold_and_read_back() -> None:
    """Last of all: hold everything, then prove that every version is the locked one."""
    found = _here()
    if found is None:
        return
    platform, machine, inputs = found
    packages = packages_here("all")
    if packages and inputs.hold:
        operations.held(name="Holds", packages=packages, family=machine.family, lock_wait_s=inputs.lock_wait_s)
    if packages:
        operations.read_back(name="Read back", packages=packages, family=machine.family, hold=inputs.hold)
    if files := placed_files(platform, machine, inputs):
        file_operations.placed_files_read_back(name="Files of the set", wanted=files)
    versions = versions_here()
    if platform.components.kernel is not None and versions is not None:
        operations.modules_in_force(
            name="Modules of the locked kernel",
            modules=stage_dkms(versions, machine, "all", here().node.groups),
            release=platform.components.kernel.version,
        )
    site = here()
    if platform.components.nic_firmware and machine.devices(ADAPTERS) and uses_adapters_here(site):
        node = site.node
        nic_operations.locked_firmware_in_force(
            name="Firmware of adapters", locked=locked_firmware(node, nic_stack(node), platform.components)
        )


@deploy("Holds")
def promised_holds() -> None:
    """What the architecture wants held, with or without a version set: once everything is installed."""
    names = here().architecture.system.holds
    if names:
        operations.promised_held(name="Promised holds", names=names, family=family_here())


def placed_files(platform: Platform, machine: Machine, inputs: VersionInputs) -> tuple[Placed, ...]:
    """Files of the components that this node gets. Raises DeployError for a draft."""
    try:
        return placed(stage_components(platform, "all", machine, here().node.groups), inputs.mirrors)
    except ValueError as error:
        raise DeployError(f"{host.name}: versions_lock: {error}") from None


def freeze_units(family: str) -> tuple[Unit, ...]:
    return tuple(Unit(name, enabled=None, running=None, masked=True) for name in FREEZE_UNITS[family])


def options(inputs: VersionInputs, machine: Machine) -> Options:
    """How ``exact_packages`` works on this node."""
    return Options(
        family=machine.family,
        allow_downgrade=inputs.allow_downgrade,
        allow_removal=inputs.allow_removal,
        lock_wait_s=inputs.lock_wait_s,
        free_mib=inputs.free_mib,
        proxy=inputs.proxy,
    )


def dkms_of(platform: Platform, components: tuple[str, ...]) -> tuple[str, ...]:
    found = (module for name, each in platform.components.named() if name in components for module in each.dkms)
    return tuple(dict.fromkeys(found))


def _here() -> tuple[Platform, Machine, VersionInputs] | None:
    """None without a version set, and on a node that cannot be read, whose first operation says so.

    Raises DeployError where the set contradicts itself or has nothing for the operating system.
    """
    versions = versions_here()
    if versions is None:
        return None
    if problems := contradictions(versions):
        more = f" (and {len(problems) - 1} more: rackproof versions check)" if len(problems) > 1 else ""
        raise DeployError(f"{host.name}: versions_lock: {problems[0].sentence}{more}")
    machine = machine_here()
    platform = platform_here()
    if machine is None or platform is None:
        operations.identified(name="Operating system")
        return None
    if machine.family not in FREEZE_UNITS:
        raise DeployError(f"{host.name}: {machine.label}: no package manager is known for it (there are apt and dnf)")
    return platform, machine, version_inputs(here().node)
