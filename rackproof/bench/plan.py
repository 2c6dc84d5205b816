"""All steps of a profile, short ones first, so that a broken link is reported early."""

from __future__ import annotations

from rackproof.bench import collectives, containers, links, storage
from rackproof.bench.step import Step
from rackproof.core.architecture import Architecture
from rackproof.core.rack import Rack
from rackproof.errors import ArchitectureError


def plan_steps(architecture: Architecture, profile_name: str, rack: Rack) -> list[Step]:
    """Steps of a profile. Raises ArchitectureError when the architecture has no such profile."""
    try:
        profile = architecture.profiles[profile_name]
    except KeyError:
        known = ", ".join(architecture.profiles)
        raise ArchitectureError(f"{architecture.metadata.id}: no profile {profile_name!r}; it has {known}") from None
    steps: list[Step] = []
    if profile.links:
        steps += links.plan(architecture, profile.links, rack)
    if profile.collectives:
        steps += collectives.plan(architecture, profile.collectives, rack)
    if profile.storage:
        steps += storage.plan(architecture, profile.storage, rack)
    if profile.containers:
        steps += containers.plan(architecture, profile.containers, rack)
    return steps
