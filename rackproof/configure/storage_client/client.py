"""Types that all storage clients share: the node, and the needs of one kind of client."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackproof.configure.files import Entry
from rackproof.configure.mounts import DesiredMount
from rackproof.configure.package_transaction.transaction import STRICT, Policy
from rackproof.configure.storage_client.inputs import StorageClientInputs
from rackproof.configure.storage_client.steps import Step
from rackproof.configure.units import Unit
from rackproof.core.architecture import Storage
from rackproof.errors import DeclarationError


@dataclass(frozen=True, slots=True)
class ClientNode:
    """A node that mounts storage."""

    node: str
    index: int = 0
    """Position among the nodes that mount the same storage, which spreads them over its servers."""
    interfaces: tuple[str, ...] = ()
    """Names of the fabric's ports."""
    roce_tos: int | None = None
    """Type of service of a RoCE fabric."""
    inputs: StorageClientInputs = field(default_factory=StorageClientInputs)
    locked: Mapping[str, str] = field(default_factory=dict)
    """Packages of the version set: name to version."""
    policy: Policy = STRICT
    """The inventory's limits for the package manager."""
    secret: Callable[[str], bytes | None] = lambda kind: None
    """The secret of ``beegfs`` or ``cephfs``; None where the inventory names none."""


@dataclass(frozen=True, slots=True)
class Client:
    """Software, files and units of a kind of client, besides its mounts."""

    files: tuple[Entry, ...] = ()
    guards: tuple[Step, ...] = ()
    """Tests before any package is installed: software in use must not be replaced."""
    install: tuple[Step, ...] = ()
    """Before services and mounts."""
    modules: tuple[str, ...] = ()
    """Loaded at boot."""
    units: tuple[Unit, ...] = ()
    """Services that the mounts need."""
    ready: tuple[Step, ...] = ()
    """After the services, before the mounts."""
    proofs: tuple[Step, ...] = ()
    """After the mounts: checks that they use the declared transport."""


@dataclass(frozen=True, slots=True)
class NamedStorage:
    """A storage and its name in the architecture."""

    name: str
    storage: Storage
    servers: tuple[str, ...] = ()
    """Addresses in the architecture's or the inventory's order."""

    def first_servers(self, why: str) -> tuple[str, ...]:
        """``servers``. Raises DeclarationError when there are none; ``why`` says what needs them."""
        if not self.servers:
            raise DeclarationError(
                f"{self.name}: {why}: give storage.{self.name}.servers, or a server_role with nodes that have"
                " fabric_addresses"
            )
        return self.servers


def in_turn(servers: Sequence[str], index: int, count: int) -> tuple[str, ...]:
    """``count`` servers for a node: round robin, starting at a different server on every node, so that load is even."""
    return tuple(servers[(index + k) % len(servers)] for k in range(count))


def mounted_test(mountpoint: str, fstype: str) -> str:
    """Shell test that reads the kernel's mount table and never the mount itself."""
    return f"grep -q {shlex.quote(f' {mountpoint} {fstype} ')} /proc/self/mounts"


def mount_of(
    named: NamedStorage, *, what: str, type: str, options: Sequence[str] = (), **further: Any
) -> DesiredMount:  # fmt: skip
    """A mount of a storage as it declares it. ``options`` give way to declared ones of the same name; ``further``:
    fields of ``DesiredMount``."""
    storage = named.storage
    keys = {option.split("=")[0] for option in storage.options}
    fields: dict[str, Any] = {
        "name": named.name,
        "where": storage.mountpoint,
        "fstype": storage.fstype,
        "required": storage.options_required,
        "forbidden": storage.options_forbidden,
        "network": True,
        "options": (*storage.options, *(option for option in options if option.split("=")[0] not in keys)),
    }
    return DesiredMount(what=what, type=type, **{**fields, **further})
