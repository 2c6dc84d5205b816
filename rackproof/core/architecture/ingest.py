"""Data sets and sizes of the ingest benchmark."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from rackproof.core.accelerators import RATES
from rackproof.core.architecture.base import Identifier, Model
from rackproof.core.architecture.workloads import Rate
from rackproof.core.texts import Name, Value
from rackproof.core.units import convert

Format = Literal["files", "tfrecord", "tfrecord-gz", "tar", "tar-gz"]


class DataSet(Model):
    """JPEG samples on a storage, made by ``rackproof dataset make``."""

    storage: Identifier
    format: Format
    """``files``: a JPEG each; ``tfrecord``: TFRecord framing of tf.train.Example; ``tar``: JPEG and class of each
    sample; ``-gz``: the whole shard with gzip."""
    samples: int = Field(gt=0)
    """Distinct samples; equal seeds, sizes and versions of numpy and Pillow give equal samples in every format."""
    copies: int = Field(default=1, ge=1)
    """Copies of each distinct shard, byte by byte, so that the set is larger than every cache."""
    per_shard: int = Field(default=64, ge=1)
    """Samples of one shard: the unit of parallel and resumed writing."""
    mean_bytes: int = Field(ge=2000)
    """Mean size of a JPEG, bytes."""
    large: bool = False
    """Three times height and width, quality 100, chroma not subsampled."""
    seed: int = Field(default=1, ge=0)


class IngestData(StrEnum):
    """Where the samples of a leg come from."""

    STORAGE = "storage"
    """From the storage, cold caches."""
    MEMORY = "memory"
    """Read into the memory of the processes before the clock starts."""
    UNDECODED = "undecoded"
    """From the storage, cold caches, and nothing is decoded: the storage alone."""
    SYNTHETIC = "synthetic"
    """Nothing is read or decoded: the accelerators alone."""


class IngestJob(Model):
    """One training job, or one inference service, and the legs in which it is measured."""

    workload: Identifier
    """Label of its measurements; the sizing model's workload where the architecture has one of this name."""
    kind: Literal["training", "inference"] = "training"
    dataset: Identifier
    engine: Literal["emulated", "torch"] = "emulated"
    """``torch``: the GPUs themselves, PyTorch with ``model`` of torchvision under torchrun: training with
    DistributedDataParallel, or forward passes only. Processors stand in where a node has no GPU."""
    precision: Literal["fp32", "amp", "fp16"] = "amp"
    """Precision of the engine ``torch``; ``amp``: automatic mixed precision with bfloat16; ``fp16``: the same with
    float16, for GPUs that compute bfloat16 slowly, such as the V100."""
    accelerator: Identifier = "own"
    """The accelerator whose time for a batch is emulated: with ``model`` a key of ``core.accelerators.RATES``."""
    model: Identifier
    rate: Rate | None = None
    """Samples a second of one accelerator that does not wait, instead of the kit's figure."""
    batch: int = Field(ge=1)
    """Samples of one step of one accelerator."""
    slowdown: float = Field(default=1.0, gt=0)
    """Divides the accelerator's rate: the declared scale of a small rack."""
    accelerators: int = Field(default=8, ge=1)
    """Accelerators of each node, emulated or real."""
    workers: int = Field(default=8, ge=1)
    """Processes on each node that read, decode and crop, each for one accelerator."""
    crop: int = Field(default=224, ge=8)
    """Height and width of a decoded sample, pixels."""
    data: tuple[IngestData, ...] = (IngestData.STORAGE,)
    seconds: int = Field(ge=2)
    """Duration of the timed part of one run."""
    warmup_s: int = Field(default=2, ge=0)
    start_s: int = Field(default=300, ge=1)
    """Longest time in seconds until the processes of all nodes are ready, for ``memory`` with their samples in memory;
    then all start together. Later the run fails."""
    nodes: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Numbers of nodes, one leg each; none: all nodes of the group."""
    port_gbps: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(), exclude_if=lambda value: not value)
    """Instead of one leg from the storage and one prediction one for each of these rates of a port, in Gb/s of the
    published system: ``scale.links`` says what they are on the virtual rack."""
    epochs: int = Field(default=0, ge=0)
    """Not 0: passes over the data set, instead of ``seconds``; caches are dropped before the first pass only."""
    only_local_cache: bool = False
    """Drop the clients' page caches before each later epoch, too: what then comes from the node itself comes from the
    storage's ``local_cache``."""
    placement: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Numbers of nodes that share the accelerators of one node, each in a run of its own."""
    arrivals_per_s: float = Field(default=0, ge=0)
    """Inference: requests a second of one worker, at random times; 0: as fast as they are taken."""
    slots: int = Field(default=2, ge=1)
    """Batches that a worker may be ahead of its accelerator."""
    beside: Identifier | None = None
    """Job that runs on the same nodes at the same time, in legs of their own."""
    predict: bool = False
    """Also measure the stages one by one, and compare the whole with what the sizing model predicts from them."""
    settle: bool = False
    """Also measure when a data set that fits into a node's memory causes no more reads: every node reads all of it
    again and again for ``seconds``, which must be enough for three passes."""
    runs: int = Field(default=1, ge=1)

    @property
    def step_s(self) -> float:
        """Seconds of one emulated accelerator for a batch, 0 of a real one. Raises KeyError for an unknown one."""
        if self.engine == "torch":
            return 0.0
        if self.rate is not None and self.rate.value is not None:
            rate = convert(self.rate.value, self.rate.unit, "1/s")
        else:
            rate = RATES[self.accelerator, self.model].rate
        return self.batch * self.slowdown / rate

    @property
    def real(self) -> str:
        """Model, kind and precision that real accelerators compute; empty for emulated ones."""
        return f"{self.model} {self.kind} {self.precision}" if self.engine == "torch" else ""

    @model_validator(mode="after")
    def _real(self) -> IngestJob:
        if self.workers % self.accelerators:
            raise ValueError(f"{self.accelerators} accelerators need {self.accelerators} workers or a multiple")
        if self.engine == "torch":
            if self.slowdown != 1 or self.rate is not None:
                raise ValueError("slowdown and rate are of emulated accelerators; engine torch computes by itself")
            if self.epochs or self.predict or self.placement:
                raise ValueError("epochs, predict and placement are measured with emulated accelerators")
        return self

    @model_validator(mode="after")
    def _emulated(self) -> IngestJob:
        known_rate = self.rate is not None and self.rate.value is not None
        if self.engine == "emulated" and not known_rate and (self.accelerator, self.model) not in RATES:
            known = ", ".join(f"{accelerator} {model}" for accelerator, model in RATES)
            raise ValueError(
                f"no rate of {self.model} on {self.accelerator}: give rate with its source; known: {known}"
            )
        if not self.data and not (self.settle or self.predict or self.placement or self.beside):
            raise ValueError(
                "data is empty: name where the samples come from, or set settle, predict, placement or beside"
            )
        if self.settle and self.epochs:
            raise ValueError("settle needs seconds, epochs have none: give them to another job")
        if self.only_local_cache and self.epochs < 2:
            raise ValueError("only_local_cache is about the second epoch: epochs of 2 or more")
        reads = IngestData.STORAGE in self.data or self.predict
        if self.port_gbps and (self.epochs or self.nodes or not reads):
            raise ValueError("port_gbps gives legs from the storage of all nodes, or predictions, without epochs")
        if any(self.accelerators % count for count in self.placement):
            raise ValueError(f"{self.accelerators} accelerators cannot be placed evenly on {self.placement} nodes")
        return self


class Tree(Model):
    """Files with known contents, written through one protocol and hashed over the mounts of every client."""

    storage: Identifier
    """The storage whose mounts show the files."""
    protocol: Literal["nfs", "posix", "smb", "hdfs"]
    """``nfs`` and ``posix``: over a mount of the first client, ``posix`` of a parallel file system; ``smb`` and
    ``hdfs``: as the inventory's ``ingest`` says."""
    through: Identifier | None = None
    """The storage whose mount writes, another one of the same files; none: ``storage`` itself."""
    files: int = Field(default=64, ge=1, le=4096)
    max_bytes: int = Field(default=1048576, ge=0, le=67108864)
    """Size of the largest file; other files have 0 and 1 B, and sizes around blocks."""

    @property
    def writer(self) -> str | None:
        """The storage whose mount writes; None for a protocol without a mount."""
        return (self.through or self.storage) if self.protocol in ("nfs", "posix") else None

    @model_validator(mode="after")
    def _by_mount(self) -> Tree:
        if self.through is not None and self.writer is None:
            raise ValueError(f"through names a mount, {self.protocol} has none")
        return self


