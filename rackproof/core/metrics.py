"""All metrics that benchmarks produce and criteria may name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rackproof.core.evidence import Scope

DAMAGE = "damage"
"""Condition of measurements of wrong content: its places."""
JOB_METRICS = {
    "read": ("storage.read_bandwidth",),
    "write": ("storage.write_bandwidth",),
    "randread": ("storage.random_read_iops", "storage.random_read_latency"),
}
"""Metrics of a storage job, by its ``rw``."""
OPERATIONS = ("create", "stat", "read", "remove")
"""Values of the label ``op`` of ``storage.metadata_rate``, in the order of a run."""
AT_LEAST = "at_least"
"""Condition of measurements that are lower bounds: why."""
DRIVE = "drive"
"""Condition of measurements of one drive: model, serial number and place."""
GDS = "storage.gds_read_bandwidth"
"""Metrics of GPUs, which may be simulated."""
BESIDE_LOSSES = ("mixed.storage_beside_collectives_loss", "mixed.collectives_beside_storage_loss")
BESIDE_WRONG = "mixed.collectives_wrong_values"
BESIDE_METRICS = (*BESIDE_LOSSES, BESIDE_WRONG)
"""Metrics of one step, which runs fio and a collective at once."""
NOT_YET = "not yet"
"""No benchmark of the kit measures it so far: its criteria are UNMEASURED."""
UNRECORDED = ("ranks",)
"""Labels that no benchmark of the kit records so far."""


@dataclass(frozen=True, slots=True)
class Metric:
    """Benchmarks report in ``unit``; criteria may use any unit of the same dimension."""

    name: str
    unit: str
    higher_is_better: bool
    scopes: tuple[Scope, ...]
    labels: tuple[str, ...]
    """Labels that identify its measurements; a criterion's ``where`` may use only these."""
    benchmark: str
    meaning: str
    not_yet_of: tuple[Scope, ...] = ()
    """Scopes in which the benchmark does not measure it so far."""
    not_yet_with: tuple[str, ...] = ()
    """Labels that the benchmark does not record so far, beside ``UNRECORDED``.

    ``clients`` tells the sums of one job with several numbers of clients apart. Where there is one number of them it is
    a condition instead: a label would make another quantity of it, so that numbers of earlier runs would no longer be
    compared, and evidence would lack the measurement of the plan.
    """
    over_whole: bool = False
    """A percentage that may be more than 100."""
    of_content: bool = False
    """It counts wrong content: no load and no user of a node explains one. Its condition ``DAMAGE`` says where."""

    @property
    def not_yet_by(self) -> tuple[str, ...]:
        """Labels that its benchmark does not record so far; none where no benchmark measures it."""
        unrecorded = UNRECORDED if self.benchmark != NOT_YET else ()
        return tuple(label for label in self.labels if label in (*unrecorded, *self.not_yet_with))

    def measured_today(self, scope: Scope, labels: Iterable[str] = ()) -> bool:
        """Whether a benchmark of the kit produces it in this scope, with these labels."""
        return self.benchmark != NOT_YET and scope not in self.not_yet_of and not set(labels) & set(self.not_yet_by)

    @property
    def zero_is_possible(self) -> bool:
        """Counts, shares and rates can be 0; a latency of 0 was not measured."""
        return self.higher_is_better or self.unit in ("1", "ratio", "percent", "B")


_DRIVE_NODE = (Scope.DRIVE, Scope.NODE)
_GPU, _NIC, _NODE, _PAIR, _RACK = (Scope.GPU,), (Scope.NIC,), (Scope.NODE,), (Scope.PAIR,), (Scope.RACK,)
_NODE_RACK = (Scope.NODE, Scope.RACK)
_STORAGE = ("storage", "block_bytes", "clients")
_LINK = ("rail",)
_COLLECTIVE = ("op", "bytes", "engine", "algorithm", "ranks")
_INGEST = ("workload", "data", "storage", "protocol", "epoch", "gpus", "nodes", "port_gbps", "format", "engine")

_UP, _DOWN = True, False

METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        # storage, every client at once
        Metric("storage.read_bandwidth", "MB/s", _UP, _NODE_RACK, _STORAGE, "storage",
               "sequential read, every client at once; node: that client, rack: the sum"),
        Metric("storage.write_bandwidth", "MB/s", _UP, _NODE_RACK, _STORAGE, "storage",
               "sequential write with a closing fsync, every client at once"),
        Metric("storage.random_read_iops", "1/s", _UP, _NODE_RACK, _STORAGE, "storage",
               "random reads a second, every client at once"),
        Metric("storage.random_read_latency", "us", _DOWN, _NODE, _STORAGE, "storage",
               "mean completion latency of the random reads",
               not_yet_with=("clients",)),
        Metric("storage.random_read_bandwidth", "MB/s", _UP, _NODE_RACK, _STORAGE, "storage",
               "random reads of large blocks, every client at once",
               not_yet_with=("clients",)),
        Metric("storage.shared_file_read_bandwidth", "MB/s", _UP, _NODE_RACK, _STORAGE, "storage",
               "sequential read of one file by every client at once",
               not_yet_with=("clients",)),
        Metric("storage.small_file_read_bandwidth", "MB/s", _UP, _NODE_RACK, _STORAGE, "storage",
               "whole files of about 100 kB, opened, read and closed, every client at once",
               not_yet_with=("clients",)),
        Metric("storage.shard_read_bandwidth", "MB/s", _UP, _NODE_RACK, _STORAGE, "storage",
               "the bytes of those small files in one file of each process, read in parts of a small file's size",
               not_yet_with=("clients",)),
        Metric("storage.metadata_rate", "1/s", _UP, _NODE_RACK, ("storage", "op"), "storage",
               "small files a second that every client at once creates, looks at (stat), opens and reads, or removes"),
        Metric("storage.synced_write_iops", "1/s", _UP, _NODE_RACK, _STORAGE, "storage",
               "writes a second that are each followed by an fsync, every client at once",
               not_yet_with=("clients",)),
        Metric("storage.damaged_places", "1", _DOWN, _NODE_RACK, _STORAGE, "storage",
               "places in files that are read back otherwise than they were written, by their writer and by another"
               " client; node: that reads",
               not_yet_with=("clients",), of_content=True),
        Metric("storage.knee_outstanding", "1", _UP, _RACK, _STORAGE, "storage",
               "requests in flight, all clients together, at which the 99th percentile of latency has doubled",
               not_yet_with=("clients",)),
        Metric("storage.knee_utilisation", "percent", _UP, _RACK, _STORAGE, "storage",
               "load at the knee as a share of the highest rate of the same storage",
               not_yet_with=("clients",)),
        Metric(GDS, "GB/s", _UP, _NODE_RACK, _STORAGE, "storage",
               "reads into the memory of all GPUs of a node with GPUDirect Storage, one client after another",
               not_yet_of=_RACK),
        Metric("storage.connections_speedup", "ratio", _UP, _NODE, _STORAGE, "storage",
               "read bandwidth of one client with several connections over the same with one, NFS over TCP",
               not_yet_with=("clients",)),
        Metric("storage.rdma_over_tcp", "ratio", _UP, _NODE, _STORAGE, "storage",
               "read bandwidth of one client of NFS by RDMA over the same by TCP, same server, export and version",
               not_yet_with=("clients",)),
        Metric("storage.mounts_speedup", "ratio", _UP, _NODE, _STORAGE, "storage",
               "read bandwidth of one client over several mounts, each of another address of the server, over the same"
               " over one",
               not_yet_with=("clients",)),
        Metric("checkpoint.write_bandwidth", "GB/s", _UP, _RACK, ("storage", "model"), "storage",
               "bytes of a checkpoint over the time of its slowest rank, fsync included"),
        Metric("checkpoint.read_bandwidth", "GB/s", _UP, _RACK, ("storage", "model"), "storage",
               "bytes of a checkpoint over the time in which its slowest rank reads its part back"),
        # single drives; node: its slowest drive of the use
        Metric("drive.read_bandwidth", "MB/s", _UP, _DRIVE_NODE, ("use", "block_bytes"), "drives",
               "sequential read of one drive's block device, one drive of a node after another"),
        Metric("drive.osd_write_bandwidth", "MB/s", _UP, _DRIVE_NODE, ("use", "block_bytes"), "osds",
               "writes that the Ceph OSD of one drive makes for its own benchmark, one OSD of the cluster after another"
               "; of several OSDs on a drive the slowest"),
        # links
        Metric("link.rdma_write_bandwidth", "Gb/s", _UP, _PAIR, _LINK, "links",
               "ib_write_bw average between two nodes"),
        Metric("link.rdma_write_bandwidth_gpu", "Gb/s", _UP, (Scope.PAIR, Scope.NIC), _LINK, "links",
               "ib_write_bw average from GPU memory to GPU memory of another node; nic: of the sending adapter"),
        Metric("link.rdma_write_bandwidth_gpu_both", "Gb/s", _UP, (Scope.PAIR, Scope.NIC), _LINK, "links",
               "ib_write_bw -b from and to GPU memory of both nodes: mean of the two directions; nic: of the client"),
        Metric("link.rdma_write_bandwidth_all_rails", "Gb/s", _UP, _NIC, (), "links",
               "ib_write_bw average of one adapter while all adapters of its node send to another node's"),
        Metric("link.rdma_write_bandwidth_gpu_all_rails", "Gb/s", _UP, _NIC, (), "links",
               "the same from GPU memory to GPU memory"),
        Metric("link.rdma_write_bandwidth_both_all_rails", "Gb/s", _UP, _NIC, (), "links",
               "ib_write_bw -b of one adapter while all of its node do: mean of both directions"),
        Metric("link.rdma_write_bandwidth_gpu_both_all_rails", "Gb/s", _UP, _NIC, (), "links",
               "the same from and to GPU memory"),
        Metric("link.rdma_read_latency_all_rails", "us", _DOWN, _NIC, (), "links",
               "ib_read_lat mean latency of one adapter while all adapters of its node read from another node's"),
        Metric("link.rdma_read_latency_gpu", "us", _DOWN, (Scope.PAIR, Scope.NIC), _LINK, "links",
               "ib_read_lat typical latency of reads from GPU memory of another node into the own GPU's; nic: of the"
               " reading adapter"),
        Metric("link.rdma_read_latency_gpu_all_rails", "us", _DOWN, _NIC, (), "links",
               "ib_read_lat mean latency of the same while all adapters of its node read"),
        Metric("link.rdma_write_latency", "us", _DOWN, _PAIR, _LINK, "links",
               "ib_write_lat typical latency between two nodes"),
        Metric("link.rdma_write_bandwidth_both", "Gb/s", _UP, _PAIR, _LINK, "links",
               "ib_write_bw -b between two nodes that write to each other at once: mean of the two directions"),
        Metric("link.rdma_read_latency", "us", _DOWN, _PAIR, _LINK, "links",
               "ib_read_lat typical latency between two nodes"),
        Metric("link.tcp_bandwidth", "Gb/s", _UP, _PAIR, _LINK, "links",
               "iperf3 bits received a second between two nodes"),
        Metric("link.rdma_retries", "1", _DOWN, _PAIR, _LINK, "links",
               "packets of one ib_write_bw test that both RDMA devices counted as lost, sent again or out of order"),
        Metric("link.tcp_retransmitted", "percent", _DOWN, _PAIR, _LINK, "links",
               "segments of one iperf3 test that were sent again"),
        Metric("link.loss", "percent", _DOWN, _PAIR, _LINK, "links",
               "small packets, one every 5 ms, that were not answered"),
        Metric("link.round_trip", "us", _DOWN, _PAIR, _LINK, "links",
               "fastest of the answered small packets: what a busy node cannot explain"),
        Metric("link.tcp_bandwidth_to_storage", "Gb/s", _UP, _RACK, ("storage", "clients"), "links",
               "iperf3 bits received by the storage's ports from all clients together",
               not_yet_with=("clients",)),
        Metric("group.faults", "1", _DOWN, _NODE, ("engine", "op"), "links",
               "faults of a node that group testing names: the node, its rail or leaf switch, a link of it"),
        # collectives; node: the GPUs of one node among themselves
        Metric("collective.busbw", "GB/s", _UP, _NODE_RACK, _COLLECTIVE, "collectives",
               "bus bandwidth as nccl-tests defines it, out of place"),
        Metric("collective.algbw", "GB/s", _UP, _NODE_RACK, _COLLECTIVE, "collectives",
               "algorithm bandwidth as nccl-tests defines it, out of place"),
        Metric("collective.busbw_in_place", "GB/s", _UP, _NODE_RACK, _COLLECTIVE, "collectives",
               "the bus bandwidth of the same operation in place; only nccl-tests measures both"),
        Metric("collective.wrong_values", "1", _DOWN, _NODE_RACK, _COLLECTIVE, "collectives",
               "elements of the result that differ from the expected value, out of place and in place",
               of_content=True),
        Metric("collective.rail_busbw", "GB/s", _UP, _RACK, ("op", "bytes", "engine", "rail"), "collectives",
               "bus bandwidth of one rail with all rails at once and nothing inside the nodes (split by local rank)"),
        Metric("collective.rail_wrong_values", "1", _DOWN, _RACK, ("op", "bytes", "engine", "rail"), "collectives",
               "elements of a rail's result that differ from the expected value", of_content=True),
        # GPUs
        Metric("gpu.host_to_device_bandwidth", "GB/s", _UP, _GPU, (), "gpu",
               "copies from pinned host memory, copy engine"),
        Metric("gpu.device_to_host_bandwidth", "GB/s", _UP, _GPU, (), "gpu",
               "copies to pinned host memory, copy engine"),
        Metric("gpu.peer_read_bandwidth", "GB/s", _UP, _GPU, (), "gpu",
               "slowest read from another GPU of the node, copy engine"),
        Metric("gpu.memory_bandwidth", "GB/s", _UP, _GPU, (), "gpu",
               "reads and writes of the GPU's own memory, a = b + q c (STREAM's triad)"),
        Metric("gpu.matmul_rate", "TFLOPS", _UP, _GPU, ("precision",), "gpu",
               "highest rate of a dense matrix product found over a sweep of shapes"),
        Metric("gpu.wrong_values", "1", _DOWN, _GPU, ("op", "precision"), "gpu",
               "elements of the fastest product, or of the triad, that differ from the reference or between runs",
               of_content=True),
        Metric("gpu.diagnosed_faults", "1", _DOWN, _GPU, ("test",), "gpu",
               "results of one test of dcgmi diag on this GPU that are Fail or Warn; a skipped test gives no number"),
        Metric("gpu.utilisation", "percent", _UP, _GPU, ("workload",), "ingest",
               "mean of the driver's utilisation over the timed part of a training run"),
        # training ingest
        Metric("ingest.samples_rate", "1/s", _UP, _NODE_RACK, _INGEST, "ingest",
               "samples a second that reach the accelerators, real or emulated"),
        Metric("ingest.storage_bandwidth", "MB/s", _UP, _NODE_RACK, _INGEST, "ingest",
               "bytes a second that come from storage, by the clients' own counters"),
        Metric("ingest.accelerator_utilisation", "percent", _UP, _RACK, _INGEST, "ingest",
               "compute time over total time as MLPerf Storage defines it, first step left out"),
        Metric("ingest.cpu_time_per_sample", "ms", _DOWN, _NODE, _INGEST, "ingest",
               "time of one core for each sample"),
        Metric("ingest.storage_bytes_per_sample", "B", _DOWN, _RACK, _INGEST, "ingest",
               "bytes from storage for each sample"),
        Metric("ingest.cpu_utilisation", "percent", _DOWN, _NODE, _INGEST, "ingest",
               "highest one-second utilisation of a node's processors"),
        Metric("ingest.placement_spread", "ratio", _DOWN, _RACK, ("workload",), "ingest",
               "(max - min) / median of samples a second with the same GPUs on one, two and four nodes"),
        Metric("ingest.cache_settling_ratio", "ratio", _UP, _NODE, ("workload",), "ingest",
               "time until a data set smaller than memory causes no more reads, over what its size and rate predict"),
        Metric("ingest.cache_hits", "percent", _UP, _NODE, _INGEST, "ingest",
               "bytes of an epoch that came from the node's own caches",
               not_yet_with=("port_gbps",)),
        Metric("ingest.local_cache_hits", "percent", _UP, _NODE, _INGEST, "ingest",
               "reads of an epoch that a cache on a local drive (FS-Cache) answered, of those that the page cache did"
               " not, by the kernel's counters; at most the share of bytes that did not come from the storage",
               not_yet_with=("port_gbps",)),
        Metric("ingest.dataset_over_caches", "ratio", _UP, _RACK, ("workload",), "ingest",
               "bytes of the data set over memory of all clients and cache of the storage"),
        Metric("ingest.bytes_read_over_dataset", "ratio", _DOWN, _RACK, ("workload",), "ingest",
               "bytes read in the run over bytes of the data set; at most 1 means that no byte was read twice"),
        Metric("ingest.dataset_bytes_per_sample", "B", _DOWN, _RACK, ("workload",), "ingest",
               "bytes of all files of the data set over its number of samples"),
        Metric("ingest.differing_files", "1", _DOWN, _RACK, ("storage", "protocol"), "ingest",
               "files written through a protocol that the clients' mounts show with another content or not at all",
               of_content=True),
        Metric("inference.samples_rate", "1/s", _UP, _NODE_RACK, _INGEST, "ingest",
               "samples a second of forward passes"),
        Metric("inference.latency_p99", "ms", _DOWN, _RACK, ("workload", "beside"), "ingest",
               "99th percentile of a request's latency, alone or beside training"),
        # ways of running
        Metric("join.bytes_copied", "B", _DOWN, _NODE, ("storage",), "storage",
               "bytes that a node gets on its own drives between its mount and its first read of the storage"),
        Metric("container.read_bandwidth", "MB/s", _UP, _NODE, _STORAGE, "containers",
               "sequential read of the shared storage from inside an unprivileged container",
               not_yet_with=("clients",)),
        Metric("container.host_read_bandwidth", "MB/s", _UP, _NODE, _STORAGE, "containers",
               "the same read by the same user on the node, immediately before",
               not_yet_with=("clients",)),
        Metric("container.read_over_host", "ratio", _UP, _NODE, _STORAGE, "containers",
               "container.read_bandwidth over container.host_read_bandwidth of the same pair of runs",
               not_yet_with=("clients",)),
        Metric("guest.collective_busbw", "GB/s", _UP, _NODE, _COLLECTIVE, "collectives",
               "bus bandwidth between all GPUs of a node inside the virtual machine that was given them"),
        Metric("guest.host_collective_busbw", "GB/s", _UP, _NODE, _COLLECTIVE, "collectives",
               "the same on the node, immediately before"),
        Metric("guest.collective_wrong_values", "1", _DOWN, _NODE, _COLLECTIVE, "collectives",
               "elements of the result in the virtual machine that differ from the expected value", of_content=True),
        Metric("guest.host_collective_wrong_values", "1", _DOWN, _NODE, _COLLECTIVE, "collectives",
               "the same on the node, immediately before", of_content=True),
        Metric("mixed.accelerator_utilisation_loss", "percent", _DOWN, _RACK, ("workload",), "ingest",
               "points of accelerator utilisation that training loses while inference runs beside it"),
        Metric("mixed.inference_latency_loss", "percent", _DOWN, _RACK, ("workload",), "ingest",
               "growth of the 99th percentile of a request's latency while training runs beside inference",
               over_whole=True),
        Metric("mixed.storage_beside_collectives_loss", "percent", _DOWN, _RACK, ("storage", "op", "bytes"), "storage",
               "sequential reads of all clients that are lost while a collective runs on the same nodes"),
        Metric("mixed.collectives_beside_storage_loss", "percent", _DOWN, _RACK, ("storage", "op", "bytes"), "storage",
               "bus bandwidth of a collective that is lost while the same nodes read from the storage"),
        Metric(BESIDE_WRONG, "1", _DOWN, _RACK, ("storage", "op", "bytes"), "storage",
               "elements of the collective's result, alone and beside reads, that differ from the expected value",
               of_content=True),
        Metric("sizing.throughput_over_predicted", "ratio", _UP, _RACK, ("workload", "port_gbps"), "ingest",
               "measured samples a second over what the sizing model predicts from the measured stages"),
        Metric("sizing.bottleneck_agreement", "ratio", _UP, _RACK, ("workload", "port_gbps"), "ingest",
               "share of the configurations tried in which the stage that the model names is the one that binds"),
    )
}  # fmt: skip
OF_CONTENT = frozenset(name for name, metric in METRICS.items() if metric.of_content)
"""Metrics that count wrong content."""


def benchmark_of(metric: str) -> str:
    """Benchmark that produces the metric; empty for a metric that this kit does not know."""
    return METRICS[metric].benchmark if metric in METRICS else ""
