"""Sizes and durations of the benchmarks of a run."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, field_validator, model_validator

from rackproof.core.architecture.base import Identifier, Model
from rackproof.core.architecture.ingest import IngestProfile
from rackproof.core.collective import check_operations
from rackproof.core.texts import Name, Prose

Workload = Literal["read", "write", "randread"]

Operation = Literal[
    "all_gather", "all_reduce", "alltoall", "broadcast", "gather", "reduce", "reduce_scatter", "scatter", "sendrecv"
]  # fmt: skip
"""Named as nccl-tests names its programs without ``_perf``."""


class FioJob(Model):
    """One fio workload; sizes are integers of bytes because fio's suffixes are ambiguous."""

    rw: Workload
    block_bytes: int = Field(gt=0)
    iodepth: int = Field(default=8, ge=1)
    numjobs: int = Field(default=1, ge=1)
    file_bytes: int = Field(gt=0)
    """Size of the file of each job of a client."""
    runtime_s: int = Field(ge=1)
    ramp_s: int = Field(default=0, ge=0)
    runs: int = Field(default=1, ge=1)
    once: bool = Field(default=False, exclude_if=lambda value: not value)
    """The run ends when its files are read, or after ``runtime_s``, so that no byte is read twice: for the gate
    ``dataset_size`` where files of five times the clients' memory do not fit."""

    @model_validator(mode="after")
    def _reads_once(self) -> FioJob:
        if self.once and (type(self) is not FioJob or self.rw == "write" or self.runs > 1 or self.ramp_s):
            raise ValueError("once goes with one run of reads without a ramp: another run reads the same bytes again")
        if self.once and self.file_bytes % self.block_bytes:
            raise ValueError("file_bytes must be a multiple of block_bytes where each byte is read once")
        return self


class ConnectionsProfile(FioJob):
    """Sequential reads of each client by itself, over one connection of NFS and over several."""

    rw: Literal["read"] = "read"
    count: int = Field(ge=2, le=16)
    """Number of several connections (nconnect)."""

    @model_validator(mode="after")
    def _keeps_busy(self) -> ConnectionsProfile:
        if self.iodepth * self.numjobs < self.count:
            raise ValueError("iodepth × numjobs must be at least count: other connections would have nothing to do")
        return self


class TransportsProfile(ConnectionsProfile):
    """Sequential reads of each client by itself, over NFS by TCP and by RDMA."""

    count: int = Field(default=1, ge=1, le=16)
    """Connections by TCP (nconnect); by RDMA there is one."""


class MountsProfile(FioJob):
    """Sequential reads of each client by itself, over one mount of NFS and over several, each of another address of the
    server."""

    rw: Literal["read"] = "read"
    count: int = Field(ge=2, le=64)
    """Number of several mounts: of the first so many addresses."""

    @model_validator(mode="after")
    def _spreads(self) -> MountsProfile:
        if self.numjobs % self.count:
            raise ValueError("numjobs must be a multiple of count: each mount gets as many processes as every other")
        return self


class BesideProfile(FioJob):
    """Sequential reads of all clients beside a collective of the same nodes, and each alone.

    The engines are those that tell when each call began: nccl-tests does not.
    """

    rw: Literal["read"] = "read"
    engine: Literal["mpi", "torch"]
    """MPI runs over the first rail, torch over what NCCL chooses, or over TCP on nodes without GPUs."""
    op: Operation = "all_reduce"
    message_bytes: int = Field(gt=0)
    """The output has the time of each call: one should take a millisecond or more."""
    warmup: int = Field(default=1, ge=0)
    ranks_per_node: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _has_operation(self) -> BesideProfile:
        check_operations(self.engine, {"op": (self.op,)})
        return self


class GdsProfile(Model):
    """Reads of gdsio into the memory of every GPU of a client."""

    block_bytes: int = Field(default=1048576, gt=0, multiple_of=4096)
    threads: int = Field(default=8, ge=1)
    """Threads of each GPU, each with its own file."""
    file_bytes: int = Field(gt=0, multiple_of=4096)
    runtime_s: int = Field(ge=5)
    runs: int = Field(default=1, ge=1)
    storages: tuple[Identifier, ...] | None = None
    """A part of the storages that the profile measures; None: all of them."""

    def reads(self, storage: str) -> bool:
        """Whether GPUs read this storage."""
        return self.storages is None or storage in self.storages


