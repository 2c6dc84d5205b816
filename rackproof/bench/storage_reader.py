"""Samples of storage, each with the proof that it measured what it claims.

A number counts only where fio ended well, reports the options and the duration that it was given, and moved bytes that
the mount or the device counted too; where the files that it used were written completely before; and where the mounts
were those of the architecture right before and right after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackproof.bench.fio_reader import ADD_UP, CACHED, RAM, WORKLOADS, check_job
from rackproof.bench.reading import Read, Reading
from rackproof.bench.storage_commands import AFTER, BEFORE
from rackproof.bench.storage_conditions import cached_at_start, conditions_of
from rackproof.bench.storage_proof import (
    check_counter,
    check_files,
    check_layout,
    check_mounts,
    check_options,
    check_result,
    counted_bytes,
)
from rackproof.bench.storage_runs import Run, last_with_same_clients, out_of_order, runs_of
from rackproof.core.architecture import Architecture, Storage
from rackproof.core.evidence import Measurement, Scope
from rackproof.parse import ParseError, fio
from rackproof.remote.command import CommandResult

NAME = "fio-proven"
"""Under which it is recorded. ``fio`` reads the evidence of older kits, which has no such proof."""
_SUMMED = (*ADD_UP, "counter_bytes")


@dataclass(frozen=True)
class Proven:
    """The result of one client in one run, proven."""

    entry: fio.JobResult
    moved: fio.Direction
    companions: Mapping[str, float]


def read_storage(answers: Sequence[CommandResult], architecture: Architecture) -> Read:
    """One sample per run. ``answers`` begin with those of the runs that wrote the files, also from earlier steps."""
    every = runs_of(answers)
    runs = last_with_same_clients(every)
    known: dict[tuple[int, str], Proven | ParseError] = {}

    def proven(number: int, node: str, storage: Storage) -> Proven:
        """Read each client once for all its metrics."""
        if (number, node) not in known:
            try:
                known[number, node] = _proven(runs[number], node, storage)
            except ParseError as error:
                known[number, node] = error
        result = known[number, node]
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
            companions.append(_sum(results, whole=measurement.scope is Scope.NODE))
        whole = {
            name: tuple(run[name] for run in companions)
            for name in companions[0]
            if all(name in run for run in companions)
        }
        used = tuple(run.launch.answer for run in every)
        conditions = conditions_of(runs, nodes, storage, len(every[0].before))
        if said := _said(runs):
            conditions["fio_said"] = said
        return Reading(tuple(samples), used, conditions, whole)

    return read


def _proven(run: Run, node: str, storage: Storage) -> Proven:
    launch = run.launch
    entry = launch.entries.get(node)
    if entry is None:
        raise ParseError("fio", f"no result of {node}")
    if entry.error:
        raise ParseError("fio", f"error {entry.error} on {node}")
    asked = launch.jobs[node]
    before, after = run.state(node, BEFORE), run.state(node, AFTER)
    check_mounts(storage, before, BEFORE)
    check_mounts(storage, after, AFTER)
    check_options(entry, asked)
    moved = check_result(entry, asked)
    check_layout(run, node, asked)
    check_files(before, asked)
    counted = counted_bytes(storage, before, after, writes=asked["rw"] == "write")
    check_counter(storage, counted, moved.io_bytes)

    dataset = float(int(asked["size"]) * int(asked["numjobs"]))
    numbers = {
        "dataset_bytes": dataset,
        "outstanding": float(int(asked["iodepth"]) * int(asked["numjobs"])),
        "application_bytes": float(moved.io_bytes),
        "iops": moved.iops,
    }
    if moved.lat is not None:  # Little's law needs the whole latency, from submission on
        numbers["latency_s"] = moved.lat.mean_ns / 1e9
    if before.client.ram_bytes is not None:
        numbers[RAM] = float(before.client.ram_bytes)
    if (cached := cached_at_start(before, int(dataset))) is not None:
        numbers[CACHED] = cached
    if counted is not None and "ramp_time" not in asked:  # fio leaves the ramp out of its own count
        numbers["counter_bytes"] = float(counted)
    return Proven(entry, moved, numbers)


def _value(result: Proven, metric: str) -> float:
    if metric == "storage.random_read_iops":
        return result.moved.iops
    if metric == "storage.random_read_latency":
        if result.moved.clat is None:
            raise ParseError("fio", "no completion latency")
        return result.moved.clat.mean_ns / 1e3
    if metric not in WORKLOADS:
        raise ParseError("fio", f"it does not measure {metric}")
    return result.moved.bandwidth_bytes_per_s / 1e6


def _sum(results: Sequence[Proven], *, whole: bool) -> dict[str, float]:
    """Companions of one client; of all of them together only what adds up."""
    each = [dict(result.companions) for result in results]
    if whole:
        return each[0]
    return {name: sum(one[name] for one in each) for name in _SUMMED if all(name in one for one in each)}


def _said(runs: Sequence[Run]) -> list[str]:
    """Lines that fio printed besides those of a normal run."""
    lines = [line for run in runs for line in fio.complaints(run.launch.answer.text)]
    return list(dict.fromkeys(f"{line.host}: {line.text}" if line.host else line.text for line in lines))[:20]
