"""NFS 4.2 over TCP and RDMA from a drive of its own.

The exports are offered to the fabric's networks only. At boot the server starts when its drive is mounted and the
network, with its RDMA devices, is online; until then clients try again.
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.context import host

from deploys import templates
from rackproof.configure import operations
from rackproof.configure.drives import Drive
from rackproof.configure.files import Entry, RemoteFile
from rackproof.configure.mounts import Mount, systemd_escape
from rackproof.configure.site import Site, here
from rackproof.configure.units import Unit

LABEL = "rp-nfs"
OPTIONS = "rw,sync,no_subtree_check,no_root_squash,mountpoint"

DEFAULTS = {
    # Server threads. A request holds one until the drive has answered.
    "nfs_threads": 16,
}


@deploy("NFS server", data_defaults=DEFAULTS)
def storage_server() -> None:
    site = here()
    drive, mount = export_drive(site), export_mount(site)
    operations.filesystem(name="File system", drive=drive)
    operations.files(name="Files", entries=files(site, int(host.data.nfs_threads)))
    operations.mounted(name="Drive", wanted=(mount,))
    operations.units(name="Services", wanted=units(site))


def export_path(site: Site) -> str:
    """The one path that this node exports.

    Raises DeployError when the architecture wants several: a drive has one mount point.
    """
    paths = sorted({storage.source for storage in site.served("nfs").values()})
    if len(paths) != 1:
        raise DeployError(f"{site.node.name}: expected one exported path, actual {', '.join(paths)}: not supported yet")
    return paths[0]


def rdma_port(site: Site) -> int | None:
    ports = sorted({s.port or 20049 for s in site.served("nfs").values() if s.transport == "rdma"})
    if len(ports) > 1:
        raise DeployError(
            f"{site.node.name}: one NFS server listens for RDMA on one port, the architecture has {ports}"
        )
    return ports[0] if ports else None


def export_drive(site: Site) -> Drive:
    return site.drive("nfs_drive", LABEL)


def export_mount(site: Site) -> Mount:
    return Mount(
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


def files(site: Site, threads: int = 16) -> tuple[Entry, ...]:
    mount = export_mount(site)
    paths = [mount.where]
    modules = ["nfsd", "rpcrdma"] if rdma_port(site) else ["nfsd"]
    return (
        RemoteFile(
            f"/etc/systemd/system/{mount.unit}",
            templates.text(
                "/etc/systemd/system/drive.mount",
                description="Drive that is exported over NFS",
                what=mount.what,
                where=mount.where,
                type=mount.type,
                options=mount.options,
            ),
            restart=(mount.unit,),
        ),
        RemoteFile(
            "/etc/modules-load.d/rackproof-nfs-server.conf",
            templates.text("/etc/modules-load.d/rackproof.conf", purpose="NFS server", modules=modules),
            restart=("systemd-modules-load.service",),
        ),
        RemoteFile(
            "/etc/nfs.conf.d/rackproof.conf",
            templates.text("/etc/nfs.conf.d/rackproof.conf", threads=threads, rdma_port=rdma_port(site)),
            restart=("nfs-server.service",),
        ),
        RemoteFile(
            "/etc/exports.d/rackproof.exports",
            templates.text(
                "/etc/exports.d/rackproof.exports",
                paths=paths,
                subnets=site.fabric_subnets,
                options=OPTIONS,
                # Part of every file handle: stays the same when the drive is replaced.
                fsids={path: number for number, path in enumerate(paths, start=1)},
            ),
            reload=("nfs-server.service",),
        ),
        RemoteFile(
            "/etc/systemd/system/nfs-server.service.d/rackproof.conf",
            templates.text("/etc/systemd/system/nfs-server.service.d/rackproof.conf", paths=paths),
        ),
    )


def units(site: Site) -> tuple[Unit, ...]:
    mount = export_mount(site)
    modules = "test -e /sys/module/nfsd"
    listening = "grep -q '^tcp 2049$' /proc/fs/nfsd/portlist"
    if port := rdma_port(site):
        modules += " && test -e /sys/module/rpcrdma"
        listening += f" && grep -q '^rdma {port}$' /proc/fs/nfsd/portlist"
    exported = f"exportfs -s | grep -q '^{mount.where}[[:space:]]'"
    return (
        Unit("systemd-modules-load.service", enabled=None, proof=modules),
        Unit(f"{systemd_escape(mount.where)}.mount", running=None),
        Unit("nfs-server.service", proof=f"{listening} && {exported}"),
    )