class KneeProfile(Model):
    """Random reads with more and more requests in flight, then at rising rates; each load is one run of fio."""

    block_bytes: int = Field(gt=0)
    file_bytes: int = Field(gt=0)
    """Size of the file of each process of a client."""
    processes: int = Field(default=1, ge=1)
    """Most processes of a client; below that each has one request in flight."""
    most_outstanding: int = Field(default=1024, ge=16)
    """Largest number of requests in flight of one client."""
    runtime_s: int = Field(ge=1)
    """Duration of each load; at least 500 requests must end in it. Runs at low rates last up to ten times as long."""
    ramp_s: int = Field(default=0, ge=0)
    runs: int = Field(default=1, ge=1)
    """Number of searches."""

    @property
    def job(self) -> FioJob:
        """The smallest load."""
        return FioJob(
            rw="randread", block_bytes=self.block_bytes, iodepth=1, numjobs=self.processes, file_bytes=self.file_bytes,
            runtime_s=self.runtime_s, ramp_s=self.ramp_s,
        )  # fmt: skip


class WholeFile(Model):
    """One file per client that is written and read once, from its first byte to its last."""

    block_bytes: int = Field(gt=0, multiple_of=4096)
    iodepth: int = Field(default=8, ge=1)
    file_bytes: int = Field(gt=0)

    @model_validator(mode="after")
    def _of_blocks(self) -> WholeFile:
        if self.file_bytes % self.block_bytes:
            raise ValueError("file_bytes must be a multiple of block_bytes: the rest would not be read")
        return self

    @property
    def job(self) -> FioJob:
        """A job that uses a file of this size."""
        return FioJob(
            rw="write", block_bytes=self.block_bytes, iodepth=self.iodepth, file_bytes=self.file_bytes, runtime_s=1
        )


class CheckpointProfile(WholeFile):
    """Every rank, a process of a client, writes its part, one file, and reads it back after caches were dropped."""

    model: Name
    """Name of the model that the checkpoint saves; a label of the numbers."""
    ranks: int = Field(default=1, ge=1)
    """Ranks of each client."""
    runs: int = Field(default=1, ge=1)

    @property
    def job(self) -> FioJob:
        return super().job.model_copy(update={"numjobs": self.ranks})


