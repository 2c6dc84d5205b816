"""NFS server: threads, ports, versions and exports, as its kernel reports them."""

from __future__ import annotations

from collections.abc import Iterable

from testinfra.host import Host

from rackproof.core.architecture import Architecture, Storage
from rackproof.core.rack import Node, Rack
from rackproof.parse.mounted import NFS_PORTS
from rackproof.parse.mounts import find_mount, parse_mountinfo
from rackproof.parse.nfs_server import EXPORTS, NFSD, Nfsd, parse_exports, parse_nfsd
from rackproof.validation import Unmeasured, check, expect, read
from rackproof.validation.mounts import MOUNTINFO

REQUIRED_OPTIONS = ("rw", "sync")


def served(arch: Architecture, node: Node, rack: Rack) -> dict[str, Storage]:
    """NFS storage of this node; the first node of the server role serves."""
    return {
        name: storage
        for name, storage in arch.storage.items()
        if storage.class_ == "nfs" and storage.server_nodes(rack)[:1] == (node,)
    }


def paths(arch: Architecture, node: Node, rack: Rack) -> Iterable[str]:
    return sorted({storage.source for storage in served(arch, node, rack).values()})


def port_of(storage: Storage) -> str:
    transport = storage.transport or "tcp"
    return f"{transport} {storage.port or NFS_PORTS[transport]}"


def running(host: Host) -> Nfsd:
    server = parse_nfsd(read(host, NFSD))
    if server.threads == 0:
        raise Unmeasured("the NFS server is not running; see storage_server.running")
    return server


@check(
    "storage_server.running",
    reads="storage",
    when=lambda arch, node, rack: bool(served(arch, node, rack)),
    protects="Without the server every client of its exports hangs.",
    hint="systemctl status nfs-server; the unit waits for its drive and for the network.",
)
def test_running(host: Host) -> None:
    if parse_nfsd(read(host, NFSD)).threads == 0:
        raise AssertionError("expected NFS server threads, actual none")


@check(
    "storage_server.listens",
    reads="storage",
    each=lambda arch, node, rack: {port_of(storage) for storage in served(arch, node, rack).values()},
    protects="Without its RDMA port clients cannot mount over RDMA; their error does not name the cause.",
    hint="cat /proc/fs/nfsd/portlist; nfs.conf and the module rpcrdma, then restart nfs-server.",
)
def test_listens(host: Host, item: str) -> None:
    ports = running(host).ports
    if item not in ports:
        raise AssertionError(f"expected {item}, actual {', '.join(sorted(ports)) or 'none'}")


@check(
    "storage_server.version",
    reads="storage",
    each=lambda arch, node, rack: {
        option.removeprefix("vers=")
        for storage in served(arch, node, rack).values()
        for option in storage.options
        if option.startswith("vers=")
    },
    protects="Clients that ask for 4.2 are refused, or lose server-side copy and sparse files.",
    hint="cat /proc/fs/nfsd/versions; nfs.conf, then restart nfs-server.",
)
def test_version(host: Host, item: str) -> None:
    versions = running(host).versions
    if item not in versions:
        raise AssertionError(f"expected NFS {item}, actual {', '.join(sorted(versions)) or 'none'}")


@check(
    "storage_server.export",
    reads="storage",
    each=paths,
    protects="A client outside the export's network gets 'access denied'.",
    hint="exportfs -s; exportfs -ra after a change in /etc/exports.d.",
)
def test_export(host: Host, arch: Architecture, node: Node, rack: Rack, item: str) -> None:
    exports = [export for export in parse_exports(read(host, EXPORTS)) if export.path == item]
    roles = {role for s in served(arch, node, rack).values() if s.source == item for role in s.client_roles}
    clients = [client for client in rack.nodes if roles & set(client.groups) and client.fabric_address()]
    if not clients:
        raise Unmeasured("no client of this export has a fabric address in the inventory")
    if not exports:
        raise AssertionError(f"expected {item} to be exported, actual not exported")
    for client in clients:
        address = client.fabric_address() or ""
        admitting = [export for export in exports if export.admits(address)]
        if not admitting:
            raise AssertionError(
                f"expected {item} exported to {address} ({client.name}),"
                f" actual to {', '.join(export.client for export in exports)}"
            )
        for export in admitting:
            actual = [option for option in export.options if option in ("rw", "ro", "sync", "async")]
            expect(sorted(actual), sorted(REQUIRED_OPTIONS), f"options for {export.client}")


@check(
    "storage_server.drive",
    reads="storage",
    each=paths,
    protects="Without its drive the export is an empty folder on the root disk, which fills up.",
    hint="systemctl status for the mount unit of the path; nvme list for the drive itself.",
)
def test_drive(host: Host, item: str) -> None:
    mount = find_mount(parse_mountinfo(read(host, MOUNTINFO)), item)
    if mount is None:
        raise AssertionError(f"expected a drive mounted on {item}, actual none")
    expect("ro" if mount.read_only else "rw", "rw", f"mount of {item}")
