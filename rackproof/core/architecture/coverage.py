"""Measured rails, operations, storages and roles without a criterion: they could fail unseen."""

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
"""Maximum number of values in a message."""

_OF_JOBS: Final = {
    "read": ("storage.read_bandwidth",),
    "write": ("storage.write_bandwidth",),
    "randread": ("storage.random_read_iops", "storage.random_read_latency"),
}
_OF_KNEE: Final = ("storage.knee_outstanding", "storage.knee_utilisation")
_CHECKPOINT: Final = ("checkpoint.write_bandwidth", "checkpoint.read_bandwidth")
_SHARED: Final = "storage.shared_file_read_bandwidth"
_TO_STORAGE: Final = "link.tcp_bandwidth_to_storage"
_LINKS: Final = tuple(
    metric.name for metric in METRICS.values() if metric.benchmark == "links" and metric.labels == ("rail",)
)
GPU_MEMORY: Final = "link.rdma_write_bandwidth_gpu"
"""Measured only where an entry asks for it."""
_HOST_LINKS: Final = tuple(name for name in _LINKS if name != GPU_MEMORY)
_RAIL: Final = "collective.rail_busbw"
_COLLECTIVES: Final = tuple(
    metric.name for metric in METRICS.values() if metric.benchmark == "collectives" and metric.name != _RAIL
)
_CONTAINERS: Final = "container.read_over_host"


def measured_values(architecture: Architecture) -> dict[tuple[str, str], tuple[str, ...]]:
    """Measured values of labels (rails, operations, storages), by metric and label."""
    values_by_label: dict[tuple[str, str], dict[str, None]] = {}
    for profile in architecture.profiles.values():
        if profile.links:
            for metric in _LINKS if asks_for_gpu_memory(architecture) else _HOST_LINKS:
                rails = map(str, range(architecture.rails))
                values_by_label.setdefault((metric, "rail"), {}).update(dict.fromkeys(rails))
        if profile.links and profile.links.to_storage:
            to_storage = values_by_label.setdefault((_TO_STORAGE, "storage"), {})
            to_storage.update(dict.fromkeys(profile.links.to_storage))
        if profile.collectives:
            for metric in _COLLECTIVES:
                values_by_label.setdefault((metric, "op"), {}).update(dict.fromkeys(profile.collectives.ops))
        if profile.collectives and (split := profile.collectives.rails):
            values_by_label.setdefault((_RAIL, "op"), {}).update(dict.fromkeys(split.ops))
            values_by_label.setdefault((_RAIL, "rail"), {}).update(dict.fromkeys(map(str, range(architecture.rails))))
        if profile.gpu:
            rates = values_by_label.setdefault(("gpu.matmul_rate", "precision"), {})
            rates.update(dict.fromkeys(profile.gpu.precisions))
        if profile.storage:
            names = profile.storage.storages or tuple(architecture.storage)
            for metric in (metric for job in profile.storage.jobs for metric in _OF_JOBS[job]):
                values_by_label.setdefault((metric, "storage"), {}).update(dict.fromkeys(names))
            further: tuple[str, ...] = _OF_KNEE if profile.storage.knee else ()
            further += ("storage.random_read_bandwidth",) if profile.storage.random_reads else ()
            further += ("storage.synced_write_iops",) if profile.storage.synced_writes else ()
            further += _CHECKPOINT if profile.storage.checkpoint else ()
            further += ("storage.damaged_places",) if profile.storage.integrity else ()
            local = {name for name, storage in architecture.storage.items() if storage.class_ == "local"}
            shared = [name for name in names if name not in local]
            if profile.storage.shared_file:
                values_by_label.setdefault((_SHARED, "storage"), {}).update(dict.fromkeys(shared))
            for metric in further:
                values_by_label.setdefault((metric, "storage"), {}).update(dict.fromkeys(names))
        if profile.containers:
            bridged = architecture.containers.bridge if architecture.containers else ()
            names = profile.containers.storages or bridged
            values_by_label.setdefault((_CONTAINERS, "storage"), {}).update(dict.fromkeys(names))
    return {key: tuple(values) for key, values in values_by_label.items()}


