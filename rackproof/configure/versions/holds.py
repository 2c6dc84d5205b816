"""Holding what is installed, and reading back that it is held."""

from __future__ import annotations

from collections.abc import Sequence

from rackproof.configure.package_transaction.transaction import Policy, Transaction, transaction_script
from rackproof.configure.versions.state import PackageState, is_held, is_installed
from rackproof.core.versions import LockedPackage


def to_hold(
    packages: Sequence[LockedPackage], state: PackageState, family: str, all_there: bool = False
) -> tuple[LockedPackage, ...]:
    """Packages that are installed as locked and not held. Missing ones are left to the installation.

    ``all_there``: as if everything were installed as locked, as it will be at the end of a run.
    """
    return tuple(
        package
        for package in packages
        if (all_there or is_installed(package, state, family)) and not is_held(package, state, family)
    )


def hold_script(packages: Sequence[LockedPackage], family: str, policy: Policy) -> str:
    """Hold, read the holds again, and fail with the names of those that are missing: a hold that was set and is not
    listed lets a fabric manager drift from its driver."""
    names = tuple(dict.fromkeys(package.name for package in packages))
    return transaction_script(Transaction(family, hold=names, policy=policy))
