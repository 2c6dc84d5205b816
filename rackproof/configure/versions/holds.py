"""Holding what is installed, and reading back that it is held."""

from __future__ import annotations

from collections.abc import Sequence

from rackproof.configure.package_transaction.transaction import Policy, Transaction, transaction_script
from rackproof.configure.versions.state import PackageState, is_held, is_installed
from rackproof.core.versions import LockedPackage


def to_hold(
    packages: Sequence[LockedPackage], state: PackageState, family: str, all_there: bool = False
) -> tuple[LockedPackage, ...]:
    """Those that are there as locked and not held. What is not there is the installation's business.

    ``all_there``: as if everything were installed as locked, as it will be at the end of a run.
    """
    return tuple(
        each
        for each in packages
        if (all_there or is_installed(each, state, family)) and not is_held(each, state, family)
    )


def hold_script(packages: Sequence[LockedPackage], family: str, policy: Policy) -> str:
    """Hold, read the holds again, and fail with the names of those that are not there: a hold that was written and is
    not listed has let fabric managers drift from their drivers."""
    names = tuple(dict.fromkeys(each.name for each in packages))
    return transaction_script(Transaction(family, hold=names, policy=policy))