def asks_for_gpu_memory(architecture: Architecture) -> bool:
    """Whether an entry is about RDMA from GPU memory."""
    return any(asks.metric == GPU_MEMORY for _, asks in entries_of(architecture))


def unjudged(architecture: Architecture) -> tuple[str, ...]:
    """Measured quantities without an entry: ``collective.busbw[op=alltoall]``. They prove nothing."""
    entries = list(entries_of(architecture))
    names = []
    for (metric, label), values in measured_values(architecture).items():
        about = [asks for _, asks in entries if asks.metric == metric]
        judged = {value for asks in about for value in _values(asks, label, values)}
        missing = [value for value in values if value not in judged]
        if values and not about:
            names.append(metric)
        elif missing:
            names.append(f"{metric}[{label}={','.join(missing)}]")
    return tuple(names)


def coverage_problems(architecture: Architecture) -> Iterator[Problem]:
    """Measured rails, operations, storages and client roles without a criterion, if others have one.

    A metric with criteria by rail needs one for every rail; an operation or a storage needs one metric with a
    criterion.
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
        if missing := [rail for rail in rails if rail not in judged]:
            yield Problem(
                (*about[0][0], "where", "rail"),
                f"{metric} of rail {some(missing, SHOWN)} would be judged by nothing; the fabric has {len(rails)}: "
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
        if about and (missing := [value for value in values if value not in judged]):
            yield Problem(
                (*about[0][0], "where", label),
                f"{label} {some(missing, SHOWN)} would be measured and judged by nothing; a profile measures "
                f"[{', '.join(values)}]",
            )


def _reference(asks: Asks) -> Reference | None:
    """The reference of a share, which counts as judged."""
    of = asks.pass_.of if isinstance(asks, Criterion | Alternative) else None
    return of if isinstance(of, Reference) else None


def _has_label(metric: str, label: str) -> bool:
    return metric in METRICS and label in METRICS[metric].labels


def _benchmark(metric: str) -> str:
    return METRICS[metric].benchmark if metric in METRICS else ""


def _roles(architecture: Architecture, entries: Entries) -> Iterator[Problem]:
    """Client roles of a storage without a criterion, if other roles have one."""
    for (metric, label), names in measured_values(architecture).items():
        for name in names if label == "storage" else ():
            groups = {
                group
                for path, asks in entries
                if asks.metric == metric and name in _values(asks, "storage", names)
                for group in members_of(architecture, path, asks)
            }
            clients = architecture.storage[name].client_roles if name in architecture.storage else ()
            missing = [role for role in clients if role not in groups and "all" not in groups]
            if groups and missing:
                yield Problem(
                    ("storage", name, "client_roles"),
                    f"{metric} of {some(missing, SHOWN)} would be measured and judged by nothing: no criterion has it"
                    " as members",
                )


def members_of(architecture: Architecture, path: KeyPath, asks: Asks) -> tuple[str, ...]:
    """Group of an entry; alternatives have their criterion's."""
    if isinstance(asks, Alternative):
        return (architecture.criteria[int(path[1])].members,)
    return (asks.members,)


def _values(asks: Asks, label: str, every: tuple[str, ...]) -> tuple[str, ...]:
    """Values of a label that an entry judges; all for an entry without the label."""
    value = asks.where.get(label)
    if value is None:
        return every
    return (value,) if isinstance(value, str) else value


def entries_of(architecture: Architecture) -> Iterator[tuple[KeyPath, Asks]]:
    """Criteria and their alternatives, curves and outliers, with their paths."""
    for index, criterion in enumerate(architecture.criteria):
        yield ("criteria", index), criterion
        for number, way in enumerate(criterion.any_of):
            yield ("criteria", index, "any_of", number), way
    for index, curve in enumerate(architecture.curves):
        yield ("curves", index), curve
    for index, outlier in enumerate(architecture.outliers):
        yield ("outliers", index), outlier
