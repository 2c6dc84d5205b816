"""Rates of a checkpoint: the bytes of all ranks over the time from the first start to the last end.

Starts are by the clients' clocks, which the deploy keeps together. On local drives the time is that of the slowest
client, from its own start: it shares nothing with the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rackproof.bench.reading import Reading, of_every
from rackproof.bench.storage.conditions import conditions_of
from rackproof.bench.storage.result import Proven, summed, whole
from rackproof.bench.storage.runs import Run
from rackproof.bench.storage.server_counters import served_bytes
from rackproof.core.architecture import Storage
from rackproof.core.evidence import Measurement
from rackproof.parse import ParseError

WRITE: Final = "write"
READ: Final = "read"
CHECKPOINT: Final = {"checkpoint.write_bandwidth": WRITE, "checkpoint.read_bandwidth": READ}
"""``rw`` of a metric's runs."""
_SIZES: Final = {"bs": "block_bytes", "iodepth": "iodepth", "size": "file_bytes", "numjobs": "ranks"}

MOST_LAG: Final = 0.5
"""Largest time between the first and the last client's start, as a share of the whole time; with a larger one the
clients mostly ran one after another."""


def job_name(storage: str, model: str, way: str) -> str:
    """Name of the job that writes or reads."""
    return f"{storage}-checkpoint-{model}-{way}"


def read_checkpoint(runs: Sequence[Run], measurement: Measurement, storage: Storage) -> Reading:
    """One sample per run. Raises ParseError."""
    nodes, way = list(measurement.members), CHECKPOINT[measurement.metric]
    _check_order(runs, measurement)
    own = [run for run in runs if run.launch.jobs[nodes[0]]["rw"] == way]
    samples, every = [], []
    for run in own:
        results = [whole(run, node, storage) for node in nodes]
        seconds = _seconds(results, run.launch.result.version, storage.class_ == "local")
        samples.append(sum(result.moved.io_bytes for result in results) / seconds / 1e9)
        every.append(results)
    conditions = conditions_of(own, nodes, storage, len(runs[0].before))
    job = own[0].launch.jobs[nodes[0]]
    conditions["workload"] = {field: int(job[option]) for option, field in _SIZES.items()}
    conditions["workload"] |= {"model": measurement.labels["model"], "runs": len(own)}
    conditions["ranks"] = int(job["numjobs"]) * len(nodes)
    companions = summed(every) | of_every([served_bytes(run.served, run.read_bytes) for run in own])
    return Reading(tuple(samples), tuple(run.launch.answer for run in runs), conditions, companions)


def _seconds(results: Sequence[Proven], version: str, apart: bool) -> float:
    """From the first client's start to the last one's end; ``apart``: of the slowest client.

    Raises ParseError if clients that share a storage hardly ran at once.
    """
    times = [result.moved.runtime_ms for result in results]  # fio's time of a client is its slowest process's
    if not min(times):
        raise ParseError("fio", "its ranks took less than a millisecond: let them write more")
    if apart or len(results) == 1:
        return max(times) / 1000
    starts = [result.entry.start_ms for result in results if result.entry.start_ms]
    if len(starts) < len(results):
        why = f"version {version} does not report when each client began, so nothing shows that they ran at once"
        raise ParseError("fio", f"{why}; 3.36 and newer do")
    lag = max(starts) - min(starts)
    whole_ms = max(start + time for start, time in zip(starts, times, strict=True)) - min(starts)
    if lag > MOST_LAG * whole_ms:
        began = f"began up to {lag / 1000:g} s apart, in {whole_ms / 1000:g} s"
        raise ParseError("fio", f"its clients {began}: let them write more, or see chrony")
    return whole_ms / 1000


def _check_order(runs: Sequence[Run], measurement: Measurement) -> None:
    """Every run that writes is followed by one that reads the same files, of the same clients. Raises ParseError."""
    nodes, labels = set(measurement.members), measurement.labels
    first: tuple[str, ...] | None = None
    for number, run in enumerate(runs):
        way = READ if number % 2 else WRITE
        name = job_name(labels["storage"], labels["model"], way)
        if not run.launch.answer.ok:
            raise ParseError("fio", run.launch.answer.why)
        if set(run.launch.jobs) != nodes or set(run.launch.entries) != nodes:
            raise ParseError("fio", "it reports other clients than took part")
        for job in run.launch.jobs.values():
            sizes = tuple(job[option] for option in _SIZES)
            if (job["name"], job["rw"]) != (name, way) or sizes != (first := first or sizes):
                raise ParseError("fio", f"expected {name}, actual {job['name']}")
            if way == WRITE and job.get("end_fsync") != "1":
                raise ParseError("fio", "its write has no fsync at the end")
    if len(runs) % 2:
        raise ParseError("fio", "the checkpoint was not read back")
