"""Checks that stop the whole run while it is planned, and the drives that the node's deploys write to."""

from __future__ import annotations

from dataclasses import replace

from rackproof.configure.ceph.plan import serves_ceph
from rackproof.configure.node.inputs import NodeInputs
from rackproof.configure.node.plan import scratch_array
from rackproof.configure.preflight import operations
from rackproof.configure.preflight.claims import Claims
from rackproof.configure.preflight.problem import PreflightInputs, RackStopped, divided
from rackproof.configure.settings import read_inputs
from rackproof.configure.site import Site
from rackproof.configure.storage_client.plan import local_drive
from rackproof.configure.storage_server.plan import export_drive
from rackproof.core.plan import Problem


def check_rack(site: Site, inputs: PreflightInputs) -> tuple[Problem, ...]:
    """Accepted problems of the whole rack. Raises RackStopped for those that are not accepted."""
    problems = (*operations.of_rack(site), *operations.of_versions(), *operations.of_vendors(site))
    stopping, accepted = divided(problems, inputs.accept)
    if stopping:
        raise RackStopped(stopping)
    return accepted


def check_node(site: Site, inputs: PreflightInputs, claims: Claims) -> None:
    """Raises RackStopped for a problem of the node that stops the rack (``preflight: {stop: rack}``)."""
    if inputs.stop != "rack":
        return
    stopping, _ = divided(operations.of_node(site, inputs, claims), inputs.accept)
    if stopping:
        raise RackStopped([replace(problem, what=f"{site.node.name}: {problem.what}") for problem in stopping])


def claims_of(site: Site) -> Claims:
    """Drives that the deploys of this node's roles write to. Raises DeclarationError when the inventory names none."""
    drives = [export_drive(site)] if site.served("nfs") else []
    if local := local_drive(site):
        drives.append(local)
    ceph = site.ceph_plan() if serves_ceph(site) else None
    return Claims(tuple(drives), scratch_array(site, read_inputs(site.node, NodeInputs)), ceph)
