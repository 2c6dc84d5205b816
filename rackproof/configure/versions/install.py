"""Plans the installation of exact package versions in one transaction, and their holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rackproof.configure.package_transaction.transaction import Package, Policy, Transaction, transaction_script
from rackproof.configure.versions.state import PackageState, is_held, is_installed
from rackproof.core.plan import Change
from rackproof.core.versions import LockedPackage
from rackproof.core.versions.tables import PINNING
from rackproof.errors import Refused
from rackproof.parse.packages import held_packages

BOOT_KERNEL: Final = 10
"""Divisor of ``free_mib`` for /boot when a kernel is installed."""
BOOT: Final = 40
"""Divisor of ``free_mib`` for /boot otherwise: at most an initramfs is rewritten, and RHEL's /boot has 1 GiB."""


def plan_install(
    packages: Sequence[LockedPackage], state: PackageState, family: str, policy: Policy
) -> tuple[str, list[Change]]:
    """Script with one transaction for all packages that are not installed at their versions, empty when all are; and
    its changes.

    Raises Refused, one line, when a file system lacks space.
    """
    missing = tuple(package for package in packages if not is_installed(package, state, family))
    if not missing and not state.broken:
        return "", []
    if not missing:
        missing = tuple(packages)  # the transaction repairs half-configured packages and verifies all
    room = room_mib(missing, state, policy)
    for directory, needed in room.items():
        free = state.free_mib[directory]
        if free is None:
            raise Refused(
                f"{directory}: free space unknown (df gives no answer), {needed} MiB wanted before packages are"
                f" installed; look at df {directory}"
            )
        if free < needed:
            raise Refused(
                f"{directory}: {free} MiB free, {needed} wanted before packages are installed;"
                " make room (apt-get clean, dnf clean all, old kernels), or lower versions.free_mib"
            )
    exact = {package: Package(package.name, package.version) for package in missing}
    first = tuple(package for package in exact.values() if package.name.startswith(PINNING))
    rest = tuple(package for package in exact.values() if package not in first)
    script = transaction_script(Transaction(family, rest, first=first, room_mib=room, policy=policy))
    return script, [Change(what=p.name, why=f"{_actual(p, state, family)} -> {p.version}") for p in missing]


def room_mib(packages: Sequence[LockedPackage], state: PackageState, policy: Policy) -> Mapping[str, int]:
    """Free space that packages need, by directory."""
    boot = BOOT_KERNEL if any(package.component == "kernel" for package in packages) else BOOT
    return {path: policy.free_mib // boot if path == "/boot" else policy.free_mib for path in state.free_mib}


def _actual(package: LockedPackage, state: PackageState, family: str) -> str:
    """Installed versions, and whether the package is held at any version."""
    held = held_packages(state.held, {package.name: None}, family)
    return (", ".join(state.installed.get(package.name, ())) or "not installed") + (", held" if held else "")


def to_hold(
    packages: Sequence[LockedPackage], state: PackageState, family: str, all_there: bool = False
) -> tuple[LockedPackage, ...]:
    """Packages that are installed as locked and not held. Missing packages are skipped.

    ``all_there``: assume that all packages are installed as locked, as at the end of a run.
    """
    return tuple(
        package
        for package in packages
        if (all_there or is_installed(package, state, family)) and not is_held(package, state, family)
    )


def hold_script(packages: Sequence[LockedPackage], family: str, policy: Policy) -> str:
    """Shell script that holds packages, reads the holds again, and fails with the names of missing ones: without its
    hold a fabric manager may be upgraded without its driver."""
    names = tuple(dict.fromkeys(package.name for package in packages))
    return transaction_script(Transaction(family, hold=names, policy=policy))
