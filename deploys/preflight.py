"""Before anything changes: can this rack, and this node, become what is declared?

Contradictions of the inventory, mappings that cannot be read, and what two vendors want and no node can give both,
stop the whole run while it is planned. What is wrong with one node stops that node before its first change, or
everything (``preflight: {stop: rack}``); ``preflight: {accept: {ID: reason}}`` goes on.
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError

from rackproof.configure.base.plan import node_inputs
from rackproof.configure.ceph.plan import cluster_plan
from rackproof.configure.node.plan import scratch_array
from rackproof.configure.preflight import operations
from rackproof.configure.preflight.claims import Claims
from rackproof.configure.preflight.problem import divided, sentence
from rackproof.configure.site import Site, here
from rackproof.configure.storage.plan import local_drive
from rackproof.configure.storage_server.plan import export_drive


@deploy("Preflight")
def preflight() -> None:
    """Raises DeployError for what concerns the whole rack: nothing has been touched then."""
    site = here()
    operations.read_all_inputs(site)
    given = operations.preflight_inputs(site)
    stopping, accepted = divided(
        (*operations.of_rack(site), *operations.of_versions(), *operations.of_vendors(site)), given.accept
    )
    if stopping:
        raise DeployError(f"preflight: {sentence(stopping)}")
    claims = claims_of(site)
    if given.stop == "rack":
        stopping, _ = divided(operations.of_node(site, given, claims), given.accept)
        if stopping:
            raise DeployError(f"preflight: {site.node.name}: {sentence(stopping)}")
    operations.checks(name="Checks", site=site, given=given, claims=claims, accepted_of_rack=accepted)


def claims_of(site: Site) -> Claims:
    """Drives that the deploys of this node's roles would write to. Raises DeployError where one is not named."""
    drives = [export_drive(site)] if site.served("nfs") else []
    if local := local_drive(site):
        drives.append(local)
    ceph = cluster_plan(site) if site.architecture.ceph and site.served("parallel") else None
    return Claims(tuple(drives), scratch_array(site, node_inputs(site)), ceph)
