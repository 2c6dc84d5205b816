"""Checks before any change whether rack and nodes can be brought to their declared state.

Contradictions in the inventory, invalid mappings, and conflicting requirements of vendors stop the whole run while it
is planned. A problem of one node stops that node before its first change, or the whole run (``preflight: {stop:
rack}``); ``preflight: {accept: {ID: reason}}`` accepts it.
"""

from __future__ import annotations

from rackproof.configure.deploy import alone, deploy
from rackproof.configure.known_inputs import read_all_inputs
from rackproof.configure.preflight import operations, plan
from rackproof.configure.site import here


@deploy("Preflight")
def preflight() -> None:
    """Raises DeclarationError for problems of the whole rack; nothing has been changed then."""
    site = here()
    read_all_inputs(site.node)
    inputs = operations.preflight_inputs(site)
    accepted = plan.check_rack(site, inputs)
    claims = plan.claims_of(site)
    plan.check_node(site, inputs, claims)
    operations.checks(name="Checks", site=site, given=inputs, claims=claims, accepted_of_rack=accepted)


if alone(__name__):
    preflight()