DlioKey = Annotated[str, StringConstraints(pattern=r"^(dataset|reader|train|model|framework)(\.[a-z_]+)?$")]
"""A key of a workload's configuration."""
DlioValue = Annotated[Value, BeforeValidator(lambda value: str(value) if type(value) in (int, float) else value)]


class DlioRun(Model):
    """A training of DLIO, the engine of MLPerf Storage, with emulated accelerators on the group's first nodes."""

    workload: Identifier
    """Label of its measurements; no job has the same."""
    config: Name
    """DLIO's configuration, such as ``unet3d_h100``, without ``.yaml``."""
    storage: Identifier
    """Where DLIO makes its data set, once, and reads it."""
    accelerators: int = Field(ge=1, le=1024)
    """Accelerators of all clients together, each a process of MPI."""
    clients: int = Field(default=1, ge=1, le=1024, exclude_if=lambda value: value == 1)
    """Nodes of the group, in its order, that share the accelerators."""
    batch: int = Field(ge=1)
    """Samples of one step of one accelerator."""
    files: int = Field(ge=1)
    """Files of the data set. One that fits into the nodes' memory proves nothing with more than one epoch."""
    epochs: int = Field(default=1, ge=1)
    options: dict[DlioKey, DlioValue] = Field(default_factory=dict)
    """Other keys of the configuration: ``dataset.record_length: 1048576``."""
    limit_s: int = Field(ge=10)
    """Longest duration of one run, seconds; the data set may take ten times as long."""
    runs: int = Field(default=1, ge=1)

    @field_validator("options")
    @classmethod
    def _of_others(cls, options: dict[str, str]) -> dict[str, str]:
        if taken := sorted(_OWN_OPTIONS & set(options)):
            raise ValueError(f"{', '.join(taken)}: the kit sets it; see batch, files and epochs")
        return options

    @model_validator(mode="after")
    def _shared(self) -> DlioRun:
        if self.accelerators % self.clients:
            raise ValueError(f"{self.clients} clients cannot share {self.accelerators} accelerators")
        return self


