"""CephFS with the kernel's client, from the architecture's own cluster or from an external one."""

from __future__ import annotations

from rackproof.configure.ceph.cluster import own_fsid as fsid_of_own
from rackproof.configure.files import RemoteDirectory, RemoteFile
from rackproof.configure.mounts import CEPH_CLIENT, CEPH_SECRET, DesiredMount
from rackproof.configure.settings import read_inputs
from rackproof.configure.storage_client.client import Client, ClientNode, NamedStorage, mount_of
from rackproof.configure.storage_client.inputs import StorageClientInputs
from rackproof.core.architecture import Architecture, Storage
from rackproof.core.rack import Node, Rack
from rackproof.errors import DeclarationError

PORT = 3300
KEY = "storage_client.cephfs"


def declared_fsid(architecture: Architecture, rack: Rack, node: Node, storage: Storage) -> str:
    """FSID of the cluster that a client has to mount; empty for another file system, and where nothing gives it. Raises
    InventoryError."""
    if storage.fstype != "ceph":
        return ""
    return fsid_of_own(architecture, rack, storage) or read_inputs(node, StorageClientInputs).cephfs.fsid


def mounts(named: NamedStorage, node: ClientNode, own_fsid: str | None) -> tuple[DesiredMount, ...]:
    """``own_fsid``: FSID of the cluster that the kit sets up; None for an external cluster."""
    inputs = node.inputs.cephfs
    fsid = own_fsid or inputs.fsid
    if not fsid:
        raise DeclarationError(
            f"{named.name}: a Ceph file system needs the architecture's section ceph, or {KEY}.fsid of another cluster"
        )
    servers = named.first_servers("CephFS is mounted from its monitors")
    user = CEPH_CLIENT if own_fsid else inputs.user
    # The cluster of the architecture has one monitor.
    monitors = servers[:1] if own_fsid else servers
    port = named.storage.port or PORT
    addresses = [f"{address}:{port}" for address in monitors]
    name = named.storage.file_system
    folder = named.storage.source.removeprefix(name) or "/"
    what, naming = f"{user}@{fsid}.{name}={folder}", [f"mon_addr={'/'.join(addresses)}"]
    if inputs.source == "monitors":
        what, naming = f"{','.join(addresses)}:{folder}", [f"name={user}", f"fs={name}"]
    options = [
        "nofail",
        "_netdev",
        *naming,
        f"secretfile={CEPH_SECRET}",
        f"ms_mode={inputs.ms_mode}",
        # Without this the mount stays broken after the cluster has evicted an unreachable client.
        "recover_session=clean",
        "mount_timeout=20",
    ]
    return (mount_of(named, what=what, type="ceph", options=options),)


def client(named: NamedStorage, node: ClientNode, own_fsid: str | None) -> Client:
    if own_fsid:
        return Client(modules=("ceph",))  # rack_operations.ceph_secret copies its key
    if not node.inputs.cephfs.secret:
        user = node.inputs.cephfs.user
        raise DeclarationError(f"{named.name}: {KEY}.secret is absent; it names the source of the key of {user}")
    content = (node.secret("cephfs") or b"").decode().strip() + "\n"
    return Client(
        modules=("ceph",),
        files=(RemoteDirectory("/etc/ceph"), RemoteFile(CEPH_SECRET, content, mode="600", secret=True)),
    )
