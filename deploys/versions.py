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
from rackproof.configure.machine import family_here
from rackproof.configure.nic import operations as nic_operations
from rackproof.configure.nic.declared import locked_firmware, nic_stack, uses_adapters_here
from rackproof.configure.nic.devices import VENDOR as ADAPTERS
from rackproof.configure.packages import VERSION_LOCK
from rackproof.configure.site import here
from rackproof.configure.versions import file_operations, operations, plan, repositories
from rackproof.configure.versions.site import (
    locked,
    packages_here,
    take,
    taken,
    versions_here,
)
from rackproof.core.versions import stage_dkms

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


@deploy("Versions: freeze and repositories")
def repositories_and_freeze() -> None:
    """Before the first installation: nothing upgrades by itself, and packages come from where the set says."""
    found = plan.lock_here()
    if found is None:
        return
    platform, machine, inputs = found
    if here().architecture.system.unattended_upgrades != "frozen":  # else the base has stopped them
        common.units(name="No upgrades by themselves", wanted=plan.freeze_units(machine.family))
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
    found = plan.lock_here()
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
    found = plan.lock_here()
    earlier = taken()
    packages = locked(name) if found else ()
    if found is None or not packages:
        return
    platform, machine, inputs = found
    operations.exact_packages(
        name=title, packages=packages, options=plan.options(inputs, machine),
        earlier=sorted(earlier.intersection(each.name for each in packages)), _timeout=INSTALL_TIMEOUT_S,
    )  # fmt: skip
    modules = plan.dkms_of(platform, tuple(dict.fromkeys(each.component for each in packages)))
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
    found = plan.lock_here()
    if found is not None and (files := plan.placed_files(*found)):
        file_operations.placed_files(
            name="Files of the set", wanted=files, proxy=found[2].proxy, _timeout=INSTALL_TIMEOUT_S
        )


@deploy("Versions: hold and read back")
def hold_and_read_back() -> None:
    """Last of all: hold everything, then prove that every version is the locked one."""
    found = plan.lock_here()
    if found is None:
        return
    platform, machine, inputs = found
    packages = packages_here("all")
    if packages and inputs.hold:
        operations.held(name="Holds", packages=packages, family=machine.family, lock_wait_s=inputs.lock_wait_s)
    if packages:
        operations.read_back(name="Read back", packages=packages, family=machine.family, hold=inputs.hold)
    if files := plan.placed_files(platform, machine, inputs):
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