_OWN_OPTIONS = {
    "dataset.data_folder", "dataset.num_files_train", "dataset.num_files_eval", "dataset.file_prefix",
    "reader.batch_size", "train.epochs",
}  # fmt: skip


class IngestProfile(Model):
    datasets: dict[Identifier, DataSet] = Field(default_factory=dict)
    jobs: dict[Identifier, IngestJob] = Field(default_factory=dict)
    trees: dict[Identifier, Tree] = Field(default_factory=dict)
    dlio: dict[Identifier, DlioRun] = Field(default_factory=dict, exclude_if=lambda value: not value)
    members: Name = "gpu"
    """The group whose nodes read, as in criteria."""

    @model_validator(mode="after")
    def _known(self) -> IngestProfile:
        for name, run in self.dlio.items():
            if run.workload in {job.workload for job in self.jobs.values()}:
                raise ValueError(f"dlio.{name}: workload {run.workload} is that of a job; criteria would meet both")
        for name, job in self.jobs.items():
            if job.dataset not in self.datasets:
                raise ValueError(f"jobs.{name}: no data set {job.dataset!r}; there is {', '.join(self.datasets)}")
            if job.beside is not None and job.beside not in self.jobs:
                raise ValueError(f"jobs.{name}: no job {job.beside!r} beside it; there is {', '.join(self.jobs)}")
            if job.beside is not None and _times(self.jobs[job.beside]) != _times(job):
                raise ValueError(f"jobs.{name}: seconds and warmup_s of {job.beside}, beside it, must be its own")
        return self


def _times(job: IngestJob) -> tuple[int, int]:
    return job.seconds, job.warmup_s
