"""Holds installed packages and verifies the holds."""

from __future__ import annotations

from collections.abc import Sequence

from rackproof.configure.package_transaction.transaction import Policy, Transaction, transaction_script
from rackproof.configure.versions.state import PackageState, is_held, is_installed
from rackproof.core.versions import LockedPackage


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
