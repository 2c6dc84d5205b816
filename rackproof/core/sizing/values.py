"""The sizing model's inputs as plain numbers in SI units: bytes, bytes per second, seconds, shares of one.

``None`` is a missing figure. Names are the keys of a reference architecture's ``sizing:`` and
``workloads:`` blocks; ``SYSTEM`` and ``WORKLOAD`` have their units.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, get_args, get_origin, get_type_hints

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
    needed: bool = False
    """The model does not work without it."""


Count = Annotated[float, Spec("1", "1", whole=True)]
Share = Annotated[float, Spec("1", "percent", share=True)]
Size = Annotated[float, Spec("B", "GB")]
Terabytes = Annotated[float, Spec("B", "TB")]
Bandwidth = Annotated[float, Spec("B/s", "GB/s")]
LineRate = Annotated[float, Spec("B/s", "Gb/s")]
Rate = Annotated[float, Spec("1/s", "1/s")]
Time = Annotated[float, Spec("s", "ms")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One chassis, server or brick of the storage, and how many there are."""

    count: Count
    read: Bandwidth | None
    read_measured: Bandwidth | None
    write: Bandwidth | None
    read_iops: Rate | None
    opens: Rate | None
    unloaded_latency: Time | None
    loaded_latency: Time | None
    cache: Size | None
    capacity: Terabytes | None
    nodes: Count
    ports: Count | None
    port_rate: LineRate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """Maximum utilisation of each stage for planning."""

    gpu: Share
    cpu: Share
    network: Share
    storage: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """The system for the workloads."""

    nodes: Count
    gpus_per_node: Count
    cores_per_node: Count | None
    client_cache: Size | None
    local_tier: Size | None
    storage_ports: Count
    port_rate: LineRate | None
    port_efficiency: Share
    connections_per_node: Count | None
    connections_used: Count | None
    connection_rate: Bandwidth | None
    connection_slots: Count | None
    share_of_dataset: Share
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
    share: Share
    """Share of the nodes."""
    sample_size: Annotated[float, Spec("B", "kB")] | None
    rate_per_gpu: Rate | None
    batch_per_gpu: Count | None
    cpu_time_per_sample: Time | None
    read_size: Annotated[float, Spec("B", "KiB")] | None
    dataset: Terabytes | None
    epochs: Count | None
    files_per_sample: Annotated[float, Spec("1", "1")] | None
    checkpoint: Size | None
    checkpoint_interval: Annotated[float, Spec("s", "s")] | None

    @property
    def requests_per_sample(self) -> float | None:
        """Reads of ``read_size`` bytes for one sample; at least one for every file that it consists of."""
        if self.sample_size is None or self.read_size is None:
            return None
        packed = self.sample_size / self.read_size
        return packed if self.files_per_sample is None else max(packed, self.files_per_sample)


def _specs(block: type, prefix: str = "") -> dict[str, Spec]:
    """Units and limits of a block's inputs; those that may be None are not needed."""
    specs = {}
    for name, hint in get_type_hints(block, include_extras=True).items():
        kinds = [kind for kind in (hint, *get_args(hint)) if get_origin(kind) is Annotated]
        if kinds:
            specs[f"{prefix}{name}"] = replace(kinds[0].__metadata__[0], needed=kinds[0] is hint)
    return specs


SYSTEM: dict[str, Spec] = _specs(System) | _specs(Unit, "unit.") | _specs(Ceilings, "ceilings.")
WORKLOAD: dict[str, Spec] = _specs(Tenant)


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of an input's number."""

    source: str
    """A key of the architecture's sources, ``--set``, or ``default``."""
    unit: str
    """As written in the file."""
    status: SourceStatus | None = None
    note: str | None = None
    key: str = ""
    """Path in the file: ``sizing.unit.read``."""
    absent: bool = False
    """The file lacks the key; an unpublished figure is a key with null."""


DEFAULT = "default"
SET = "--set"
