"""Selects the module of a storage by its class and its file system type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Protocol

from rackproof.configure.files import Entry
from rackproof.configure.mounts import DesiredMount
from rackproof.configure.storage_client import beegfs, cephfs, daos, lustre, multipath, nfs, scale, weka
from rackproof.configure.storage_client.client import Client, ClientNode, NamedStorage, mount_of
from rackproof.core.architecture import Storage
from rackproof.errors import DeclarationError


class Vendor(Protocol):
    """A module of this package: client and mounts of a file system."""

    def mounts(self, named: NamedStorage, node: ClientNode) -> tuple[DesiredMount, ...]: ...

    def client(self, named: NamedStorage, node: ClientNode, family: str) -> Client: ...


VENDORS: Mapping[str, Vendor] = {
    "lustre": lustre,
    "beegfs": beegfs,
    "gpfs": scale,
    "wekafs": weka,
    "fuse.daos": daos,
}
"""File systems whose software does not come from the distribution."""


def mounts_of(named: NamedStorage, node: ClientNode, own_fsid: str | None = None) -> tuple[DesiredMount, ...]:
    """Desired mounts of one storage. Raises DeclarationError, one line, for a storage that cannot be mounted."""
    storage = named.storage
    if storage.class_ == "local":
        what = f"/dev/disk/by-label/{storage.source}"
        ahead = storage.read_ahead_kib
        return (
            mount_of(named, what=what, type=storage.fstype, options=("nofail",), network=False, read_ahead_kib=ahead),
        )
    if storage.class_ == "nfs":
        return nfs.mounts(named, node)
    if storage.class_ == "parallel" and storage.fstype == "ceph":
        return cephfs.mounts(named, node, own_fsid)
    if storage.class_ == "parallel" and storage.fstype in VENDORS:
        return VENDORS[storage.fstype].mounts(named, node)
    raise DeclarationError(f"{named.name}: no rule to mount storage of class {storage.class_} as {storage.fstype}")


def asks_machine(storages: Sequence[Storage], node: ClientNode) -> bool:
    """Whether the client software depends on the node's distribution."""
    vendors = any(storage.class_ == "parallel" and storage.fstype in VENDORS for storage in storages)
    return vendors or (node.inputs.nfs.driver != "kernel" and any(s.class_ == "nfs" for s in storages))


def clients_of(
    storages: Sequence[NamedStorage], node: ClientNode, family: str, own_fsid: str | None
) -> tuple[Client, ...]:
    """Clients for all storage of a node. ``family`` is used only when ``asks_machine`` is true.

    Raises DeclarationError when an input is missing.
    """
    clients: list[Client] = []
    writers: dict[str, tuple[str, Entry]] = {}
    of_nfs = [named for named in storages if named.storage.class_ == "nfs"]
    if of_nfs:
        clients.append(Client(install=multipath.steps(node.inputs.nfs, family, node.policy)))
        clients.append(nfs.client(of_nfs, node))
    for named in storages:
        storage = named.storage
        if storage.class_ == "parallel" and storage.fstype == "ceph":
            clients.append(cephfs.client(named, node, own_fsid))
        elif storage.class_ == "parallel" and storage.fstype in VENDORS:
            client = VENDORS[storage.fstype].client(named, node, family)
            for entry in client.files:
                other, written = writers.setdefault(entry.path, (named.name, entry))
                if written != entry:
                    raise DeclarationError(
                        f"{other}, {named.name}: one node cannot mount both, they need different contents of"
                        f" {entry.path}; give both the same network (transport), or mount one of them on other nodes"
                    )
            clients.append(client)
    return tuple(clients)


def merge_clients(clients: Sequence[Client]) -> Client:
    """All clients as one. Two file systems of one kind share packages, services and repositories."""
    parts = {part.name: [item for client in clients for item in getattr(client, part.name)] for part in fields(Client)}
    files, units = parts.pop("files"), parts.pop("units")
    return Client(
        files=tuple({entry.path: entry for entry in files}.values()),
        units=tuple({unit.name: unit for unit in units}.values()),
        **{name: tuple(dict.fromkeys(items)) for name, items in parts.items()},
    )
