"""Storage as a client mounts it: the local drive, NFS over TCP and RDMA, CephFS.

Network mounts are systemd mount units that no boot waits for. At boot ``rackproof-mounts.service`` starts them and
tries again until all are there: a mount unit by itself is tried once, an automount would show up as mounted before
its server exists, and a rack that is switched on as a whole has clients that are faster than its servers.
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.context import host

from deploys import templates
from rackproof.configure import operations, rack_operations
from rackproof.configure.drives import Drive
from rackproof.configure.files import Entry, RemoteFile
from rackproof.configure.mounts import Mount
from rackproof.configure.site import Site, here
from rackproof.configure.units import Unit

MODULES = {"nfs-tcp": "nfsv4", "nfs-rdma": "rpcrdma", "ceph": "ceph"}
RETRY_SERVICE = "rackproof-mounts.service"

DEFAULTS = {
    # Seconds that one attempt to mount may take.
    "mount_timeout_s": 30,
    # Seconds between attempts.
    "mount_retry_s": 5,
}


@deploy("Storage client", data_defaults=DEFAULTS)
def storage_client() -> None:
    site = here()
    for_local = local_drive(site)
    if for_local:
        operations.filesystem(name="File system", drive=for_local)
    operations.files(name="Files", entries=files(site, int(host.data.mount_timeout_s), int(host.data.mount_retry_s)))
    ceph_server = next((site.first(s.server_role) for s in site.client_storage().values() if s.fstype == "ceph"), None)
    if ceph_server:
        rack_operations.ceph_secret(name="Ceph client key", server=ceph_server.name)
    operations.mounted(name="Mounts", wanted=site.client_mounts())
    operations.units(name="Mounts at boot", wanted=units(site))


def local_drive(site: Site) -> Drive | None:
    """The local drive and its file system, None when the architecture gives this role none.

    Raises DeployError when the inventory names no drive for it.
    """
    local = [s for s in site.client_storage().values() if s.class_ == "local"]
    if not local:
        return None
    if len(local) > 1:
        raise DeployError(f"{site.node.name}: several storages of class local are not supported yet")
    return site.drive("data_drive", local[0].source, local[0].fstype)


def modules(site: Site) -> tuple[str, ...]:
    """Kernel modules of the network file systems, loaded at boot; now, the first mount loads them."""
    wanted = []
    for storage in site.client_storage().values():
        if storage.class_ == "nfs":
            wanted.append(MODULES[f"nfs-{storage.transport or 'tcp'}"])
        elif storage.fstype == "ceph":
            wanted.append(MODULES["ceph"])
    return tuple(dict.fromkeys(wanted))


def files(site: Site, timeout_s: int = 30, retry_s: int = 5) -> tuple[Entry, ...]:
    mounts = site.client_mounts()
    network = [mount for mount in mounts if mount.network]
    entries: list[Entry] = [_unit_file(mount, timeout_s) for mount in mounts]
    if modules(site):
        entries.append(
            RemoteFile(
                "/etc/modules-load.d/rackproof-storage.conf",
                templates.text("/etc/modules-load.d/rackproof.conf", purpose="storage", modules=modules(site)),
            )
        )
    if network:
        script = "/usr/local/sbin/rackproof-mounts"
        entries += [
            RemoteFile(script, templates.text(script, mounts=network), mode="755"),
            RemoteFile(
                f"/etc/systemd/system/{RETRY_SERVICE}",
                templates.text(f"/etc/systemd/system/{RETRY_SERVICE}", retry_s=retry_s),
            ),
        ]
    return tuple(entries)


def _unit_file(mount: Mount, timeout_s: int) -> RemoteFile:
    path = f"/etc/systemd/system/{mount.unit}"
    if mount.network:
        text = templates.text(
            "/etc/systemd/system/network.mount",
            description=f"Storage {mount.name}",
            mount=mount,
            timeout_s=timeout_s,
        )
    else:
        text = templates.text(
            "/etc/systemd/system/drive.mount",
            description=f"Storage {mount.name}",
            what=mount.what,
            where=mount.where,
            type=mount.type,
            options=mount.options,
        )
    return RemoteFile(path, text, restart=(mount.unit,))


def units(site: Site) -> tuple[Unit, ...]:
    """After the mounts: the retry service has nothing to wait for then and is up at once."""
    mounts = site.client_mounts()
    wanted = [Unit(mount.unit, running=None) for mount in mounts if not mount.network]
    if any(storage.class_ == "nfs" for storage in site.client_storage().values()):
        wanted.append(Unit("nfs-client.target"))
    if any(mount.network for mount in mounts):
        wanted.append(Unit(RETRY_SERVICE))
    return tuple(wanted)
