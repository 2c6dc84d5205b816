"""Storage as a client mounts it: the local drive, NFS, and the parallel file systems with their own clients.

Network mounts are systemd units that no boot waits for. At boot ``rackproof-mounts.service`` starts them and tries
again until all are there: a mount unit by itself is tried once, an automount would show up as mounted before its
server exists, and a rack that is switched on as a whole has clients that are faster than its servers.

How vendors' clients are installed is an input of the inventory: ``storage_clients``, described in
``rackproof.configure.storage.inputs``. A storage that has left the architecture is unmounted, and its unit removed.
"""

from __future__ import annotations

from collections.abc import Callable

from pyinfra import logger
from pyinfra.api.deploy import deploy
from pyinfra.context import host

from deploys.versions import stage
from rackproof.configure import operations, rack_operations
from rackproof.configure.facts import Marks
from rackproof.configure.files import REBOOT
from rackproof.configure.machine import machine_here
from rackproof.configure.nic.stack import REASON as DRIVERS
from rackproof.configure.site import Site, here
from rackproof.configure.storage import catalogue, plan
from rackproof.configure.storage import operations as storage_operations
from rackproof.configure.storage.client import Client
from rackproof.configure.versions.site import packages_here

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
    client = plan.client_of(site, family, {each.name: each.version for each in packages_here("clients")})
    for_local = plan.local_drive(site)
    if for_local:
        operations.filesystem(name="File system", drive=for_local)
    timeout_s, retry_s = int(host.data.mount_timeout_s), int(host.data.mount_retry_s)
    operations.files(name="Files", entries=plan.files(site, timeout_s, retry_s, client))
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
    if services := plan.early_units(client):
        operations.units(name="Client services", wanted=services, _if=condition)
    if client.ready:
        storage_operations.ensured(name="Clients ready", steps=client.ready, _if=condition)
    operations.mounted(name="Mounts", wanted=site.client_mounts(), complete=True, _if=condition)
    if proofs := (*client.proofs, *plan.read_ahead_steps(site)):
        storage_operations.ensured(name="Clients proven", steps=proofs, _if=condition)
    operations.units(name="Mounts at boot", wanted=plan.units(site), _if=condition)
