"""Exact versions in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rackproof.configure.package_transaction.transaction import Package, Policy, Transaction, transaction_script
from rackproof.configure.versions.state import PackageState, is_installed
from rackproof.core.versions import LockedPackage
from rackproof.errors import Refused
from rackproof.parse.packages import held_packages

FIRST: Final = "nvidia-driver-pinning"
"""Packages that are installed before the others: they pin the branch of what those depend on."""

BOOT_KERNEL: Final = 10
"""Which part of ``free_mib`` must be free below /boot for a kernel."""
BOOT: Final = 40
"""And for anything else: an initial file system is written again at most, and RHEL's /boot has 1 GiB."""


class NoRoom(Refused):
    """There is not enough free space; nothing was changed."""


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """What has to be installed; empty when everything is there."""

    packages: tuple[LockedPackage, ...] = ()
    script: str = ""

    def __bool__(self) -> bool:
        return bool(self.packages)


def plan_install(packages: Sequence[LockedPackage], state: PackageState, family: str, policy: Policy) -> InstallPlan:
    """One transaction with everything that is not there at its version.

    Raises NoRoom, one line, where it would not fit.
    """
    missing = tuple(package for package in packages if not is_installed(package, state, family))
    if not missing and not state.broken:
        return InstallPlan()
    if not missing:
        missing = tuple(packages)  # a repair is a transaction too, and has to be proven
    room = room_mib(missing, state, policy)
    for directory, needed in room.items():
        if state.free_mib[directory] < needed:
            raise NoRoom(
                f"{directory}: {state.free_mib[directory]} MiB free, {needed} wanted before packages are installed;"
                " make room (apt-get clean, dnf clean all, old kernels), or lower versions.free_mib"
            )
    exact = {package: Package(package.name, package.version) for package in missing}
    first = tuple(package for package in exact.values() if package.name.startswith(FIRST))
    rest = tuple(package for package in exact.values() if package not in first)
    return InstallPlan(
        missing, transaction_script(Transaction(family, rest, first=first, room_mib=room, policy=policy))
    )


def room_mib(packages: Sequence[LockedPackage], state: PackageState, policy: Policy) -> Mapping[str, int]:
    """Free space that packages need, of the directories that were looked at."""
    boot = BOOT_KERNEL if any(package.component == "kernel" for package in packages) else BOOT
    return {path: policy.free_mib // boot if path == "/boot" else policy.free_mib for path in state.free_mib}


def holds_some_version(package: LockedPackage, state: PackageState, family: str) -> bool:
    """Whether a package is held, at whatever version."""
    return bool(held_packages(state.held, {package.name: None}, family))
