"""All steps of a profile, short ones first, so that a broken link is reported early."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic import BaseModel

from rackproof.bench.collectives import groups, guests
from rackproof.bench.collectives import steps as collectives
from rackproof.bench.containers import steps as containers
from rackproof.bench.drives import steps as drives
from rackproof.bench.gpu import steps as gpu
from rackproof.bench.ingest import steps as ingest
from rackproof.bench.links import all_rails, fan_in
from rackproof.bench.links import gpu_memory as link_gpu
from rackproof.bench.links import steps as links
from rackproof.bench.step import Step
from rackproof.bench.storage import steps as storage
from rackproof.configure.known_inputs import read_all_inputs
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import canonical
from rackproof.core.rack import Rack, fold
from rackproof.errors import ArchitectureError

PLANS: Final[Mapping[str, tuple[Callable[[Architecture, Any, Rack], list[Step]], ...]]] = {
    "gpu": (gpu.plan,),
    "links": (groups.plan, links.plan, link_gpu.plan, all_rails.plan, fan_in.plan),
    "collectives": (collectives.plan, guests.plan),
    "storage": (storage.plan,),
    "drives": (drives.plan,),
    "osds": (drives.plan_osds,),
    "containers": (containers.plan,),
    "ingest": (ingest.plan,),
}
"""By key of the profile, in the order of a run."""


def plan_steps(architecture: Architecture, profile_name: str, rack: Rack) -> list[Step]:
    """Steps of a profile. Raises ArchitectureError for an unknown profile.

    Each step has a digest of its parameters: its part of the profile, the rest of the architecture, and the nodes.
    """
    try:
        profile = architecture.profiles[profile_name]
    except KeyError:
        known = ", ".join(architecture.profiles)
        raise ArchitectureError(f"{architecture.metadata.id}: no profile {profile_name!r}; it has {known}") from None
    _refuse_further_rails(architecture, rack)
    steps: list[Step] = []
    for name, plans in PLANS.items():
        if part := getattr(profile, name):
            planned = [step for plan in plans for step in plan(architecture, part, rack)]
            steps += _bound(planned, architecture, part, rack)
    return steps


def refuse_wrong_inputs(rack: Rack) -> None:
    """Raises InventoryError for an input that is not valid, which a step would find hours later. For live runs: in a
    recorded inventory secrets are replaced."""
    for node in rack.nodes:
        read_all_inputs(node)


def _refuse_further_rails(architecture: Architecture, rack: Rack) -> None:
    """Raises ArchitectureError if nodes have more rails than the architecture: these would not be measured."""
    further = [node for node in rack.nodes if len(node.data.get("fabric_addresses") or ()) > architecture.rails > 0]
    if further:
        count = len(further[0].data["fabric_addresses"])
        names = fold(node.name for node in further)
        raise ArchitectureError(
            f"{rack.source}: fabric_addresses of {names}: {count} rails, {architecture.metadata.id} has"
            f" {architecture.rails} and would judge no other; extend it with fabric: {{rails: {count}}}"
        )


def _bound(steps: list[Step], architecture: Architecture, part: BaseModel, rack: Rack) -> Iterator[Step]:
    """The steps with their digests."""
    # The text that a run stores is whole: it extends and drops nothing.
    reference = architecture.model_dump(mode="json", exclude={"profiles"}) | {"extends": None, "drop": []}
    shared = canonical(
        {
            "architecture": hashlib.sha256(canonical(reference)).hexdigest(),
            "parameters": part.model_dump(mode="json", exclude=_at_default(part)),
            "nodes": [[node.name, list(node.groups)] for node in rack.nodes],
        }
    )
    for step in steps:
        own = canonical([step.id, step.estimate_s, [place.model_dump(mode="json") for place in step.expects]])
        yield replace(step, digest=hashlib.sha256(shared + own).hexdigest())


def _at_default(part: BaseModel) -> set[str]:
    """Keys at their defaults that runs of older kits do not have, so that their digests stay true."""
    added: frozenset[str] = getattr(part, "ADDED", frozenset())
    return {name for name in added if getattr(part, name) == type(part).model_fields[name].default}