class FilesProfile(Model):
    """Many small files of every process of a client, each opened once in a step."""

    file_bytes: int = Field(ge=8)
    files: int = Field(ge=1)
    """Files of each process."""
    processes: int = Field(default=1, ge=1)
    """Processes of each client."""
    start_s: int = Field(default=300, ge=1)
    """Longest time in seconds until the processes of all clients are ready; then all start together. Later the run
    fails."""
    runs: int = Field(default=1, ge=1)

    @property
    def bytes(self) -> int:
        """Bytes of one client, in blocks of 4 KiB."""
        return -(-self.file_bytes // 4096) * 4096 * self.files * self.processes


class JoinProfile(Model):
    """Every client mounts a storage again and reads from it; counted is what its own drives get until then."""

    least_bytes: int = Field(default=1048576, ge=65536, le=1073741824)
    """Fewer bytes on a node's drives count as writes of other programs: logs, journals."""
    quiet_s: int = Field(default=5, ge=1)
    """Seconds in which other programs' writes are counted."""


class StorageProfile(Model):
    """Optional keys that are not set are left out of a run's parameters, so that earlier runs keep their digests."""

    jobs: dict[Workload, FioJob]
    storages: tuple[Identifier, ...] | None = None
    """Storages to measure. None: all storages of the architecture."""
    knee: KneeProfile | None = Field(default=None, exclude_if=lambda value: value is None)
    random_reads: tuple[FioJob, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Random reads of larger blocks, for ``storage.random_read_bandwidth``."""
    shared_file: FioJob | None = Field(default=None, exclude_if=lambda value: value is None)
    """Sequential read of the first client's file by every client, for ``storage.shared_file_read_bandwidth``."""
    synced_writes: FioJob | None = Field(default=None, exclude_if=lambda value: value is None)
    """Writes that are each followed by an fsync, for ``storage.synced_write_iops``."""
    checkpoint: CheckpointProfile | None = Field(default=None, exclude_if=lambda value: value is None)
    """For ``checkpoint.write_bandwidth`` and ``checkpoint.read_bandwidth``."""
    integrity: WholeFile | None = Field(default=None, exclude_if=lambda value: value is None)
    """Written with checksums, read back by its writer and by another client, for ``storage.damaged_places``."""
    small_files: FilesProfile | None = Field(default=None, exclude_if=lambda value: value is None)
    """For ``storage.small_file_read_bandwidth`` and, the same bytes in one file of each process,
    ``storage.shard_read_bandwidth``."""
    metadata: FilesProfile | None = Field(default=None, exclude_if=lambda value: value is None)
    """Created, looked at, read and removed, for ``storage.metadata_rate``."""
    connections: ConnectionsProfile | None = Field(default=None, exclude_if=lambda value: value is None)
    """For ``storage.connections_speedup`` of NFS over TCP."""
    transports: TransportsProfile | None = Field(default=None, exclude_if=lambda value: value is None)
    """For ``storage.rdma_over_tcp`` of NFS over RDMA."""
    mounts: MountsProfile | None = Field(default=None, exclude_if=lambda value: value is None)
    """For ``storage.mounts_speedup`` of NFS whose server has several addresses."""
    gds: GdsProfile | None = Field(default=None, exclude_if=lambda value: value is None)
    """For ``storage.gds_read_bandwidth``, where the architecture's nodes have GPUDirect Storage."""
    beside_collectives: BesideProfile | None = Field(default=None, exclude_if=lambda value: value is None)
    """For ``mixed.storage_beside_collectives_loss`` and ``mixed.collectives_beside_storage_loss``, of two clients or
    more."""
    join: JoinProfile | None = Field(default=None, exclude_if=lambda value: value is None)
    """For ``join.bytes_copied`` of NFS, CephFS, Lustre and WEKA."""
    scale_out: tuple[Workload, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Jobs that run on 1, 2, 4 … of the clients as well; the rack's numbers then have the label ``clients``."""
    left_out: dict[Identifier, dict[Identifier, Prose]] = Field(
        default_factory=dict, exclude_if=lambda value: not value
    )
    """Why metrics are not measured of some storages, by metric and storage; for readers."""

    @field_validator("random_reads")
    @classmethod
    def _random(cls, jobs: tuple[FioJob, ...]) -> tuple[FioJob, ...]:
        if any(job.rw != "randread" for job in jobs):
            raise ValueError("rw of random reads must be randread")
        if len({job.block_bytes for job in jobs}) < len(jobs):
            raise ValueError("one job for each block_bytes")
        return jobs

    @field_validator("shared_file")
    @classmethod
    def _one_file(cls, job: FioJob | None) -> FioJob | None:
        if job is not None and (job.rw, job.numjobs, job.once) != ("read", 1, False):
            raise ValueError("one file is shared: rw must be read, numjobs 1, and each client reads it, so once false")
        return job

    @field_validator("synced_writes")
    @classmethod
    def _synced(cls, job: FioJob | None) -> FioJob | None:
        if job is not None and job.rw != "write":
            raise ValueError("rw of synced writes must be write")
        return job

    @model_validator(mode="after")
    def _scaled(self) -> StorageProfile:
        if unknown := [rw for rw in self.scale_out if rw not in self.jobs]:
            raise ValueError(f"scale_out names {', '.join(unknown)}, which is not among jobs")
        return self

    @property
    def every_job(self) -> tuple[FioJob, ...]:
        """Jobs that use the same files."""
        further = [
            self.shared_file,
            self.synced_writes,
            self.beside_collectives,
            *(part.job for part in (self.knee, self.checkpoint, self.integrity) if part is not None),
        ]
        return (*self.jobs.values(), *self.random_reads, *(job for job in further if job is not None))

    @property
    def tree_bytes(self) -> int:
        """Bytes of one client's small files; those of one step are removed before the next."""
        return max((part.bytes for part in (self.small_files, self.metadata) if part is not None), default=0)


class GroupTests(Model):
    """Group testing instead of all pairs: sets of nodes run one all-to-all each, in parallel."""

    engine: Literal["nccl-tests", "torch", "mpi"]
    bytes: int = Field(gt=0)
    """Bytes that every process sends."""
    iterations: int = Field(ge=1)
    warmup: int = Field(ge=0)
    ranks_per_node: int = Field(default=1, ge=1)
    least_gb_per_s: float = Field(gt=0, le=100_000)
    """Least rate in GB/s at which every node sends to others on each rail; a slower set fails."""
    from_nodes: int = Field(default=2, ge=2, exclude_if=lambda value: value == 2)
    """Smaller racks are measured in all pairs, and have no ``group.faults``."""


class LinkProfile(Model):
    rdma_block_bytes: int = 65536
    rdma_duration_s: int = Field(ge=1)
    """Duration of a test of one adapter; one of all adapters of a node at once takes twice as long."""
    latency_iterations: int = Field(ge=5)
    tcp_duration_s: int = Field(ge=1)
    tcp_streams: int = Field(default=1, ge=1)
    runs: int = Field(default=1, ge=1)
    members: Name = "gpu"
    """The group between whose nodes links are measured, as in criteria."""
    to_storage: tuple[Identifier, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Storages to whose servers all clients send at once, for ``link.tcp_bandwidth_to_storage``."""
    groups: GroupTests | None = Field(default=None, exclude_if=lambda value: value is None)
    """None: all pairs are measured. Otherwise, on racks that are large enough for it, every node with one other; group
    testing covers the other pairs."""
    every_pair: bool = Field(default=True, exclude_if=lambda value: value)
    """False: every node is measured with one other, and the other pairs are not covered."""

    def grouped(self, nodes: int) -> GroupTests | None:
        """Group testing, where so many nodes are enough for it."""
        return self.groups if self.groups is not None and nodes >= self.groups.from_nodes else None

    def all_pairs(self, nodes: int) -> bool:
        """Whether all pairs of so many nodes are measured."""
        return self.every_pair and self.grouped(nodes) is None


Algorithm = Literal["Ring", "Tree", "NVLS"]
"""Named as ``NCCL_ALGO`` names them."""


class PartOfSweep(Model):
    """Operations and message sizes of a further part of the collectives: sizes of the profile's own sweep."""

    ops: tuple[Operation, ...] = ("all_reduce",)
    min_bytes: int = Field(gt=0)
    max_bytes: int = Field(gt=0)


class NodeCollectives(PartOfSweep):
    """Between the GPUs of one node, all nodes at once."""

    algorithms: tuple[Algorithm, ...] = ()
    """One run each; empty: one run with the algorithms that NCCL chooses."""


class RailCollectives(PartOfSweep):
    """On each rail by itself, all rails at once: GPU k of every node with GPU k of the others."""


class GuestCollectives(PartOfSweep):
    """Between the GPUs of one node, on it and then in the virtual machine that gets them: every GPU is a rank."""


class CollectiveProfile(Model):
    ADDED: ClassVar = frozenset({"runs", "algorithms", "node", "rails", "guest"})
    """Keys that older runs do not have: at their defaults they are no part of a step's digest."""

    engine: Literal["nccl-tests", "mpi", "torch"]
    ops: tuple[Operation, ...]
    min_bytes: int = Field(gt=0)
    max_bytes: int = Field(gt=0)
    factor: int = Field(default=2, ge=2)
    iterations: int = Field(ge=1)
    warmup: int = Field(ge=0)
    ranks_per_node: int = Field(default=1, ge=1)
    members: Name = "gpu"
    """The group on whose nodes they run, as in criteria."""
    runs: int = Field(default=1, ge=1)
    """Launches of every operation: one sample each."""
    algorithms: tuple[Algorithm, ...] = ()
    """Over all nodes, one run each; empty: one run with the algorithms that NCCL chooses."""
    node: NodeCollectives | None = None
    rails: RailCollectives | None = None
    guest: GuestCollectives | None = None
    """For ``guest.collective_busbw`` and ``guest.host_collective_busbw``, and the wrong values of the same runs."""

    @model_validator(mode="after")
    def _on_gpus(self) -> CollectiveProfile:
        if self.guest is not None and self.engine == "mpi":
            raise ValueError("guest needs an engine that runs on GPUs: nccl-tests or torch")
        return self

    @model_validator(mode="after")
    def _has_operations(self) -> CollectiveProfile:
        parts = {"ops": self, "node.ops": self.node, "rails.ops": self.rails, "guest.ops": self.guest}
        check_operations(self.engine, {key: part.ops for key, part in parts.items() if part})
        return self


class ContainerProfile(Model):
    """The same job on the node and inside an unprivileged container."""

    job: FioJob
    storages: tuple[Identifier, ...] | None = None
    """None: all of ``containers.bridge``."""

    @field_validator("job")
    @classmethod
    def _reads(cls, job: FioJob) -> FioJob:
        if job.rw != "read" or job.once:
            raise ValueError("the comparison is of sequential reads of the same bytes: rw must be read, and once false")
        return job


DiagnosticTest = Literal[
    "diagnostic", "memory", "memory_bandwidth", "memtest", "pcie", "pulse_test", "targeted_power", "targeted_stress"
]
"""Tests that load every GPU. Deployment tests are those of ``gpu.dcgm_level``."""


class GpuProfile(Model):
    """Copies, memory and matrix products of every GPU."""

    copy_runs: int = Field(ge=1)
    """Runs of nvbandwidth; each gives one sample."""
    copy_samples: int = Field(default=3, ge=1)
    """Measurements of each copy in a run, whose median it prints (``-i``)."""
    runs: int = Field(ge=1)
    """Repetitions of the memory's triad and of the fastest matrix product; each gives one sample."""
    seconds: int = Field(ge=1)
    """Duration of one repetition."""
    triad_bytes: int = Field(default=2147483648, ge=536870912)
    """Size of each of the three arrays: four times the L2 cache of any GPU, or more."""
    precisions: tuple[Literal["bf16", "fp16", "tf32", "fp64"], ...] = Field(default=("bf16",), min_length=1)
    sides: tuple[Annotated[int, Field(ge=256, le=32768)], ...] = Field(
        default=(2048, 4096, 6144, 8192, 13312, 16384), min_length=1
    )
    """Sides of the matrices: every combination of rows, columns and inner side is tried."""
    diagnoses: dict[DiagnosticTest, Annotated[int, Field(ge=1)]] = Field(
        default_factory=dict, exclude_if=lambda value: not value
    )
    """Tests of ``dcgmi diag -r``, in one run, with the seconds that each takes."""
    members: Name = "gpu"
    """The group whose GPUs are measured, as in criteria."""


class DriveProfile(Model):
    """Sequential reads of every declared drive's block device; nothing is written."""

    uses: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    """Uses of ``expect.drives``; None: all of them."""
    block_bytes: int = Field(default=1048576, gt=0, multiple_of=4096)
    iodepth: int = Field(default=32, ge=1)
    runtime_s: int = Field(ge=1)
    """Duration for one drive."""
    runs: int = Field(default=1, ge=1)


LARGEST_BLOCK: Final = 64 << 20
"""``osd_bench_max_block_size``, Ceph's default, bytes."""
SMALL_BLOCK: Final = 1 << 20
"""Below this size Ceph limits the number of writes, from it on the bytes."""
MOST_WRITES: Final = 100 * 30
"""``osd_bench_small_size_max_iops`` × ``osd_bench_duration``."""
MOST_BYTES: Final = (100 << 20) * 30
"""``osd_bench_large_size_max_throughput`` × ``osd_bench_duration``."""


class OsdProfile(Model):
    """Writes of every Ceph OSD for its own benchmark (``ceph tell osd.N bench``), within Ceph's default limits."""

    use: Name = "ceph"
    """Use of ``expect.drives`` of the drives that carry OSDs."""
    bytes: int = Field(default=1073741824, gt=0)
    """Bytes that one OSD writes in one run, and removes afterwards."""
    block_bytes: int = Field(default=4194304, ge=4096, le=LARGEST_BLOCK, multiple_of=4096)
    runs: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _within_limits(self) -> OsdProfile:
        most = MOST_BYTES if self.block_bytes >= SMALL_BLOCK else MOST_WRITES * self.block_bytes
        if self.bytes > most:
            raise ValueError(f"bytes must be at most {most} with blocks of {self.block_bytes} B: OSDs refuse more")
        if self.bytes % self.block_bytes:
            raise ValueError("bytes must be a multiple of block_bytes")
        return self


class Profile(Model):
    """Benchmark sizes: ``lab`` is small, ``full`` is an acceptance test; see also ``smoke``."""

    storage: StorageProfile | None = None
    links: LinkProfile | None = None
    collectives: CollectiveProfile | None = None
    containers: ContainerProfile | None = None
    ingest: IngestProfile | None = None
    gpu: GpuProfile | None = None
    drives: DriveProfile | None = None
    """For ``drive.read_bandwidth``."""
    osds: OsdProfile | None = None
    """For ``drive.osd_write_bandwidth``."""
