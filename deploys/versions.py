"""The version set: repositories and their keys, exact packages of each stage, holds, and their verification.

Other deploys install their own stages (``rackproof.configure.versions.stages``); run alone, this file installs all of
them. Without ``versions_lock`` in the inventory it only holds the packages that the architecture names.
"""

from __future__ import annotations

from deploys.driver_swap import driver_swap
from deploys.preflight import preflight
from deploys.reboot import reboot
from rackproof.configure import operations as common
from rackproof.configure.base import plan as base
from rackproof.configure.deploy import alone, deploy
from rackproof.configure.machine import family_here
from rackproof.configure.nic import declared, firmware_operations
from rackproof.configure.packages import VERSION_LOCK
from rackproof.configure.site import here
from rackproof.configure.versions import operations, plan
from rackproof.configure.versions.site import packages_here
from rackproof.configure.versions.stages import INSTALL_TIMEOUT_S, stage


@deploy("Versions: freeze and repositories")
def repositories() -> None:
    """Before the first installation: disable unattended upgrades, and add the set's repositories."""
    lock = plan.lock_here()
    if lock is None:
        return
    platform, machine, inputs = lock
    if here().architecture.system.unattended_upgrades != "frozen":  # else base has stopped them
        common.units(name="No upgrades by themselves", wanted=base.updates(masked=True, family=machine.family))
    if machine.family == "rhel" and inputs.hold:
        common.packages(name="Version lock", names=VERSION_LOCK, family="rhel")
    keys, entries = plan.repositories(platform, machine, inputs)
    if entries:
        operations.signing_keys(name="Repository keys", wanted=keys, family=machine.family, proxy=inputs.proxy)
        common.files(name="Repositories", entries=entries)


@deploy("Versions: kernel")
def kernel() -> None:
    """Kernel and headers of exactly the locked release, set as the boot loader's default; leaves a reboot mark."""
    lock = plan.lock_here()
    if lock and (release := lock[0].components.kernel):
        stage("kernel", "Kernel and headers")
        operations.boot_kernel(name="Kernel of the next start", release=release.version, family=lock[1].family)


@deploy("Versions: network stack")
def network_stack() -> None:
    """DOCA or OFED, before the GPU driver, which links to its symbols."""
    stage("network", "Network stack")


@deploy("Versions: the rest")
def rest() -> None:
    """Packages of the set that no other deploy has installed."""
    stage("network", "Network stack")
    stage("driver", "GPU driver")
    stage("gpu", "GPU tools")
    stage("gds", "GPUDirect Storage")
    stage("clients", "File-system clients")
    stage("others", "Other locked packages")
    lock = plan.lock_here()
    if lock and (files := plan.placed_files(*lock)):
        operations.placed_files(name="Files of the set", wanted=files, proxy=lock[2].proxy, _timeout=INSTALL_TIMEOUT_S)


@deploy("Versions: hold and read back")
def hold_and_read_back() -> None:
    """Last: hold all packages, then verify that every version is the locked one."""
    site, lock = here(), plan.lock_here()
    if lock is None:
        return
    platform, machine, inputs = lock
    packages = packages_here("all")
    if packages and inputs.hold:
        operations.held(name="Holds", packages=packages, family=machine.family)
    if packages:
        operations.read_back(name="Read back", packages=packages, family=machine.family, hold=inputs.hold)
    if files := plan.placed_files(platform, machine, inputs):
        operations.placed_files_read_back(name="Files of the set", wanted=files)
    if platform.components.kernel:
        operations.modules_in_force(
            name="Modules of the locked kernel",
            modules=plan.dkms_here(machine),
            release=platform.components.kernel.version,
        )
    if platform.components.nic_firmware and declared.compares_firmware(site, machine):
        firmware_operations.locked_firmware_in_force(
            name="Firmware of adapters", locked=declared.firmware(site, platform.components)
        )


@deploy("Versions: holds")
def holds() -> None:
    """Hold the packages that the architecture names, with or without a version set, after all installations."""
    if names := here().architecture.system.holds:
        operations.declared_held(name="Declared holds", names=names, family=family_here())


if alone(__name__, plan.why_nothing):
    preflight()
    repositories()
    kernel()
    driver_swap()
    rest()
    hold_and_read_back()
    holds()
    reboot()
