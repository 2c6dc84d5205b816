"""Storage clients: the local drive, NFS, and parallel file systems with their own clients.

Network mounts are systemd units that do not delay the boot. At boot ``rackproof-mounts.service`` starts them and
retries until all are mounted: systemd starts a mount unit only once, an automount would appear as mounted before its
server exists, and after a power-on of the rack clients are up before their servers.

The inventory's ``storage_client`` (``rackproof.configure.storage_client.inputs``) configures vendors' clients. Storage
that is no longer in the architecture is unmounted, and its unit removed.
"""

from __future__ import annotations

from collections.abc import Callable

from deploys.base import base
from deploys.fabric import fabric_needed
from deploys.preflight import preflight
from deploys.reboot import reboot
from deploys.versions import repositories
from rackproof.configure import operations, rack_operations
from rackproof.configure.deploy import alone, deploy
from rackproof.configure.site import Site, here
from rackproof.configure.storage_client import operations as storage_operations
from rackproof.configure.storage_client import plan
from rackproof.configure.storage_client.client import Client
from rackproof.configure.versions.stages import stage

INSTALL_TIMEOUT_S = 3600
"""Downloads, and builds of several clients, each with a limit of its own."""


@deploy("Storage client", plan.why_nothing)
def storage_client() -> None:
    site = here()
    client = plan.client_here(site)
    if drive := plan.local_drive(site):
        operations.filesystem(name="File system", drive=drive)
    operations.files(name="Files", entries=plan.files(site, client))
    if client.guards:
        storage_operations.ensured(name="Clients that run", steps=client.guards)
    stage("clients", "Locked client software")
    _mount(site, client, plan.built_for_what_runs if client.install else None)


def _mount(site: Site, client: Client, condition: Callable[[], bool] | None) -> None:
    """``condition`` is evaluated during the run, before each operation."""
    if client.install:
        storage_operations.ensured(
            name="Client software", steps=client.install, _timeout=INSTALL_TIMEOUT_S, _if=condition
        )
    if server := plan.ceph_server(site):
        rack_operations.ceph_secret(name="Ceph client key", server=server.name, _if=condition)
    if services := plan.early_units(client):
        operations.units(name="Client services", wanted=services, _if=condition)
    if client.ready:
        storage_operations.ensured(name="Clients ready", steps=client.ready, _if=condition)
    operations.mounted(name="Mounts", wanted=site.client_mounts(), complete=True, _if=condition)
    if proofs := (*client.proofs, *plan.read_ahead_steps(site)):
        storage_operations.ensured(name="Clients proven", steps=proofs, _if=condition)
    operations.units(name="Mounts at boot", wanted=plan.units(site), _if=condition)


if alone(__name__, plan.why_nothing):
    preflight()
    base()
    repositories()
    fabric_needed()
    storage_client()
    reboot()
