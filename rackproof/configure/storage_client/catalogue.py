"""Selects the module of a storage by its class and its file system type."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rackproof.configure.mounts import DesiredMount
from rackproof.configure.storage_client import beegfs, cephfs, daos, local, lustre, multipath, nfs, scale, weka
from rackproof.configure.storage_client.client import Client, ClientNode, NamedStorage
from rackproof.core.architecture import Storage
from rackproof.errors import DeclarationError

_PARALLEL = {
    "lustre": lustre.mounts,
    "beegfs": beegfs.mounts,
    "gpfs": scale.mounts,
    "wekafs": weka.mounts,
    "fuse.daos": daos.mounts,
}
VENDORS = tuple(_PARALLEL)
"""File systems whose software does not come from the distribution."""

Secrets = Callable[[str], bytes | None]
"""The secret of ``beegfs`` or ``cephfs``."""


def mounts_of(named: NamedStorage, node: ClientNode, own_fsid: str | None = None) -> tuple[DesiredMount, ...]:
    """Desired mounts of one storage. Raises DeclarationError, one line, for a storage that cannot be mounted."""
    storage = named.storage
    if storage.class_ == "local":
        return local.mounts(named)
    if storage.class_ == "nfs":
        return nfs.mounts(named, node)
    if storage.class_ == "parallel" and storage.fstype == "ceph":
        return cephfs.mounts(named, node, own_fsid)
    if storage.class_ == "parallel" and storage.fstype in _PARALLEL:
        return _PARALLEL[storage.fstype](named, node)
    raise DeclarationError(f"{named.name}: no rule to mount storage of class {storage.class_} as {storage.fstype}")


def asks_machine(storages: Sequence[Storage], node: ClientNode) -> bool:
    """Whether the client software depends on the node's distribution."""
    vendors = any(storage.class_ == "parallel" and storage.fstype in VENDORS for storage in storages)
    return vendors or (node.inputs.nfs.driver != "kernel" and any(s.class_ == "nfs" for s in storages))


def clients_of(
    storages: Sequence[NamedStorage], node: ClientNode, family: str, own_fsid: str | None, secrets: Secrets
) -> tuple[Client, ...]:
    """Clients for all storage of a node. ``family`` is used only when ``asks_machine`` is true.

    Raises DeclarationError when an input is missing.
    """
    clients = []
    of_nfs = [named for named in storages if named.storage.class_ == "nfs"]
    if of_nfs:
        steps = multipath.steps(node.inputs.nfs, family, node.policy)
        downloads = (node.inputs.nfs.bundle, node.inputs.nfs.package) if steps else ()
        clients.append(Client(install=steps, downloads=tuple(d for d in downloads if d)))
        clients.append(nfs.client(of_nfs, node))
    for named in storages:
        storage = named.storage
        if storage.class_ != "parallel":
            continue
        if storage.fstype == "ceph":
            clients.append(cephfs.client(named, node, own_fsid, None if own_fsid else secrets("cephfs")))
        elif storage.fstype == "beegfs":
            clients.append(beegfs.client(named, node, family, secrets("beegfs")))
        elif storage.fstype == "lustre":
            clients.append(lustre.client(named, node, family))
        elif storage.fstype == "gpfs":
            clients.append(scale.client(named, node, family))
        elif storage.fstype == "wekafs":
            clients.append(weka.client(named, node, family))
        elif storage.fstype == "fuse.daos":
            clients.append(daos.client(named, node, family))
    return tuple(clients)


def merge_clients(clients: Sequence[Client]) -> Client:
    """All clients as one. Two file systems of one kind share packages, services and repositories."""
    files = {entry.path: entry for client in clients for entry in client.files}
    units = {unit.name: unit for client in clients for unit in client.units}
    return Client(
        files=tuple(files.values()),
        guards=tuple(dict.fromkeys(step for client in clients for step in client.guards)),
        install=tuple(dict.fromkeys(step for client in clients for step in client.install)),
        modules=tuple(dict.fromkeys(name for client in clients for name in client.modules)),
        units=tuple(units.values()),
        ready=tuple(dict.fromkeys(step for client in clients for step in client.ready)),
        proofs=tuple(dict.fromkeys(step for client in clients for step in client.proofs)),
        downloads=tuple(dict.fromkeys(download for client in clients for download in client.downloads)),
    )
