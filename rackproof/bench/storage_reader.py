"""Samples of storage, with proof of what was measured.

A number counts only if fio succeeded, reports the requested options and duration, and moved bytes that the mount, the
client, the device or the node's ports counted as well; if its files were completely written before; and if mounts and
transport were the architecture's immediately before and after the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackproof.bench.fio_launch import ADD_UP, CACHED, RAM, WORKLOADS, check_job
from rackproof.bench.reading import Read, Reading
from rackproof.bench.storage_bytes import counted_bytes
from rackproof.bench.storage_commands import AFTER, BEFORE
from rackproof.bench.storage_conditions import cached_at_start, conditions_of
from rackproof.bench.storage_proof import (
    check_files,
    check_layout,
    check_mounts,
    check_options,
    check_result,
)
from rackproof.bench.storage_runs import Run, last_with_same_clients, out_of_order, runs_of
from rackproof.core.architecture import Architecture, Storage
from rackproof.core.evidence import Measurement, Scope
from rackproof.parse import ParseError, fio
from rackproof.remote.command import CommandResult

NAME = "fio-proven"
"""Recorded name of this reader."""
_SUMMED = (*ADD_UP, "counter_bytes")


@dataclass(frozen=True)
class Proven:
    """The proven result of one client in one run."""

    entry: fio.JobResult
    moved: fio.Direction
    companions: Mapping[str, float]


def read_storage(answers: Sequence[CommandResult], architecture: Architecture) -> Read:
    """One sample per run. ``answers`` include those of the runs that wrote the files, also of earlier steps."""
    every = runs_of(answers)
    runs = last_with_same_clients(every)
    results_by_client: dict[tuple[int, str], Proven | ParseError] = {}

    def proven(number: int, node: str, storage: Storage) -> Proven:
        """The client's result, read once for all of its metrics."""
        if (number, node) not in results_by_client:
            try:
                results_by_client[number, node] = _proven(runs[number], node, storage)
            except ParseError as error:
                results_by_client[number, node] = error
        result = results_by_client[number, node]
        if isinstance(result, ParseError):
            raise result
        return result

    def read(measurement: Measurement) -> Reading:
        if not runs:
            raise ParseError("fio", "no run of it")
        if out_of_order(every):
            raise ParseError("fio", "its outputs are not in the order of its runs")
        storage = architecture.storage[measurement.labels["storage"]]
        nodes = list(measurement.members)
        samples, companions = [], []
        for number, run in enumerate(runs):
            if not run.launch.answer.ok:
                raise ParseError("fio", run.launch.answer.why)
            if measurement.scope is not Scope.NODE and set(run.launch.entries) != set(nodes):
                raise ParseError("fio", "it reports other clients than took part")
            check_job(run.launch, nodes, measurement)
            results = [proven(number, node, storage) for node in nodes]
            samples.append(sum(_value(result, measurement.metric) for result in results))
            companions.append(_sum(results, single=measurement.scope is Scope.NODE))
        complete = {
            name: tuple(run[name] for run in companions)
            for name in companions[0]
            if all(name in run for run in companions)
        }
        used = tuple(run.launch.answer for run in every)
        conditions = conditions_of(runs, nodes, storage, len(every[0].before))
        if messages := _messages(runs):
            conditions["fio_said"] = messages
        return Reading(tuple(samples), used, conditions, complete)

    return read


def _proven(run: Run, node: str, storage: Storage) -> Proven:
    launch = run.launch
    entry = launch.entries.get(node)
    if entry is None:
        raise ParseError("fio", f"no result of {node}")
    if entry.error:
        raise ParseError("fio", f"error {entry.error} on {node}")
    requested = launch.jobs[node]
    before, after = run.state(node, BEFORE), run.state(node, AFTER)
    check_mounts(storage, before, BEFORE)
    check_mounts(storage, after, AFTER)
    check_options(entry, requested)
    moved = check_result(entry, requested)
    check_layout(run, node, requested)
    check_files(before, requested)
    counted = counted_bytes(storage, before, after, writes=requested["rw"] == "write")
    counted.check(moved.io_bytes)

    dataset = float(int(requested["size"]) * int(requested["numjobs"]))
    numbers = {
        "dataset_bytes": dataset,
        "outstanding": float(int(requested["iodepth"]) * int(requested["numjobs"])),
        "application_bytes": float(moved.io_bytes),
        "iops": moved.iops,
    }
    if moved.lat_ns is not None:  # Little's law needs the total latency, from submission
        numbers["latency_s"] = moved.lat_ns / 1e9
    if before.client.ram_bytes is not None:
        numbers[RAM] = float(before.client.ram_bytes)
    if (cached := cached_at_start(before, int(dataset))) is not None:
        numbers[CACHED] = cached
    if counted.exact is not None and "ramp_time" not in requested:  # fio does not count the ramp
        numbers["counter_bytes"] = float(counted.exact)
    return Proven(entry, moved, numbers)


def _value(result: Proven, metric: str) -> float:
    if metric == "storage.random_read_iops":
        return result.moved.iops
    if metric == "storage.random_read_latency":
        if result.moved.clat_ns is None:
            raise ParseError("fio", "no completion latency")
        return result.moved.clat_ns / 1e3
    if metric not in WORKLOADS:
        raise ParseError("fio", f"it does not measure {metric}")
    return result.moved.bandwidth_bytes_per_s / 1e6


def _sum(results: Sequence[Proven], *, single: bool) -> dict[str, float]:
    """Companions of one client, or the sums over all clients."""
    clients = [dict(result.companions) for result in results]
    if single:
        return clients[0]
    return {name: sum(c[name] for c in clients) for name in _SUMMED if all(name in c for c in clients)}


def _messages(runs: Sequence[Run]) -> list[str]:
    """fio's messages that a normal run does not have."""
    lines = [line for run in runs for line in fio.complaints(run.launch.answer.text)]
    return list(dict.fromkeys(f"{line.host}: {line.text}" if line.host else line.text for line in lines))[:20]
