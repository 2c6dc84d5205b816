"""Exports, mount, files and units of an NFS server."""

from __future__ import annotations

import shlex

from rackproof.configure.drives import Drive
from rackproof.configure.files import Entry, RemoteFile
from rackproof.configure.mounts import DesiredMount, systemd_escape
from rackproof.configure.shared_files import boot_modules, drive_unit, rendered
from rackproof.configure.site import Site
from rackproof.configure.storage_client.steps import Step
from rackproof.configure.units import Unit
from rackproof.errors import DeclarationError

LABEL = "rp-nfs"
OPTIONS = "rw,sync,no_subtree_check,no_root_squash,mountpoint"


def why_nothing(site: Site) -> str | None:
    return None if site.served("nfs") else "the architecture gives this node no NFS exports"


def export_paths(site: Site) -> tuple[str, ...]:
    """Exported paths of this node, sorted."""
    return tuple(sorted({storage.source for storage in site.served("nfs").values()}))


def export_path(site: Site) -> str:
    """Mount point of the node's drive: the exported path that contains all others.

    Raises DeclarationError when there is none: a drive has one mount point.
    """
    paths = export_paths(site)
    for path in paths:
        if all(other == path or other.startswith(f"{path}/") for other in paths):
            return path
    raise DeclarationError(
        f"exports {', '.join(paths)} from one drive: put them below one of them, or on another server"
    )


def version_3(site: Site) -> bool:
    """Whether a client is declared to use NFS 3."""
    wanted = {"vers=3", "nfsvers=3"}
    return any(wanted & set(storage.options) for storage in site.served("nfs").values())


def second_addresses(site: Site) -> dict[str, str]:
    """Further address by port, with prefix length."""
    addresses = site.settings.fabric_second_addresses
    several = any((storage.mounts_per_client or 1) > 1 for storage in site.served("nfs").values())
    return {port.name: str(address) for port, address in zip(site.ports, addresses, strict=False)} if several else {}


def address_steps(site: Site) -> tuple[Step, ...]:
    """Second addresses of the running node; at boot systemd-networkd sets both."""
    return tuple(
        Step(
            name=f"Second address of {port}",
            holds=f"ip -o address show dev {shlex.quote(port)} | grep -qF {shlex.quote(f' {address} ')}",
            script=f"ip address replace {shlex.quote(address)} dev {shlex.quote(port)}",
            otherwise=f"{port} does not take {address}",
        )
        for port, address in second_addresses(site).items()
    )


def rdma_port(site: Site) -> int | None:
    ports = sorted({s.port or 20049 for s in site.served("nfs").values() if s.transport == "rdma"})
    if len(ports) > 1:
        raise DeclarationError(f"one NFS server listens for RDMA on one port, the architecture has {ports}")
    return ports[0] if ports else None


def export_drive(site: Site) -> Drive:
    return site.drive("nfs_drive", LABEL)


def export_mount(site: Site) -> DesiredMount:
    return DesiredMount(
        name="nfs-export",
        what=f"/dev/disk/by-label/{LABEL}",
        where=export_path(site),
        type="ext4",
        options=("noatime", "nofail"),
        fstype="ext4",
        required=("rw", "noatime"),
        forbidden=("ro",),
        network=False,
    )


def export_subnets(site: Site) -> tuple[str, ...]:
    """Raises DeclarationError where there are none: no client could mount."""
    if not site.fabric_subnets:
        raise DeclarationError("fabric_addresses: NFS is exported to the networks of its rails, the inventory has none")
    return site.fabric_subnets


def files(site: Site) -> tuple[Entry, ...]:
    mount = export_mount(site)
    paths = export_paths(site)
    modules = ["nfsd", "rpcrdma"] if rdma_port(site) else ["nfsd"]
    return (
        drive_unit(mount, "Drive that is exported over NFS"),
        boot_modules("nfs-server", "NFS server", modules, load_now=True),
        rendered(
            "/etc/nfs.conf.d/rackproof.conf",
            restart=("nfs-server.service",),
            threads=site.settings.nfs_threads,
            rdma_port=rdma_port(site),
            version_3=version_3(site),
        ),
        rendered(
            "/etc/exports.d/rackproof.exports",
            reload=("nfs-server.service",),
            paths=paths,
            subnets=export_subnets(site),
            options=f"{OPTIONS}={mount.where}" if len(paths) > 1 else OPTIONS,
            # Part of every file handle, so it must survive a replaced drive.
            fsids={path: number for number, path in enumerate(paths, start=1)},
        ),
        rendered("/etc/systemd/system/nfs-server.service.d/rackproof.conf", paths=[mount.where]),
        *(
            RemoteFile(
                f"/etc/systemd/network/10-{port}.network.d/rackproof-second.conf",
                f"# Managed by rackproof: several server addresses on one port.\n[Network]\nAddress={address}\n",
            )
            for port, address in second_addresses(site).items()
        ),
    )


def units(site: Site) -> tuple[Unit, ...]:
    mount = export_mount(site)
    modules = "test -e /sys/module/nfsd"
    listening = "grep -q '^tcp 2049$' /proc/fs/nfsd/portlist"
    if port := rdma_port(site):
        modules += " && test -e /sys/module/rpcrdma"
        listening += f" && grep -q '^rdma {port}$' /proc/fs/nfsd/portlist"
    if version_3(site):
        listening += " && grep -q '+3 ' /proc/fs/nfsd/versions"
    exported = " && ".join(f"exportfs -s | grep -q '^{path}[[:space:]]'" for path in export_paths(site))
    return (
        Unit("systemd-modules-load.service", enabled=None, proof=modules),
        *((Unit("rpcbind.socket"),) if version_3(site) else ()),
        Unit(f"{systemd_escape(mount.where)}.mount", running=None),
        Unit("nfs-server.service", proof=f"{listening} && {exported}"),
    )
