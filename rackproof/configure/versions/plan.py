"""Files, units and options of the version set of a node."""

from __future__ import annotations

from rackproof.configure.files import Entry
from rackproof.configure.machine import required_machine
from rackproof.configure.operation import required
from rackproof.configure.settings import read_inputs
from rackproof.configure.site import Site, here
from rackproof.configure.versions import repositories as repository_files
from rackproof.configure.versions.downloads import Placed, placed
from rackproof.configure.versions.inputs import VersionInputs
from rackproof.configure.versions.site import (
    packages_here,
    platform_here,
    versions_here,
)
from rackproof.core.machine import Machine
from rackproof.core.updaters import UPDATERS
from rackproof.core.versions import Platform, stage_components, stage_dkms
from rackproof.core.versions.consistency import contradictions
from rackproof.core.wording import and_more
from rackproof.errors import DeclarationError


def why_nothing(site: Site) -> str | None:
    """Raises DeclarationError when the version set cannot be used."""
    if versions_here() is not None or site.architecture.system.holds:
        return None
    return "the inventory names no version set (versions_lock) and the architecture holds no packages"


def placed_files(platform: Platform, machine: Machine, inputs: VersionInputs) -> tuple[Placed, ...]:
    """Files of the components of this node. Raises DeclarationError for a draft."""
    return placed(stage_components(platform, "all", machine, here().node.groups), inputs.mirrors)


def repositories(
    platform: Platform, machine: Machine, inputs: VersionInputs
) -> tuple[tuple[repository_files.Key, ...], tuple[Entry, ...]]:
    """Signing keys and files of the repositories that the node's packages come from. Raises DeclarationError."""
    used = {package.repository for package in packages_here("all")}
    wanted = {name: repository for name, repository in platform.repositories.items() if name in used}
    return (
        repository_files.keys(wanted, inputs.mirrors),
        tuple(repository_files.files(platform, wanted, machine, inputs.mirrors, inputs.proxy)) if wanted else (),
    )


def dkms_here(machine: Machine) -> tuple[str, ...]:
    """DKMS modules of the set for the current node."""
    versions = versions_here()
    return stage_dkms(versions, machine, "all", here().node.groups) if versions else ()


def dkms_of(platform: Platform, components: tuple[str, ...]) -> tuple[str, ...]:
    modules = (
        module for name, component in platform.components.named() if name in components for module in component.dkms
    )
    return tuple(dict.fromkeys(modules))


def lock_here() -> tuple[Platform, Machine, VersionInputs] | None:
    """Platform, machine and inputs of the current node. None without a version set.

    Raises Unreadable, and DeclarationError when the set contradicts itself or lacks the operating system.
    """
    versions = versions_here()
    if versions is None:
        return None
    if problems := contradictions(versions):
        more = and_more(len(problems) - 1, ": rackproof versions check")
        raise DeclarationError(f"versions_lock: {problems[0].sentence}{more}")
    machine = required_machine()
    platform = required(platform_here(), "the operating system")
    if machine.family not in UPDATERS:
        raise DeclarationError(f"{machine.label}: its package manager is not supported (expected apt or dnf)")
    return platform, machine, read_inputs(here().node, VersionInputs)
