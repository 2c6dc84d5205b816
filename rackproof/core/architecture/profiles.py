"""Sizes and durations of the benchmarks of a run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from rackproof.core.architecture.base import Identifier, Model
from rackproof.core.texts import Name


class FioJob(Model):
    """One fio workload; sizes are integers of bytes because fio's suffixes are ambiguous."""

    rw: Literal["read", "write", "randread"]
    block_bytes: int = Field(gt=0)
    iodepth: int = Field(default=8, ge=1)
    numjobs: int = Field(default=1, ge=1)
    file_bytes: int = Field(gt=0)
    """Per job and client."""
    runtime_s: int = Field(ge=1)
    ramp_s: int = Field(default=0, ge=0)
    runs: int = Field(default=1, ge=1)


class StorageProfile(Model):
    jobs: dict[Literal["read", "write", "randread"], FioJob]
    storages: tuple[Identifier, ...] | None = None
    """None: all of the architecture's."""


class LinkProfile(Model):
    rdma_block_bytes: int = 65536
    rdma_duration_s: int = Field(ge=1)
    latency_iterations: int = Field(ge=5)
    tcp_duration_s: int = Field(ge=1)
    tcp_streams: int = Field(default=1, ge=1)
    runs: int = Field(default=1, ge=1)
    members: Name = "gpu"
    """The group between whose nodes links are measured, as in criteria."""


class CollectiveProfile(Model):
    engine: Literal["nccl-tests", "mpi"]
    ops: tuple[Literal["all_reduce", "all_gather", "alltoall"], ...]
    min_bytes: int = Field(gt=0)
    max_bytes: int = Field(gt=0)
    factor: int = Field(default=2, ge=2)
    iterations: int = Field(ge=1)
    warmup: int = Field(ge=0)
    ranks_per_node: int = Field(default=1, ge=1)
    members: Name = "gpu"
    """The group on whose nodes they run, as in criteria."""


class ContainerProfile(Model):
    """The same job on the node and inside an unprivileged container."""

    job: FioJob
    storages: tuple[Identifier, ...] | None = None
    """None: all of ``containers.bridge``."""

    @field_validator("job")
    @classmethod
    def _reads(cls, job: FioJob) -> FioJob:
        if job.rw != "read":
            raise ValueError("the comparison is of sequential reads: rw must be read")
        return job


class Profile(Model):
    """Benchmark sizes: ``lab`` is small, ``full`` is an acceptance test."""

    storage: StorageProfile | None = None
    links: LinkProfile | None = None
    collectives: CollectiveProfile | None = None
    containers: ContainerProfile | None = None
