"""Files, units and options of the version set of a node."""

from __future__ import annotations

from pyinfra.api.exceptions import DeployError
from pyinfra.context import host

from rackproof.configure.machine import machine_here
from rackproof.configure.site import here
from rackproof.configure.units import Unit
from rackproof.configure.versions import operations
from rackproof.configure.versions.downloads import Placed, placed
from rackproof.configure.versions.install import Options
from rackproof.configure.versions.site import (
    VersionInputs,
    platform_here,
    version_inputs,
    versions_here,
)
from rackproof.core.machine import Machine
from rackproof.core.versions import Platform, stage_components
from rackproof.core.versions.consistency import contradictions
from rackproof.core.wording import and_more

FREEZE_UNITS = {
    "debian": ("apt-daily.timer", "apt-daily-upgrade.timer", "unattended-upgrades.service"),
    "rhel": ("dnf-automatic.timer", "dnf-automatic-install.timer", "dnf-automatic-download.timer"),
}
"""What upgrades a node behind everybody's back."""


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


def lock_here() -> tuple[Platform, Machine, VersionInputs] | None:
    """None without a version set, and on a node that cannot be read, whose first operation says so.

    Raises DeployError where the set contradicts itself or has nothing for the operating system.
    """
    versions = versions_here()
    if versions is None:
        return None
    if problems := contradictions(versions):
        more = and_more(len(problems) - 1, ": rackproof versions check")
        raise DeployError(f"{host.name}: versions_lock: {problems[0].sentence}{more}")
    machine = machine_here()
    platform = platform_here()
    if machine is None or platform is None:
        operations.identified(name="Operating system")
        return None
    if machine.family not in FREEZE_UNITS:
        raise DeployError(f"{host.name}: {machine.label}: no package manager is known for it (there are apt and dnf)")
    return platform, machine, version_inputs(here().node)
