"""Storage as a client mounts it: the local drive, NFS, and the parallel file systems with their own clients.

Network mounts are systemd units that no boot waits for. At boot ``rackproof-mounts.service`` starts them and tries
again until all are there: a mount unit by itself is tried once, an automount would show up as mounted before its
server exists, and a rack that is switched on as a whole has clients that are faster than its servers.

How vendors' clients are installed is an input of the inventory: ``storage_clients``, described in
``rackproof.configure.storage.inputs``. A storage that has left the architecture is unmounted, and its unit removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from pyinfra import logger
from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.context import host

from deploys import templates
from deploys.versions import stage
from rackproof.configure import operations, rack_operations
from rackproof.configure.drives import Drive
from rackproof.configure.facts import Marks
from rackproof.configure.files import REBOOT, Entry, RemoteDirectory, RemoteFile
from rackproof.configure.machine import machine_here
from rackproof.configure.mounts import Mount
from rackproof.configure.nic.stack import REASON as DRIVERS
from rackproof.configure.site import Site, here
from rackproof.configure.storage import catalogue
from rackproof.configure.storage import operations as storage_operations
from rackproof.configure.storage.client import Client, NoClient
from rackproof.configure.storage.secrets import read_secret
from rackproof.configure.storage.steps import Step
from rackproof.configure.units import Unit
from rackproof.configure.versions.site import packages_here
from rackproof.errors import InventoryError

RETRY_SERVICE = "rackproof-mounts.service"
RETRY_SCRIPT = "/usr/local/sbin/rackproof-mounts"
READ_AHEAD = "/usr/local/sbin/rackproof-read-ahead"
READ_AHEAD_RULE = "/etc/udev/rules.d/90-rackproof-read-ahead.rules"
TARGET = "nfs-client.target"

INSTALL_TIMEOUT_S = 3600
"""Downloads, and builds of several clients, each with a limit of its own."""
DEFAULTS = {
    # Seconds that one attempt to mount may take.
    "mount_timeout_s": 30,
    # Seconds between attempts.
    "mount_retry_s": 5,
}


@deploy("Storage client", data_defaults=DEFAULTS)
def storage_client() -> None:
    site = here()
    family = ""
    if catalogue.asks_machine([named.storage for named in site.named_storage()], site.storage_around):
        machine = machine_here()
        family = machine.family if machine else ""
        if not family:
            found = machine.label if machine else "a machine that could not be read"
            storage_operations.refused(name="Client software", reason=f"no client software for {found}")
            return
    client = client_of(site, family, {each.name: each.version for each in packages_here("clients")})
    for_local = local_drive(site)
    if for_local:
        operations.filesystem(name="File system", drive=for_local)
    timeout_s, retry_s = int(host.data.mount_timeout_s), int(host.data.mount_retry_s)
    operations.files(name="Files", entries=files(site, timeout_s, retry_s, client))
    stage("clients", "Locked client software")
    _mount(site, client, built_for_what_runs if client.install else None)


def built_for_what_runs() -> bool:
    """False while another kernel, or other drivers of the adapters, wait for the reboot: a vendor's client would be
    built for what goes, and a node that fails here would never get to its reboot."""
    marks = host.get_fact(Marks) or frozenset()
    waiting = [mark for mark in marks if mark.startswith((f"{REBOOT}kernel ", f"{REBOOT}{DRIVERS}"))]
    if waiting:
        host.log(f"storage clients wait for the reboot ({'; '.join(sorted(waiting))})", logger.info)
    return not waiting


def _mount(site: Site, client: Client, condition: Callable[[], bool] | None) -> None:
    """``condition`` is asked during the run, before each operation."""
    if client.install:
        storage_operations.ensured(
            name="Client software", steps=client.install, _timeout=INSTALL_TIMEOUT_S, _if=condition
        )
    if site.own_fsid:
        ceph = next(s for s in site.client_storage().values() if s.fstype == "ceph")
        server = site.first(ceph.server_role)
        if server:
            rack_operations.ceph_secret(name="Ceph client key", server=server.name, _if=condition)
    if services := early_units(client):
        operations.units(name="Client services", wanted=services, _if=condition)
    if client.ready:
        storage_operations.ensured(name="Clients ready", steps=client.ready, _if=condition)
    operations.mounted(name="Mounts", wanted=site.client_mounts(), complete=True, _if=condition)
    if proofs := (*client.proofs, *read_ahead_steps(site)):
        storage_operations.ensured(name="Clients proven", steps=proofs, _if=condition)
    operations.units(name="Mounts at boot", wanted=units(site), _if=condition)


def client_of(site: Site, family: str = "debian", locked: Mapping[str, str] | None = None) -> Client:
    """``locked``: package and version of what a version set brings.

    Raises DeployError when an input is missing: nothing has been touched then.
    """
    around = replace(site.storage_around, locked=dict(locked or {}))
    try:
        return catalogue.merge_clients(
            catalogue.clients_of(site.named_storage(), around, family, site.own_fsid, partial(_secret, site))
        )  # fmt: skip
    except (NoClient, InventoryError) as error:
        raise DeployError(f"{site.node.name}: {error}") from None


def _secret(site: Site, kind: str) -> bytes | None:
    inputs = site.storage_around.inputs
    secret = inputs.beegfs.auth if kind == "beegfs" else inputs.cephfs.secret
    return read_secret(secret, f"storage_clients.{kind}") if secret else None


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
    return client_of(site).modules


def files(site: Site, timeout_s: int = 30, retry_s: int = 5, client: Client | None = None) -> tuple[Entry, ...]:
    mounts = site.client_mounts()
    client = client_of(site) if client is None else client
    network = [mount for mount in mounts if mount.network]
    entries: list[Entry] = [*client.files, *(_unit_file(mount, timeout_s) for mount in mounts)]
    entries += [RemoteDirectory(mount.where) for mount in mounts if mount.service and mount.type != "fuse.daos"]
    if client.modules:
        entries.append(
            RemoteFile(
                "/etc/modules-load.d/rackproof-storage.conf",
                templates.text("/etc/modules-load.d/rackproof.conf", purpose="storage", modules=client.modules),
            )
        )
    if network:
        entries += [
            RemoteFile(RETRY_SCRIPT, templates.text(RETRY_SCRIPT, mounts=network), mode="755"),
            RemoteFile(
                f"/etc/systemd/system/{RETRY_SERVICE}",
                templates.text(f"/etc/systemd/system/{RETRY_SERVICE}", retry_s=retry_s),
            ),
        ]
    ahead = {mount.where: mount.read_ahead_kib for mount in mounts if mount.read_ahead_kib is not None}
    if ahead:
        entries += [
            RemoteFile(READ_AHEAD, templates.text(READ_AHEAD, wanted=ahead), mode="755"),
            RemoteFile(READ_AHEAD_RULE, templates.text(READ_AHEAD_RULE, script=READ_AHEAD)),
        ]
    return tuple(entries)


def read_ahead_steps(site: Site) -> tuple[Step, ...]:
    """What udev does at every mount, for those that are there already."""
    if all(mount.read_ahead_kib is None for mount in site.client_mounts()):
        return ()
    return (
        Step(
            name="Read-ahead",
            holds=f"{READ_AHEAD} --check",
            script=f"udevadm control --reload\n{READ_AHEAD}",
            otherwise=f"{READ_AHEAD} --check names what the kernel has",
        ),
    )


def _unit_file(mount: Mount, timeout_s: int) -> RemoteFile:
    path = f"/etc/systemd/system/{mount.unit}"
    if mount.content is not None:
        return RemoteFile(path, mount.content, restart=(mount.unit,))
    if mount.network:
        text = templates.text(
            "/etc/systemd/system/network.mount",
            description=f"Storage {mount.name}",
            mount=mount,
            timeout_s=mount.timeout_s or timeout_s,
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


def early_units(client: Client) -> tuple[Unit, ...]:
    """Services that must be there before anything can be mounted."""
    return tuple(unit for unit in client.units if unit.name != TARGET)


def units(site: Site) -> tuple[Unit, ...]:
    """After the mounts: the retry service has nothing to wait for then and is up at once."""
    mounts = site.client_mounts()
    wanted = [Unit(mount.unit, running=None) for mount in mounts if not mount.network]
    if any(storage.class_ == "nfs" for storage in site.client_storage().values()):
        wanted.append(Unit(TARGET))
    if any(mount.network for mount in mounts):
        wanted.append(Unit(RETRY_SERVICE))
    return tuple(wanted)
