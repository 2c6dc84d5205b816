"""Inputs of the sizing model: demand of a job, and capacity of every stage between disk and GPU.

Figures carry their unit and source; ``null`` is an unpublished figure; the model lists the answers that it affects.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from rackproof.core.architecture.base import Claims, Figure, Identifier, Model, Sentence
from rackproof.core.texts import Name
from rackproof.core.units import same_dimension
from rackproof.core.wording import exact


def _measured_in(unit: str, what: str) -> Callable[[Figure], Figure]:
    def checked(figure: Figure) -> Figure:
        if not same_dimension(figure.unit, unit):
            raise ValueError(f"expected {what}, actual {figure.unit}")
        if figure.value is not None and not figure.value > 0:
            raise ValueError(f"expected more than 0, or null where it is unpublished, actual {exact(figure.value)}")
        return figure

    return checked


Size = Annotated[Figure, AfterValidator(_measured_in("B", "a unit of size, B to TiB"))]
Bandwidth = Annotated[Figure, AfterValidator(_measured_in("B/s", "a unit of bandwidth, B/s to Tb/s"))]
Rate = Annotated[Figure, AfterValidator(_measured_in("1/s", "a rate: 1/s, IOPS or kIOPS"))]
Time = Annotated[Figure, AfterValidator(_measured_in("s", "a unit of time: ns, us, ms or s"))]


class WorkloadKind(StrEnum):
    TRAINING = "training"
    """Closed loop: slower storage slows the job."""
    INFERENCE = "inference"
    """Open loop: requests arrive independently of the storage, and users wait for them."""


class Workload(Model):
    """One training job, or one inference service, as the storage sees it."""

    title: Sentence
    kind: WorkloadKind = WorkloadKind.TRAINING
    sample_size: Size
    """Bytes of one sample as stored."""
    rate_per_gpu: Rate
    """Samples/s of one GPU that does not wait for data."""
    batch_per_gpu: int | None = Field(default=None, ge=1)
    precision: Name | None = None
    cpu_time_per_sample: Time | None = None
    """Time of one core for one sample."""
    read_size: Size | None = None
    """Bytes of one request to the storage."""
    dataset: Size | None = None
    """Bytes of the whole data set."""
    epochs: int | None = Field(default=None, ge=1)
    files_per_sample: float | None = Field(default=None, gt=0)
    """1: one file per sample; 2: with a tag file; near 0: record files."""
    checkpoint: Size | None = None
    """Bytes of one checkpoint of the whole job."""
    checkpoint_interval: Time | None = None
    claim: Claims = ()


class StorageUnit(Model):
    """Unit of storage expansion: a chassis, a server, a brick."""

    title: Sentence
    count: int = Field(default=1, ge=1)
    read: Bandwidth
    """Read rate of one unit, as specified."""
    read_measured: Bandwidth | None = None
    """Read rate of one unit, where a measurement differs."""
    write: Bandwidth | None = None
    read_iops: Rate | None = None
    opens: Rate | None = None
    """Files/s that one unit opens; used only where samples are files."""
    unloaded_latency: Time | None = None
    """Latency of one read on an idle storage."""
    loaded_latency: Time | None = None
    """Latency of one read at the planned load; null: estimated from the unloaded one."""
    cache: Size | None = None
    """Bytes of one unit's read cache."""
    capacity: Size | None = None
    """Usable bytes of one unit."""
    nodes: int = Field(default=1, ge=1)
    """Controllers in one unit."""
    ports: int | None = Field(default=None, ge=1)
    """Client-facing ports of one unit, all its controllers together."""
    port_rate: Bandwidth | None = None
    """Line rate of one of them."""


class Ceilings(Model):
    """Utilisation that each stage may be planned for, 0 to 1."""

    gpu: float = Field(default=1.0, gt=0, le=1)
    cpu: float = Field(default=0.9, gt=0, le=1)
    network: float = Field(default=0.7, gt=0, le=1)
    storage: float = Field(default=0.7, gt=0, le=1)


class Sizing(Model):
    """The system that the workloads run on."""

    storage: Identifier | None = None
    """Entry of ``storage:`` that feeds the workloads; may be null with only one shared storage."""
    nodes: int = Field(ge=1)
    gpus_per_node: int = Field(ge=1)
    cores_per_node: int | None = Field(default=None, ge=1)
    client_cache: Size | None = None
    """Bytes of memory of one node that may hold data."""
    local_tier: Size | None = None
    """Bytes of local drives of one node that cache the shared storage."""
    storage_ports: int = Field(ge=1)
    """Ports of one node that carry storage."""
    port_rate: Bandwidth
    """Line rate of one of them."""
    port_efficiency: float = Field(default=0.94, gt=0, le=1)
    """Share of the line rate that reaches the application: 0.94 TCP, 0.96 RDMA."""
    connections_per_node: int | None = Field(default=None, ge=1)
    """Mounts times nconnect."""
    connections_used: int | None = Field(default=None, ge=1)
    """Connections in use at a time (a rank reads through one mount only); null: all."""
    connection_rate: Bandwidth | None = None
    """Bandwidth of one connection to the storage."""
    connection_slots: int | None = Field(default=None, ge=1)
    """Requests that one connection may have outstanding."""
    share_of_dataset: float = Field(default=1.0, gt=0, le=1)
    """Share of the data set that one node reads over all epochs: 1 where each epoch is shuffled over all nodes."""
    unit: StorageUnit
    ceilings: Ceilings = Ceilings()
