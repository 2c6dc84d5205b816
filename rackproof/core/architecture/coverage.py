"""What the profiles measure and no criterion judges.

A rail, an operation, a storage or a role that is measured beside others, and judged by nothing, could fail unseen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rackproof.core.architecture.criterion import Alternative, Criterion, Curve, Outlier, Reference
from rackproof.core.architecture.models import Architecture
from rackproof.core.architecture.problem import KeyPath, Problem
from rackproof.core.metrics import METRICS
from rackproof.core.wording import some

Asks = Criterion | Alternative | Outlier | Curve
Entries = list[tuple[KeyPath, Asks]]

SHOWN: Final = 4
"""Values named in a message."""

_OF_JOBS: Final = {
    "read": ("storage.read_bandwidth",),
    "write": ("storage.write_bandwidth",),
    "randread": ("storage.random_read_iops", "storage.random_read_latency"),
}
_LINKS: Final = tuple(metric.name for metric in METRICS.values() if metric.benchmark == "links")
_COLLECTIVES: Final = tuple(metric.name for metric in METRICS.values() if metric.benchmark == "collectives")
_CONTAINERS: Final = "container.read_over_host"


def measured_values(architecture: Architecture) -> dict[tuple[str, str], tuple[str, ...]]:
    """By metric and label, the values of the label that some profile measures: rails, operations, storages."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for profile in architecture.profiles.values():
        if profile.links:
            for metric in _LINKS:
                found.setdefault((metric, "rail"), {}).update(dict.fromkeys(map(str, range(architecture.rails))))
        if profile.collectives:
            for metric in _COLLECTIVES:
                found.setdefault((metric, "op"), {}).update(dict.fromkeys(profile.collectives.ops))
        if profile.storage:
            names = profile.storage.storages or tuple(architecture.storage)
            for metric in (metric for job in profile.storage.jobs for metric in _OF_JOBS[job]):
                found.setdefault((metric, "storage"), {}).update(dict.fromkeys(names))
        if profile.containers:
            bridged = architecture.containers.bridge if architecture.containers else ()
            names = profile.containers.storages or bridged
            found.setdefault((_CONTAINERS, "storage"), {}).update(dict.fromkeys(names))
    return {key: tuple(values) for key, values in found.items()}


def unjudged(architecture: Architecture) -> tuple[str, ...]:
    """What a profile measures and no entry judges: ``collective.busbw[op=alltoall]``. It proves nothing."""
    entries = list(entries_of(architecture))
    found = []
    for (metric, label), values in measured_values(architecture).items():
        about = [asks for _, asks in entries if asks.metric == metric]
        judged = {value for asks in about for value in _values(asks, label, values)}
        left = [value for value in values if value not in judged]
        if values and not about:
            found.append(metric)
        elif left:
            found.append(f"{metric}[{label}={','.join(left)}]")
    return tuple(found)


def coverage_problems(architecture: Architecture) -> Iterator[Problem]:
    """Rails, operations, storages and client roles that are measured, and judged by no criterion beside the others.

    A metric that is judged by rail is judged on every rail. Of an operation or a storage one judged metric suffices.
    """
    entries = list(entries_of(architecture))
    yield from _rails(architecture, entries)
    yield from _parts(architecture, entries)
    yield from _roles(architecture, entries)


def _rails(architecture: Architecture, entries: Entries) -> Iterator[Problem]:
    rails = tuple(map(str, range(architecture.rails)))
    for metric in dict.fromkeys(asks.metric for _, asks in entries if _has_label(asks.metric, "rail")):
        about = [(path, asks) for path, asks in entries if asks.metric == metric]
        judged = {rail for _, asks in about for rail in _values(asks, "rail", rails)}
        if left := [rail for rail in rails if rail not in judged]:
            yield Problem(
                (*about[0][0], "where", "rail"),
                f"{metric} of rail {some(left, SHOWN)} would be judged by nothing; the fabric has {len(rails)}: "
                f"[{', '.join(rails)}]",
            )


def _parts(architecture: Architecture, entries: Entries) -> Iterator[Problem]:
    measured: dict[tuple[str, str], dict[str, None]] = {}
    for (metric, label), values in measured_values(architecture).items():
        if label != "rail":
            measured.setdefault((METRICS[metric].benchmark, label), {}).update(dict.fromkeys(values))
    for (benchmark, label), names in measured.items():
        values = tuple(names)
        about = [(path, asks) for path, asks in entries if _benchmark(asks.metric) == benchmark]
        judged = {value for _, asks in about for value in _values(asks, label, values)}
        judged |= {of.where.get(label, "") for _, asks in about if (of := _reference(asks)) is not None}
        if about and (left := [value for value in values if value not in judged]):
            yield Problem(
                (*about[0][0], "where", label),
                f"{label} {some(left, SHOWN)} would be measured and judged by nothing; a profile measures "
                f"[{', '.join(values)}]",
            )


def _reference(asks: Asks) -> Reference | None:
    """What the number is a share of: that is used, too."""
    of = asks.pass_.of if isinstance(asks, Criterion | Alternative) else None
    return of if isinstance(of, Reference) else None


def _has_label(metric: str, label: str) -> bool:
    return metric in METRICS and label in METRICS[metric].labels


def _benchmark(metric: str) -> str:
    return METRICS[metric].benchmark if metric in METRICS else ""


def _roles(architecture: Architecture, entries: Entries) -> Iterator[Problem]:
    """Client roles of a storage of which some have criteria of their own number and others do not."""
    for (metric, label), names in measured_values(architecture).items():
        for name in names if label == "storage" else ():
            groups = {
                group
                for path, asks in entries
                if asks.metric == metric and name in _values(asks, "storage", names)
                for group in members_of(architecture, path, asks)
            }
            clients = architecture.storage[name].client_roles if name in architecture.storage else ()
            left = [role for role in clients if role not in groups and "all" not in groups]
            if groups and left:
                yield Problem(
                    ("storage", name, "client_roles"),
                    f"{metric} of {some(left, SHOWN)} would be measured and judged by nothing: no criterion has it as "
                    "members",
                )


def members_of(architecture: Architecture, path: KeyPath, asks: Asks) -> tuple[str, ...]:
    """The group of an entry; an alternative has its criterion's."""
    if isinstance(asks, Alternative):
        return (architecture.criteria[int(path[1])].members,)
    return (asks.members,)


def _values(asks: Asks, label: str, every: tuple[str, ...]) -> tuple[str, ...]:
    """Values of a label that an entry judges; one that is left open may be any."""
    value = asks.where.get(label)
    if value is None:
        return every
    return (value,) if isinstance(value, str) else value


def entries_of(architecture: Architecture) -> Iterator[tuple[KeyPath, Asks]]:
    """Everything that asks for a number, with its path: criteria and their alternatives, curves, outliers."""
    for index, criterion in enumerate(architecture.criteria):
        yield ("criteria", index), criterion
        for number, way in enumerate(criterion.any_of):
            yield ("criteria", index, "any_of", number), way
    for index, curve in enumerate(architecture.curves):
        yield ("curves", index), curve
    for index, outlier in enumerate(architecture.outliers):
        yield ("outliers", index), outlier
