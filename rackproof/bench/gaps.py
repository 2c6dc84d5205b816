"""Gaps of a profile on this rack, before the run: parts and criteria that no step measures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from rackproof.bench.step import Step
from rackproof.core.architecture import Alternative, Architecture, Profile
from rackproof.core.architecture.coverage import Where, entries_of, members_of, quantities_of
from rackproof.core.architecture.group_tests import unasked
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.grouping import grouped
from rackproof.core.judging.select import quantity
from rackproof.core.rack import Rack, fold
from rackproof.core.wording import counted, some

SHOWN = 3
"""Maximum number of criteria in one line."""

QUANTITIES = 2
"""Maximum number of quantities in one line."""

_PART = {"container": "containers"}
"""Key of the profile by first part of a step's id, if they differ."""


def plan_gaps(architecture: Architecture, profile_name: str, rack: Rack, steps: Sequence[Step]) -> list[str]:
    """One line for each part of the profile without a step, for each metric of criteria that no step measures, and for
    each criterion that several measurements of one place fit."""
    profile = architecture.profiles[profile_name]
    lines = [f"profile {profile_name}: {line}" for line in _parts(architecture, profile, rack, steps)]
    places = [place for step in steps for place in step.expects]
    links = profile.links
    needless = unasked(links, len(rack.group(links.members)) if links else 0)
    missing: dict[str, tuple[list[str], list[str]]] = {}
    ambiguous: dict[str, list[str]] = {}
    for path, asks in entries_of(architecture):
        names = {node.name for group in members_of(architecture, path, asks) for node in rack.group(group)}
        entry = architecture.criteria[int(path[1])].id if isinstance(asks, Alternative) else asks.id
        for metric, scope, where in (one for one in quantities_of(asks) if one[0] not in needless):
            for labels in _labels(where):
                fitting = [place for place in places if _answers(place, metric, scope, labels, names)]
                if line := _several(fitting):
                    ambiguous.setdefault(line, []).append(entry)
                if not fitting:
                    quantities, entries = missing.setdefault(metric, ([], []))
                    quantities.append(f"{quantity(metric, labels)} of {scope}")
                    entries.append(entry)
    for quantities, entries in missing.values():
        measured = some(list(dict.fromkeys(quantities)), QUANTITIES, "; ")
        criteria = some(list(dict.fromkeys(entries)), SHOWN)
        lines.append(f"profile {profile_name}: no step measures {measured}: {criteria} will be UNMEASURED")
    for line, entries in ambiguous.items():
        criteria = some(list(dict.fromkeys(entries)), SHOWN)
        lines.append(f"profile {profile_name}: {line}: {criteria} will be INVALID; its where has to name one")
    return lines


def _several(fitting: Sequence[Measurement]) -> str:
    """Names the measurements that fit, where several of the same place do; else empty."""
    by_place = grouped((place.members, quantity(place.metric, place.labels)) for place in fitting)
    most = max((list(dict.fromkeys(quantities)) for quantities in by_place.values()), key=len, default=[])
    return f"several measurements fit, {some(most, QUANTITIES, '; ')}" if len(most) > 1 else ""


def _parts(architecture: Architecture, profile: Profile, rack: Rack, steps: Sequence[Step]) -> Iterator[str]:
    planned = {_PART.get(first, first) for first in (step.id.partition("/")[0] for step in steps)}
    for name in type(profile).model_fields:
        part = getattr(profile, name)
        if part is not None and name not in planned:
            yield f"{name} gives no step and will be UNMEASURED: {_why(architecture, profile, name, rack)}"


def _why(architecture: Architecture, profile: Profile, name: str, rack: Rack) -> str:
    parts = {
        "links": profile.links, "collectives": profile.collectives, "ingest": profile.ingest, "gpu": profile.gpu,
    }  # fmt: skip
    part = parts.get(name)
    if part is not None:
        nodes = rack.group(part.members)
        if name == "links" and architecture.fabric is None:
            return "the architecture has no fabric"
        return f"{part.members} has {counted(len(nodes), 'node', 'nodes')} ({fold(node.name for node in nodes)})"
    if name in ("drives", "osds"):
        return "no role of the rack's nodes declares such drives (expect.drives), or no node can ask the Ceph cluster"
    return "no node mounts its storage" if name == "storage" else "no node has containers with its storage"


def _labels(where: Where) -> Iterator[dict[str, str]]:
    """All combinations of the listed label values."""
    choices = [(value,) if isinstance(value, str) else value for value in where.values()]
    for combination in product(*choices):
        yield dict(zip(where, combination, strict=True))


def _answers(place: Measurement, metric: str, scope: Scope, labels: Mapping[str, str], names: set[str]) -> bool:
    """Whether a step's measurement has this metric, scope and labels, on any of the nodes ``names``."""
    return (
        place.metric == metric
        and place.scope is scope
        and labels.items() <= place.labels.items()
        and any(member.partition("/")[0] in names for member in place.members)
    )
