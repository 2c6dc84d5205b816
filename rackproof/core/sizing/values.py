"""The sizing model's inputs as plain numbers in SI units: bytes, bytes per second, seconds, shares of one.

``None`` is a missing figure. Names are the keys of a reference architecture's ``sizing:`` and
``workloads:`` blocks; ``SYSTEM`` and ``WORKLOAD`` have their units.
"""

from __future__ import annotations

from dataclasses import dataclass

from rackproof.core.architecture import SourceStatus
from rackproof.core.architecture.workloads import WorkloadKind


@dataclass(frozen=True, slots=True)
class Spec:
    """Units and limits of an input."""

    unit: str
    """The model's SI unit."""
    shown: str
    """The usual unit."""
    whole: bool = False
    """A count: only whole numbers."""
    share: bool = False
    """At most 1."""


_COUNT = Spec("1", "1", whole=True)
_SHARE = Spec("1", "percent", share=True)
_SIZE = Spec("B", "GB")
_BANDWIDTH = Spec("B/s", "GB/s")
_LINE = Spec("B/s", "Gb/s")
_RATE = Spec("1/s", "1/s")
_TIME = Spec("s", "ms")

SYSTEM: dict[str, Spec] = {
    "nodes": _COUNT,
    "gpus_per_node": _COUNT,
    "cores_per_node": _COUNT,
    "client_cache": _SIZE,
    "local_tier": _SIZE,
    "storage_ports": _COUNT,
    "port_rate": _LINE,
    "port_efficiency": _SHARE,
    "connections_per_node": _COUNT,
    "connections_used": _COUNT,
    "connection_rate": _BANDWIDTH,
    "connection_slots": _COUNT,
    "share_of_dataset": _SHARE,
    "unit.count": _COUNT,
    "unit.read": _BANDWIDTH,
    "unit.read_measured": _BANDWIDTH,
    "unit.write": _BANDWIDTH,
    "unit.read_iops": _RATE,
    "unit.opens": _RATE,
    "unit.unloaded_latency": _TIME,
    "unit.loaded_latency": _TIME,
    "unit.cache": _SIZE,
    "unit.capacity": Spec("B", "TB"),
    "unit.nodes": _COUNT,
    "unit.ports": _COUNT,
    "unit.port_rate": _LINE,
    "ceilings.gpu": _SHARE,
    "ceilings.cpu": _SHARE,
    "ceilings.network": _SHARE,
    "ceilings.storage": _SHARE,
}

WORKLOAD: dict[str, Spec] = {
    "share": _SHARE,
    "sample_size": Spec("B", "kB"),
    "rate_per_gpu": _RATE,
    "batch_per_gpu": _COUNT,
    "cpu_time_per_sample": _TIME,
    "read_size": Spec("B", "KiB"),
    "dataset": Spec("B", "TB"),
    "epochs": _COUNT,
    "files_per_sample": Spec("1", "1"),
    "checkpoint": _SIZE,
    "checkpoint_interval": Spec("s", "s"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One chassis, server or brick of the storage, and how many there are."""

    count: float
    read: float | None
    read_measured: float | None
    write: float | None
    read_iops: float | None
    opens: float | None
    unloaded_latency: float | None
    loaded_latency: float | None
    cache: float | None
    capacity: float | None
    nodes: float
    ports: float | None
    port_rate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """Maximum utilisation of each stage for planning."""

    gpu: float
    cpu: float
    network: float
    storage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """The system for the workloads."""

    nodes: float
    gpus_per_node: float
    cores_per_node: float | None
    client_cache: float | None
    local_tier: float | None
    storage_ports: float
    port_rate: float | None
    port_efficiency: float
    connections_per_node: float | None
    connections_used: float | None
    connection_rate: float | None
    connection_slots: float | None
    share_of_dataset: float
    unit: Unit
    ceilings: Ceilings

    @property
    def connections(self) -> float | None:
        """Connections of one node that carry data at the same time."""
        return self.connections_used if self.connections_used is not None else self.connections_per_node

    @property
    def node_bandwidth(self) -> float | None:
        """B/s that reach an application on one node over its storage ports."""
        return None if self.port_rate is None else self.storage_ports * self.port_rate * self.port_efficiency


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One workload on its part of the nodes."""

    name: str
    title: str
    kind: WorkloadKind
    share: float
    """Share of the nodes."""
    sample_size: float | None
    rate_per_gpu: float | None
    batch_per_gpu: float | None
    cpu_time_per_sample: float | None
    read_size: float | None
    dataset: float | None
    epochs: float | None
    files_per_sample: float | None
    checkpoint: float | None
    checkpoint_interval: float | None

    @property
    def requests_per_sample(self) -> float | None:
        """Reads of ``read_size`` bytes for one sample; at least one for every file that it consists of."""
        if self.sample_size is None or self.read_size is None:
            return None
        packed = self.sample_size / self.read_size
        return packed if self.files_per_sample is None else max(packed, self.files_per_sample)


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of an input's number."""

    source: str
    """A key of the architecture's sources, ``--set``, or ``default``."""
    unit: str
    """The text in the file."""
    status: SourceStatus | None = None
    note: str | None = None
    key: str = ""
    """Its path in the file: ``sizing.unit.read``."""
    absent: bool = False
    """The file lacks the key; an unpublished figure is a key with null."""


DEFAULT = "default"
SET = "--set"
