"""The version set of the current node.

Deploys of other domains use it so::

    packages = locked("driver")            # of a stage, or of one component: locked("clients.weka")
    if packages:
        operations.exact_packages(name="Driver", packages=packages)
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from pyinfra.api.state import State
from pyinfra.context import host

from rackproof import version_sets
from rackproof.configure.machine import machine_here
from rackproof.configure.package_transaction.transaction import STRICT, Policy
from rackproof.configure.settings import read_inputs
from rackproof.configure.site import here
from rackproof.configure.versions.inputs import VersionInputs
from rackproof.core.versions import STAGES, LockedPackage, Platform, VersionSet, platform_of, stage_packages
from rackproof.core.versions.select import component_packages


def policy_here() -> Policy:
    """The inventory's limits of package transactions on the current node. Raises DeclarationError, one line."""
    if getattr(host, "data", None) is None:  # hosts in tests have none
        return STRICT
    return read_inputs(here().node, VersionInputs).policy


def versions_here() -> VersionSet | None:
    """The version set of the current node. Raises DeclarationError, one line."""
    return version_sets.versions_of(here().node)


def platform_here() -> Platform | None:
    """The set's platform for this node's operating system; None without a set, or for an unreadable node.

    Raises DeclarationError when the set lacks the operating system.
    """
    versions = versions_here()
    machine = machine_here() if versions is not None else None
    if versions is None or machine is None:
        return None
    return platform_of(versions, machine)


_taken: WeakKeyDictionary[State, dict[str, set[str]]] = WeakKeyDictionary()


def taken() -> frozenset[str]:
    """Names that earlier deploys of this run install on the current node, recorded by ``locked`` and ``take``."""
    return frozenset(_taken.get(host.state, {}).get(host.name, ()))


def take(names: Iterable[str]) -> None:
    """Record that the caller installs these packages; DKMS modules are ``dkms NAME``."""
    _taken.setdefault(host.state, {}).setdefault(host.name, set()).update(names)


def locked(part: str) -> tuple[LockedPackage, ...]:
    """Packages of a stage or component for the current node; records that the caller installs them. Empty without a
    set.

    Raises DeclarationError, one line.
    """
    packages = packages_here(part)
    take(package.name for package in packages)
    return packages


def packages_here(part: str) -> tuple[LockedPackage, ...]:
    """As ``locked``, without recording that the caller installs them. Raises DeclarationError, one line."""
    versions = versions_here()
    machine = machine_here() if versions is not None else None
    if versions is None or machine is None:
        return ()
    chosen = stage_packages if part in STAGES or part == "all" else component_packages
    return chosen(versions, machine, part, here().node.groups)
