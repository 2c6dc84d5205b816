"""The proven result of one client in one run of fio, with the numbers for the gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackproof.bench.storage.byte_counters import check_sent, counted_in_run
from rackproof.bench.storage.conditions import cached_at_start
from rackproof.bench.storage.fio_launch import CACHED, ONCE, RAM, reads_once
from rackproof.bench.storage.proof import check_files, check_layout, check_options, check_result, states_around
from rackproof.bench.storage.runs import Run
from rackproof.core.architecture import Storage
from rackproof.parse import ParseError, fio

_OF_FILES = ("dataset_bytes", "application_bytes", "counter_bytes", CACHED)


@dataclass(frozen=True)
class Proven:
    """The proven result of one client in one run."""

    entry: fio.JobResult
    moved: fio.Direction
    companions: Mapping[str, float]


def proven(run: Run, node: str, storage: Storage) -> Proven:
    """The result of a client. Raises ParseError for one without proof."""
    launch = run.launch
    entry = launch.entries.get(node)
    if entry is None:
        raise ParseError("fio", f"no result of {node}")
    if entry.error:
        raise ParseError("fio", f"error {entry.error} on {node}")
    requested = launch.jobs[node]
    before, after = states_around(run, node, storage)
    check_options(entry, requested)
    moved = check_result(entry, requested)
    check_layout(run, node, requested)
    check_files(before, requested)
    counted = counted_in_run(run, node, storage, before, after)
    counted.check(moved.io_bytes, seconds=moved.runtime_ms / 1e3)

    dataset = float(int(requested["size"]) * int(requested["numjobs"]))
    numbers = {
        "dataset_bytes": dataset,
        "outstanding": float(int(requested["iodepth"]) * int(requested["numjobs"])),
        "application_bytes": float(moved.io_bytes),
        "iops": moved.iops,
    }
    if reads_once(requested):
        numbers[ONCE] = float(moved.io_bytes)
    if moved.lat_ns is not None and "fsync" not in requested:  # Little's law needs the total latency, from submission
        numbers["latency_s"] = moved.lat_ns / 1e9
    if before.client.ram_bytes is not None:
        numbers[RAM] = float(before.client.ram_bytes)
    if (cached := cached_at_start(before, int(dataset))) is not None:
        numbers[CACHED] = cached
    if counted.exact is not None:
        numbers["counter_bytes"] = float(counted.exact)
    return Proven(entry, moved, numbers)


def whole(run: Run, node: str, storage: Storage) -> Proven:
    """The result of a client that moved every byte of its files once. Raises ParseError."""
    result, job = proven(run, node, storage), run.launch.jobs[node]
    check_sent(run, storage)
    size = int(job["size"]) * int(job["numjobs"])
    if result.moved.io_bytes != size:
        raise ParseError("fio", f"expected {size} B of {node}'s files, actual {result.moved.io_bytes} B")
    return result


def summed(runs: Sequence[Sequence[Proven]]) -> dict[str, tuple[float, ...]]:
    """Numbers for the gates of runs of whole files: sums over each run's results, of those that all results have."""
    names = [name for name in _OF_FILES if all(name in result.companions for run in runs for result in run)]
    return {name: tuple(sum(result.companions[name] for result in run) for run in runs) for name in names}
