"""Measured rails, operations, storages and roles without a criterion: they could fail unseen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from rackproof.core.architecture.criterion import Alternative, Criterion, Curve, Entry, Reference
from rackproof.core.architecture.entries import each_entry
from rackproof.core.architecture.models import Architecture
from rackproof.core.architecture.problem import KeyPath, Problem
from rackproof.core.architecture.profiles import StorageProfile
from rackproof.core.architecture.storage import Storage
from rackproof.core.collective import IN_PLACE
from rackproof.core.evidence import Scope
from rackproof.core.grouping import grouped
from rackproof.core.metrics import BESIDE_LOSSES, GDS, JOB_METRICS, METRICS, OPERATIONS, benchmark_of
from rackproof.core.wording import some

Asks = Entry | Alternative
Where = Mapping[str, str | tuple[str, ...]]
"""Labels of a quantity, each with its value or values."""
Entries = list[tuple[KeyPath, Asks]]

SHOWN: Final = 4
"""Maximum number of values in a message."""

_SHARED: Final = "storage.shared_file_read_bandwidth"
_METADATA: Final = "storage.metadata_rate"
_SPEEDUP: Final = "storage.connections_speedup"
_RDMA_GAIN: Final = "storage.rdma_over_tcp"
_MOUNTS_GAIN: Final = "storage.mounts_speedup"
_JOIN: Final = "join.bytes_copied"
_OF_PARTS: Final = {
    # keys of a storage profile
    "shared_file": (_SHARED,),
    "knee": ("storage.knee_outstanding", "storage.knee_utilisation"),
    "random_reads": ("storage.random_read_bandwidth",),
    "synced_writes": ("storage.synced_write_iops",),
    "checkpoint": ("checkpoint.write_bandwidth", "checkpoint.read_bandwidth"),
    "integrity": ("storage.damaged_places",),
    "small_files": ("storage.small_file_read_bandwidth",),
    "metadata": (_METADATA,),
    "connections": (_SPEEDUP,),
    "transports": (_RDMA_GAIN,),
    "mounts": (_MOUNTS_GAIN,),
    "join": (_JOIN,),
    "beside_collectives": BESIDE_LOSSES,
    "gds": (GDS,),
}
_TO_STORAGE: Final = "link.tcp_bandwidth_to_storage"
_LINKS: Final = tuple(
    metric.name for metric in METRICS.values() if metric.benchmark == "links" and metric.labels == ("rail",)
)
GPU_MEMORY: Final = "link.rdma_write_bandwidth_gpu"
GPU_LATENCY: Final = "link.rdma_read_latency_gpu"
ON_DEMAND: Final = (
    GPU_MEMORY, f"{GPU_MEMORY}_both", "link.rdma_write_bandwidth_both", "link.rdma_read_latency", GPU_LATENCY,
    "storage.knee_utilisation",
)  # fmt: skip
"""Measured only where an entry asks for them, or for what they are measured with."""
_WITH: Final = {GPU_LATENCY: GPU_MEMORY, f"{GPU_LATENCY}_all_rails": f"{GPU_MEMORY}_all_rails"}
"""Latencies of reads, by the bandwidth of writes between the same memories with which they are measured."""
_RAIL: Final = "collective.rail_busbw"
_COUNTED_BESIDE: Final = (
    "collective.rail_wrong_values",
    "guest.collective_wrong_values",
    "guest.host_collective_wrong_values",
)
"""Wrong values of runs whose bandwidth is judged; without a criterion they are judged, too: see ``judging.content``."""
_IN_PLACE: Final = "collective.busbw_in_place"
_COLLECTIVES: Final = tuple(
    metric.name
    for metric in METRICS.values()
    if metric.benchmark == "collectives" and metric.name not in (_RAIL, _IN_PLACE, *_COUNTED_BESIDE)
)
_CONTAINERS: Final = "container.read_over_host"


def measured_values(architecture: Architecture) -> dict[tuple[str, str], tuple[str, ...]]:
    """Measured values of labels (rails, operations, storages), by metric and label."""
    measured = grouped(
        ((metric, label), value) for metric, label, values in _measured(architecture) for value in values
    )
    return {key: tuple(dict.fromkeys(values)) for key, values in measured.items()}


def _measured(architecture: Architecture) -> Iterator[tuple[str, str, Iterable[str]]]:
    """Metric, label and values of all that the profiles measure."""
    rails = tuple(map(str, range(architecture.rails)))
    for profile in architecture.profiles.values():
        if links := profile.links:
            for metric in (name for name in _LINKS if _wanted(architecture, name)):
                yield metric, "rail", rails
            yield _TO_STORAGE, "storage", links.to_storage
        if collectives := profile.collectives:
            for metric in _COLLECTIVES:
                yield metric, "op", collectives.ops
            if collectives.engine == "nccl-tests":
                yield _IN_PLACE, "op", [op for op in collectives.ops if op in IN_PLACE]
            if split := collectives.rails:
                yield _RAIL, "op", split.ops
                yield _RAIL, "rail", rails
        if profile.gpu:
            yield "gpu.matmul_rate", "precision", profile.gpu.precisions
            yield "gpu.diagnosed_faults", "test", profile.gpu.diagnoses
        if drives := profile.drives:
            every = dict.fromkeys(d.use for role in architecture.roles.values() for d in role.expect.drives)
            yield "drive.read_bandwidth", "use", drives.uses or tuple(every)
        if profile.osds:
            yield "drive.osd_write_bandwidth", "use", (profile.osds.use,)
        if storage := profile.storage:
            names = storage.storages or tuple(architecture.storage)
            known = {name: architecture.storage[name] for name in names if name in architecture.storage}
            for metric in (name for name in _of_storage(storage) if _wanted(architecture, name)):
                yield (
                    metric,
                    "storage",
                    [name for name, mounted in known.items() if _able(metric, storage, mounted, name)],
                )
            yield _METADATA, "op", OPERATIONS if storage.metadata else ()
        if containers := profile.containers:
            bridged = architecture.containers.bridge if architecture.containers else ()
            yield _CONTAINERS, "storage", containers.storages or bridged


def _wanted(architecture: Architecture, metric: str) -> bool:
    return metric not in ON_DEMAND or measures(architecture, metric)


def _of_storage(profile: StorageProfile) -> Iterator[str]:
    """Metrics of storages that a profile measures."""
    for job in profile.jobs:
        yield from JOB_METRICS[job]
    for part, metrics in _OF_PARTS.items():
        if getattr(profile, part):
            yield from metrics


def _able(metric: str, profile: StorageProfile, storage: Storage, name: str) -> bool:
    """Whether a profile measures this of a storage."""
    if metric == _SHARED:
        return storage.class_ != "local"
    if metric == _SPEEDUP:
        return storage.takes_connections
    if metric == _RDMA_GAIN:
        return storage.over_rdma
    if metric == _MOUNTS_GAIN:
        return storage.class_ == "nfs"
    if metric == _JOIN:
        return storage.mounts_again
    return metric != GDS or (profile.gds is not None and profile.gds.reads(name))


def asks_for(architecture: Architecture, metric: str, scope: Scope | None = None) -> bool:
    """Whether an entry is about the metric, in the scope if one is given."""
    return any(
        asks.metric == metric and (scope is None or (isinstance(asks, Curve) or asks.scope is scope))
        for _, asks in entries_of(architecture)
    )


def measures(architecture: Architecture, metric: str, scope: Scope | None = None) -> bool:
    """Whether an entry asks for the metric, or for another one that it is measured with."""
    return any(asks_for(architecture, name, scope) for name in {metric, _WITH.get(metric, metric)})


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
        about = [(path, asks) for path, asks in entries if benchmark_of(asks.metric) == benchmark]
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


def quantities_of(asks: Asks) -> Iterator[tuple[str, Scope, Where]]:
    """Quantities of an entry: its own metric at every point, and that to which its bar refers (scope, labels)."""
    if isinstance(asks, Curve):
        for point in sorted({*asks.points, asks.baseline}):
            yield asks.metric, Scope.RACK, {**asks.where, asks.over: str(point)}
        return
    yield asks.metric, asks.scope, asks.where
    if (of := _reference(asks)) is not None:
        yield of.metric, of.scope, of.where


def entries_of(architecture: Architecture) -> Iterator[tuple[KeyPath, Asks]]:
    """Criteria and their alternatives, curves and outliers, with their paths."""
    for path, entry in each_entry(architecture):
        yield path, entry
        for number, way in enumerate(entry.any_of if isinstance(entry, Criterion) else ()):
            yield (*path, "any_of", number), way
