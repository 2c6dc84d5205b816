"""Which module answers for which storage: by its class, and by the name that the kernel has for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rackproof.configure.mounts import DesiredMount
from rackproof.configure.storage import beegfs, cephfs, daos, local, lustre, multipath, nfs, scale, weka
from rackproof.configure.storage.client import Client, ClientNode, NamedStorage
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
"""Those whose software comes from outside of the distribution."""

Secrets = Callable[[str], bytes | None]
"""The secret of ``beegfs`` or ``cephfs``."""


def mounts_of(named: NamedStorage, around: ClientNode, own_fsid: str | None = None) -> tuple[DesiredMount, ...]:
    """Raises DeclarationError, one line, for what cannot be mounted."""
    storage = named.storage
    if storage.class_ == "local":
        return local.mounts(named)
    if storage.class_ == "nfs":
        return nfs.mounts(named, around)
    if storage.class_ == "parallel" and storage.fstype == "ceph":
        return cephfs.mounts(named, around, own_fsid)
    if storage.class_ == "parallel" and storage.fstype in _PARALLEL:
        return _PARALLEL[storage.fstype](named, around)
    raise DeclarationError(f"{named.name}: no rule to mount storage of class {storage.class_} as {storage.fstype}")


def asks_machine(storages: Sequence[Storage], around: ClientNode) -> bool:
    """Whether what is needed depends on the distribution of the node."""
    vendors = any(storage.class_ == "parallel" and storage.fstype in VENDORS for storage in storages)
    return vendors or (around.inputs.nfs.driver != "kernel" and any(s.class_ == "nfs" for s in storages))


def clients_of(
    storages: Sequence[NamedStorage], around: ClientNode, family: str, own_fsid: str | None, secrets: Secrets
) -> tuple[Client, ...]:
    """What the node needs for all its storage. ``family`` matters where ``asks_machine``.

    Raises DeclarationError when an input is missing.
    """
    found = []
    of_nfs = [each for each in storages if each.storage.class_ == "nfs"]
    if of_nfs:
        steps = multipath.steps(around.inputs.nfs, family, around.policy)
        downloads = (around.inputs.nfs.bundle, around.inputs.nfs.package) if steps else ()
        found.append(Client(install=steps, downloads=tuple(d for d in downloads if d)))
        found.append(nfs.client(of_nfs, around))
    for each in storages:
        storage = each.storage
        if storage.class_ != "parallel":
            continue
        if storage.fstype == "ceph":
            found.append(cephfs.client(each, around, own_fsid, None if own_fsid else secrets("cephfs")))
        elif storage.fstype == "beegfs":
            found.append(beegfs.client(each, around, family, secrets("beegfs")))
        elif storage.fstype == "lustre":
            found.append(lustre.client(each, around, family))
        elif storage.fstype == "gpfs":
            found.append(scale.client(each, around, family))
        elif storage.fstype == "wekafs":
            found.append(weka.client(each, around, family))
        elif storage.fstype == "fuse.daos":
            found.append(daos.client(each, around, family))
    return tuple(found)


def merge_clients(clients: Sequence[Client]) -> Client:
    """All of them as one. Two file systems of one kind share packages, services and repositories."""
    files = {entry.path: entry for client in clients for entry in client.files}
    units = {unit.name: unit for client in clients for unit in client.units}
    return Client(
        files=tuple(files.values()),
        install=tuple(dict.fromkeys(step for client in clients for step in client.install)),
        modules=tuple(dict.fromkeys(name for client in clients for name in client.modules)),
        units=tuple(units.values()),
        ready=tuple(dict.fromkeys(step for client in clients for step in client.ready)),
        proofs=tuple(dict.fromkeys(step for client in clients for step in client.proofs)),
        downloads=tuple(dict.fromkeys(download for client in clients for download in client.downloads)),
    )
