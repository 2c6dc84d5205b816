"""Client software, mounts, files and units of a node that mounts storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from pyinfra import logger
from pyinfra.context import host

from rackproof.configure.drives import Drive
from rackproof.configure.facts import Marks
from rackproof.configure.files import REBOOT, Entry, RemoteDirectory, RemoteFile
from rackproof.configure.machine import machine_here
from rackproof.configure.mounts import DesiredMount
from rackproof.configure.nic.stack import REASON as DRIVERS
from rackproof.configure.shared_files import boot_modules, drive_unit, rendered
from rackproof.configure.site import Site
from rackproof.configure.storage_client import catalogue
from rackproof.configure.storage_client.client import Client
from rackproof.configure.storage_client.secrets import read_secret
from rackproof.configure.storage_client.steps import Step
from rackproof.configure.units import Unit
from rackproof.configure.versions.site import packages_here
from rackproof.core.nearest import suggestion
from rackproof.core.rack import Node
from rackproof.errors import DeclarationError, InventoryError, Refused

RETRY_SERVICE = "rackproof-mounts.service"
RETRY_SCRIPT = "/usr/local/sbin/rackproof-mounts"
READ_AHEAD = "/usr/local/sbin/rackproof-read-ahead"
READ_AHEAD_RULE = "/etc/udev/rules.d/90-rackproof-read-ahead.rules"
TARGET = "nfs-client.target"


def why_nothing(site: Site) -> str | None:
    return None if site.client_storage() else "the architecture declares no mounts for this node"


def client_here(site: Site) -> Client:
    """Client software of the current node, with the packages of its version set.

    Raises Refused when its operating system is unknown or not supported, DeclarationError when an input is missing.
    """
    family = ""
    if catalogue.asks_machine([named.storage for named in site.named_storage()], site.client_node):
        machine = machine_here()
        family = machine.family if machine else ""
        if not family:
            raise Refused(f"no client software for {machine.label if machine else 'a machine that could not be read'}")
    return client_of(site, family, {package.name: package.version for package in packages_here("clients")})


def built_for_what_runs() -> bool:
    """Whether no reboot into another kernel or other adapter drivers is pending. Evaluated during the run.

    Before such a reboot a vendor's client would be built for the old kernel or drivers, and a failed build would
    prevent the reboot.
    """
    marks = host.get_fact(Marks) or frozenset()
    waiting = [mark for mark in marks if mark.startswith((f"{REBOOT}kernel ", f"{REBOOT}{DRIVERS}"))]
    if waiting:
        host.log(f"storage clients wait for the reboot ({'; '.join(sorted(waiting))})", logger.info)
    return not waiting


def ceph_server(site: Site) -> Node | None:
    """The node with the client key of the kit's own Ceph cluster; None when this node does not mount it."""
    if not site.own_fsid:
        return None
    ceph = next(storage for storage in site.client_storage().values() if storage.fstype == "ceph")
    return site.first(ceph.server_role)


def client_of(site: Site, family: str = "debian", locked: Mapping[str, str] | None = None) -> Client:
    """Client software of a node. ``locked``: versions by package of the version set.

    Raises DeclarationError when an input is missing; nothing has been changed then.
    """
    node = replace(site.client_node, locked=dict(locked or {}), secret=partial(_secret, site))
    return catalogue.merge_clients(catalogue.clients_of(site.named_storage(), node, family, site.own_fsid))


def _secret(site: Site, kind: str) -> bytes | None:
    inputs = site.client_node.inputs
    secret = inputs.beegfs.auth if kind == "beegfs" else inputs.cephfs.secret
    return read_secret(secret, f"storage_client.{kind}") if secret else None


def local_drive(site: Site) -> Drive | None:
    """The local drive and its file system; None when the architecture declares none for this node.

    Raises DeclarationError when the inventory names no drive for it.
    """
    local = [s for s in site.client_storage().values() if s.class_ == "local"]
    if not local:
        return None
    if len(local) > 1:
        raise DeclarationError("several storages of class local are not supported yet")
    return site.drive("data_drive", local[0].source, local[0].fstype)


def files(site: Site, client: Client | None = None) -> tuple[Entry, ...]:
    mounts = site.client_mounts()
    client = client_of(site) if client is None else client
    network = [mount for mount in mounts if mount.network]
    entries: list[Entry] = [*client.files, *(_unit_file(mount, site.settings.mount_timeout_s) for mount in mounts)]
    entries += [RemoteDirectory(mount.where) for mount in mounts if mount.service and mount.type != "fuse.daos"]
    if client.modules:
        entries.append(boot_modules("storage", "storage", client.modules))
    if network:
        entries += [
            rendered(RETRY_SCRIPT, mode="755", mounts=network),
            rendered(f"/etc/systemd/system/{RETRY_SERVICE}", retry_s=site.settings.mount_retry_s),
        ]
    ahead = {mount.where: mount.read_ahead_kib for mount in mounts if mount.read_ahead_kib is not None}
    if ahead:
        entries += [
            rendered(READ_AHEAD, mode="755", wanted=ahead),
            rendered(READ_AHEAD_RULE, script=READ_AHEAD),
        ]
    return tuple(entries)


def read_ahead_steps(site: Site) -> tuple[Step, ...]:
    """Read-ahead of existing mounts; udev sets it for new ones."""
    if all(mount.read_ahead_kib is None for mount in site.client_mounts()):
        return ()
    return (
        Step(
            name="Read-ahead",
            holds=f"{READ_AHEAD} --check",
            script=f"udevadm control --reload\n{READ_AHEAD}",
            otherwise=f"{READ_AHEAD} --check shows the kernel's values",
        ),
    )


def _unit_file(mount: DesiredMount, timeout_s: int) -> RemoteFile:
    description = f"Storage {mount.name}"
    if mount.content is None and not mount.network:
        return drive_unit(mount, description)
    path, restart = f"/etc/systemd/system/{mount.unit}", (mount.unit,)
    if mount.content is not None:
        return RemoteFile(path, mount.content, restart=restart)
    return rendered(
        path, template="/etc/systemd/system/network.mount", restart=restart, description=description, mount=mount,
        timeout_s=mount.timeout_s or timeout_s,
    )  # fmt: skip


def early_units(client: Client) -> tuple[Unit, ...]:
    """Services that must run before mounts."""
    return tuple(unit for unit in client.units if unit.name != TARGET)


def units(site: Site) -> tuple[Unit, ...]:
    """Units to start after the mounts, so that the retry service succeeds at once."""
    mounts = site.client_mounts()
    wanted = [Unit(mount.unit, running=None) for mount in mounts if not mount.network]
    if any(storage.class_ == "nfs" for storage in site.client_storage().values()):
        wanted.append(Unit(TARGET))
    if any(mount.network for mount in mounts):
        wanted.append(Unit(RETRY_SERVICE))
    return tuple(wanted)


def kept_mounts(site: Site, names: str) -> tuple[DesiredMount, ...]:
    """Network mounts that remain when ``names`` are unmounted: names of storage separated by commas, or ``all``.

    Raises DeclarationError for a storage that no node of the rack mounts.
    """
    unmounted = {name for name in (part.strip() for part in names.split(",")) if name}
    known = site.architecture.storage
    for name in sorted(unmounted - {"all"} - set(known)):
        raise InventoryError(f"unmount: {name}: no such storage; {suggestion(name, known)}")
    if "all" in unmounted:
        return ()
    return tuple(mount for mount in site.client_mounts() if mount.network and mount.name not in unmounted)
