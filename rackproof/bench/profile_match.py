"""Compare the commands of a benchmark with the sizes in the run's profile. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from rackproof.bench.drives.osd_reader import WRITE
from rackproof.bench.gpu.reader import DIAGNOSED, TESTS, WHAT
from rackproof.bench.ingest.dlio import PROFILED
from rackproof.bench.ingest.real import METRIC as UTILISATION
from rackproof.bench.ingest.trees import METRIC as TREES
from rackproof.bench.links.figures import (
    GPU_BLOCK_BYTES,
    GPU_READ_LATENCY,
    GPU_READ_LATENCY_ALL_RAILS,
    OF_GPU,
    PROGRAMS,
    READ_LATENCY_ALL_RAILS,
    duration_of,
)
from rackproof.bench.links.reader import PINGS
from rackproof.bench.reading import Reading
from rackproof.bench.storage.checkpoint_reader import CHECKPOINT
from rackproof.bench.storage.connections_reader import MOUNTS_GAIN, RDMA_GAIN, SPEEDUP
from rackproof.bench.storage.fio_launch import DAMAGE, SHARED, SYNCED
from rackproof.bench.storage.join_reader import COPIED
from rackproof.bench.storage.knee_reader import KNEE
from rackproof.bench.storage.small_files_reader import METADATA, OF_FILES
from rackproof.core.architecture import (
    DriveProfile,
    FilesProfile,
    FioJob,
    GdsProfile,
    GpuProfile,
    IngestJob,
    JoinProfile,
    KneeProfile,
    LinkProfile,
    OsdProfile,
    Profile,
    Tree,
    WholeFile,
)
from rackproof.core.evidence import Measurement
from rackproof.core.metrics import BESIDE_METRICS, BESIDE_WRONG, GDS
from rackproof.parse.gpu_program import TRIAD


def profile_mismatch(measurement: Measurement, reading: Reading, profile: Profile) -> str | None:
    """The first parameter of the run that differs from the profile, with both values; None if none differs.

    A ``full`` run with the sizes of the profile ``lab`` would certify what was not measured.
    """
    part = measurement.metric.partition(".")[0]
    expected: dict[str, Any] = {}
    actual: dict[str, Any] = dict(reading.conditions)
    if measurement.metric == BESIDE_WRONG and any(reading.samples):
        return None  # wrong values of any run count
    if measurement.metric in BESIDE_METRICS:
        beside = profile.storage.beside_collectives if profile.storage else None
        return _difference(_of_job(beside), actual["workload"])
    if part in ("storage", "checkpoint", "join") and profile.storage is not None:
        workload = actual["workload"]
        if measurement.metric in KNEE:
            return _difference(_of_knee(profile.storage.knee), workload)
        if measurement.metric == DAMAGE:
            return _difference(_of_file(profile.storage.integrity), workload)
        if measurement.metric in CHECKPOINT:
            return _difference(_of_file(profile.storage.checkpoint), workload)
        if measurement.metric == COPIED:
            return _difference(_of_file(profile.storage.join), workload)
        if measurement.metric == GDS:
            return _difference(_of_file(profile.storage.gds), workload)
        if measurement.metric in OF_FILES:
            metadata = measurement.metric == METADATA
            return _difference(
                _of_file(profile.storage.metadata if metadata else profile.storage.small_files), workload
            )
        job = profile.storage.jobs.get(workload.get("rw"))
        if measurement.metric == "storage.random_read_bandwidth":
            block = measurement.labels["block_bytes"]
            job = next((job for job in profile.storage.random_reads if str(job.block_bytes) == block), None)
        if measurement.metric == SHARED:
            job = profile.storage.shared_file
        if measurement.metric == SPEEDUP:
            job = profile.storage.connections
        if measurement.metric == RDMA_GAIN:
            job = profile.storage.transports
        if measurement.metric == MOUNTS_GAIN:
            job = profile.storage.mounts
        if measurement.metric == SYNCED:
            job = profile.storage.synced_writes
        expected, actual = _of_job(job), workload
    elif part == "container" and profile.containers is not None:
        expected, actual = _of_job(profile.containers.job), actual["workload"]
    elif part == "drive":
        sizes_of_drive = profile.osds if measurement.metric == WRITE else profile.drives
        return _difference(_of_drive(sizes_of_drive), actual["workload"])
    elif part == "link" and profile.links is not None:
        expected, actual = _of_link(measurement.metric, profile.links), _options(str(actual["command"]))
    elif part == "group" and profile.links is not None:
        groups = profile.links.groups
        other = {"engine", "from_nodes"}
        expected = {"groups": "none"} if groups is None else groups.model_dump(mode="json", exclude=other)
        if groups is not None and measurement.labels.get("engine") != groups.engine:
            return f"expected engine {groups.engine}, actual {measurement.labels.get('engine')}"
    elif part in ("collective", "guest") and profile.collectives is not None:
        sizes = profile.collectives
        expected = {"iterations": sizes.iterations}
        if part == "collective":
            expected["ranks"] = sizes.ranks_per_node * len(measurement.members)
        if measurement.labels.get("engine") != sizes.engine:
            return f"expected engine {sizes.engine}, actual {measurement.labels.get('engine')}"
        if not sizes.min_bytes <= int(measurement.labels["bytes"]) <= sizes.max_bytes:
            return f"{measurement.labels['bytes']} B is no size of the profile"
    elif part == "gpu" and measurement.metric != UTILISATION and profile.gpu is not None:
        expected = _of_gpu(measurement.metric, measurement.labels, profile.gpu)
    elif measurement.metric == TREES and profile.ingest is not None:
        tree = profile.ingest.trees.get(measurement.step.split("/")[2])
        return _difference(_of_tree(tree), actual["tree"])
    elif "dlio" in actual and profile.ingest is not None:
        run = profile.ingest.dlio.get(measurement.step.split("/")[2])
        expected = {"dlio": "none"} if run is None else run.model_dump(mode="json", include=set(PROFILED))
        return _difference(expected, actual["dlio"])
    elif part in ("ingest", "inference", "mixed", "sizing", "gpu") and profile.ingest is not None and "job" in actual:
        name = measurement.step.split("/")[2]
        expected, actual = _of_ingest(measurement, profile.ingest.jobs.get(name)), actual["job"]
    return _difference(expected, actual)


def _difference(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> str | None:
    for name, value in expected.items():
        if str(actual.get(name)) != str(value):
            return f"{name}: the profile asks for {value}, the run had {actual.get(name)}"
    return None


def _of_knee(sizes: KneeProfile | None) -> dict[str, Any]:
    return {"knee": "none"} if sizes is None else sizes.model_dump(mode="json", exclude={"runs"})


def _of_file(sizes: WholeFile | FilesProfile | GdsProfile | JoinProfile | None) -> dict[str, Any]:
    return (
        {"files": "none"} if sizes is None else sizes.model_dump(mode="json", exclude={"runs", "start_s", "storages"})
    )


def _of_drive(sizes: DriveProfile | OsdProfile | None) -> dict[str, Any]:
    if sizes is None:
        return {"drives": "none"}
    return sizes.model_dump(mode="json", exclude={"runs", "use", "uses"})


def _of_job(job: FioJob | None) -> dict[str, Any]:
    """The job without its number of runs, which a lost client reduces; the judge rejects too few samples."""
    return {"job": "none"} if job is None else {"once": None} | job.model_dump(mode="json", exclude={"runs"})


def _of_ingest(measurement: Measurement, job: IngestJob | None) -> dict[str, Any]:
    """The job without fields that depend on the number of clients."""
    if job is None:
        return {"job": "none"}
    sizes: dict[str, Any] = {
        "batch": job.batch, "crop": job.crop, "seconds": 0 if job.epochs else job.seconds, "warmup_s": job.warmup_s,
        "step_s": job.step_s, "slots": job.slots, "arrivals": job.arrivals_per_s,
    }  # fmt: skip
    sizes |= {"real": job.real} if job.real else {}
    sizes |= {"only_local_cache": True} if job.only_local_cache and measurement.labels.get("epoch", "1") != "1" else {}
    divided = measurement.metric == "ingest.placement_spread"
    return sizes if divided else sizes | {"accelerators": job.accelerators, "workers": job.workers}


def _of_tree(tree: Tree | None) -> dict[str, Any]:
    if tree is None:
        return {"files": "none"}
    return tree.model_dump(mode="json", include={"files", "max_bytes"}) | {"through": tree.writer}


def _of_link(metric: str, sizes: LinkProfile) -> dict[str, Any]:
    tools: dict[str, dict[str, Any]] = {
        "ib_write_bw": {"-s": sizes.rdma_block_bytes, "-D": duration_of(metric, sizes)},
        "ib_write_lat": {"-n": sizes.latency_iterations},
        "ib_read_lat": {"-n": sizes.latency_iterations},
        "iperf3": {"-t": sizes.tcp_duration_s, "-P": sizes.tcp_streams},
    }
    if metric in (READ_LATENCY_ALL_RAILS, GPU_READ_LATENCY_ALL_RAILS):
        return {"-D": duration_of(metric, sizes)}
    if metric in OF_GPU and metric != GPU_READ_LATENCY:
        return {"-s": GPU_BLOCK_BYTES, "-D": duration_of(metric, sizes)}
    return tools.get(PROGRAMS.get(metric, ""), {"-c": PINGS})


def _of_gpu(metric: str, labels: Mapping[str, str], sizes: GpuProfile) -> dict[str, Any]:
    if metric == DIAGNOSED:
        return {"tests": ",".join(sizes.diagnoses)}
    if metric in TESTS:
        return {"runs": sizes.copy_runs, "copy_samples": sizes.copy_samples}
    triad = TRIAD in (labels.get("op"), WHAT.get(metric))
    listed = [sizes.triad_bytes] if triad else sizes.sides
    return {"runs": sizes.runs, "seconds": float(sizes.seconds), "sizes": ",".join(map(str, listed))}


def _options(command: str) -> dict[str, str]:
    words = command.split()
    return {word: after for word, after in pairwise(words) if word.startswith("-")}
