"""State of a version set's packages on a node: versions, holds, half-configured packages, free space."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rackproof import shell
from rackproof.core.versions import LockedPackage
from rackproof.core.versions.tables import KERNEL_PACKAGES
from rackproof.parse.free_space import parse_free_mib
from rackproof.parse.packages import held_packages, parse_package_list
from rackproof.parse.sections import sections_of

ROOM: Final = ("/usr", "/var", "/boot")
"""Folders that packages are downloaded to and unpacked to."""


@dataclass(frozen=True, slots=True)
class PackageState:
    """Answer of ``state_command``. Versions from rpm start with their epoch, ``0:5.14.0-427.el9``."""

    installed: Mapping[str, tuple[str, ...]]
    """Versions by name; several for multiversion packages and for several architectures."""
    held: frozenset[str]
    """Names from apt-mark; on RHEL entries of versionlock, ``kernel-0:5.14.0-427.el9.*``."""
    broken: tuple[str, ...]
    """Packages that an interrupted run left half-configured."""
    free_mib: Mapping[str, int | None]
    """By folder of ``ROOM``; None when df gave no answer."""


def state_command(names: Sequence[str], family: str) -> str:
    """Shell text that prints the state of the given packages."""
    return shell.script(__name__, "state", *names, family=family, room=" ".join(ROOM))


def parse_state(lines: Sequence[str], family: str) -> PackageState:
    """Answer of ``state_command``. Raises ValueError on anything else."""
    *sections, free = sections_of(lines, 4)
    bodies = [section[:-1] for section in sections]
    statuses = [_status(section) for section in sections]
    # rpm's exit status is the number of packages that are not installed, up to 125
    if statuses[0] > (1 if family == "debian" else 125):
        raise ValueError(f"the list of packages ended with exit status {statuses[0]}")
    if statuses[1] and family == "debian":
        raise ValueError(f"apt-mark ended with exit status {statuses[1]}")
    if statuses[2] > 1:
        raise ValueError("the package database could not be read")
    free_mib = parse_free_mib(free)
    return PackageState(
        installed=parse_package_list(bodies[0]),
        # Without its plugin dnf lacks the command: nothing is held then, and the operation names the missing plugin.
        held=frozenset(bodies[1] if not statuses[1] else ()),
        broken=tuple(line.split()[1] for line in bodies[2]),
        free_mib={path: free_mib.get(path) for path in ROOM},
    )


def _status(section: Sequence[str]) -> int:
    word, _, number = (section[-1] if section else "").partition(" ")
    if word != "status":
        raise ValueError("a section without an exit status")
    return int(number)


def same_version(actual: str, locked: str, family: str) -> bool:
    """Whether an installed version is the locked one; a lock for RHEL may omit the epoch."""
    if family == "rhel" and ":" not in locked:
        actual = actual.partition(":")[2]
    return actual == locked


def is_installed(package: LockedPackage, state: PackageState, family: str) -> bool:
    """Whether the package is installed at exactly its version, and at no other except for multiversion packages."""
    versions = state.installed.get(package.name, ())
    same = [same_version(version, package.version, family) for version in versions]
    if family == "rhel" and KERNEL_PACKAGES.fullmatch(package.name):
        return any(same)
    return bool(same) and all(same)


def is_held(package: LockedPackage, state: PackageState, family: str) -> bool:
    return bool(held_packages(state.held, {package.name: package.version}, family))


def differences(packages: Iterable[LockedPackage], state: PackageState, family: str, held: bool) -> tuple[str, ...]:
    """Differences from the lock, one per package: ``libnccl2: expected 2.30.4-1, actual not installed``."""
    wrong = []
    for package in packages:
        if not is_installed(package, state, family):
            actual = ", ".join(state.installed.get(package.name, ())) or "not installed"
            wrong.append(f"{package.name}: expected {package.version}, actual {actual}")
        elif held and not is_held(package, state, family):
            wrong.append(f"{package.name}: expected held, actual not held")
    return tuple(wrong)
