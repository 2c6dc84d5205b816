"""Before anything changes: can this rack, and this node, become what is declared?

Contradictions of the inventory, mappings that cannot be read, and what two vendors want and no node can give both,
stop the whole run while it is planned. What is wrong with one node stops that node before its first change, or
everything (``preflight: {stop: rack}``); ``preflight: {accept: {ID: reason}}`` goes on.
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from rackproof.configure.alone import alone
from rackproof.configure.preflight import operations, plan
from rackproof.configure.site import here


@deploy("Preflight")
def preflight() -> None:
    """Raises DeployError for what concerns the whole rack: nothing has been touched then."""
    site = here()
    operations.read_all_inputs(site)
    inputs = operations.preflight_inputs(site)
    accepted = plan.check_rack(site, inputs)
    claims = plan.claims_of(site)
    plan.check_node(site, inputs, claims)
    operations.checks(name="Checks", site=site, given=inputs, claims=claims, accepted_of_rack=accepted)


if alone(__name__):
    preflight()
