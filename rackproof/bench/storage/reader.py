"""Samples of storage, with proof of what was measured.

A number counts only if fio succeeded, reports the requested options and duration, and moved bytes that the mount, the
client, the device or the node's ports counted as well; if its files were completely written before; if clients that
share the storage ran at the same time; and if mounts and transport were the architecture's immediately before and after
the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from rackproof.bench.reading import Read, Reading, of_every, reader
from rackproof.bench.storage.beside_reader import read_beside, read_wrong
from rackproof.bench.storage.byte_counters import check_sent
from rackproof.bench.storage.checkpoint_reader import CHECKPOINT, read_checkpoint
from rackproof.bench.storage.conditions import conditions_of, fairness_of
from rackproof.bench.storage.connections_reader import OF_OWN_MOUNTS, read_connections
from rackproof.bench.storage.fio_launch import ADD_UP, DAMAGE, ONCE, SHARED, SYNCED, WORKLOADS, check_job
from rackproof.bench.storage.gds_reader import read_gds
from rackproof.bench.storage.integrity_reader import read_integrity
from rackproof.bench.storage.join_reader import COPIED, read_join
from rackproof.bench.storage.knee_reader import KNEE, read_knee
from rackproof.bench.storage.proof import check_at_once
from rackproof.bench.storage.result import Proven, proven
from rackproof.bench.storage.runs import last_with_same_clients, out_of_order, runs_of
from rackproof.bench.storage.server_counters import served_bytes
from rackproof.bench.storage.small_files_reader import OF_FILES, read_files
from rackproof.core.architecture import Architecture, Storage
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.metrics import BESIDE_LOSSES, BESIDE_WRONG, GDS
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult

CLIENTS = "clients"
"""Label of the rack's numbers of a profile with several numbers of clients."""
_SUMMED = (*ADD_UP, "counter_bytes", ONCE)


@reader("fio-proven")
def read_storage(answers: Sequence[CommandResult], architecture: Architecture) -> Read:
    """One sample per run. ``answers`` include those of the runs that wrote the files, also of earlier steps."""
    every = runs_of(answers)
    runs = last_with_same_clients(every)
    results_by_client: dict[tuple[int, str], Proven | ParseError] = {}

    def result_of(number: int, node: str, storage: Storage) -> Proven:
        """The client's result, read once for all of its metrics."""
        if (number, node) not in results_by_client:
            try:
                results_by_client[number, node] = proven(runs[number], node, storage)
            except ParseError as error:
                results_by_client[number, node] = error
        result = results_by_client[number, node]
        if isinstance(result, ParseError):
            raise result
        return result

    def read(measurement: Measurement) -> Reading:
        if measurement.metric in OF_FILES:
            return read_files(answers, measurement, architecture.storage[measurement.labels["storage"]])
        if measurement.metric == COPIED:
            return read_join(answers, measurement, architecture.storage[measurement.labels["storage"]])
        if measurement.metric == GDS:
            return read_gds(answers, measurement, architecture.storage[measurement.labels["storage"]])
        if measurement.metric == BESIDE_WRONG:
            return read_wrong(answers, measurement, architecture)
        if not runs:
            raise ParseError("fio", "no run of it")
        if out_of_order(every):
            raise ParseError("fio", "its outputs are not in the order of its runs")
        if measurement.metric in BESIDE_LOSSES:
            return read_beside(answers, measurement, architecture)
        storage = architecture.storage[measurement.labels["storage"]]
        if measurement.metric in OF_OWN_MOUNTS:
            return read_connections(every, measurement, architecture)
        if measurement.metric in KNEE:
            return read_knee(every, measurement, storage)
        if measurement.metric in CHECKPOINT:
            return read_checkpoint(every, measurement, storage)
        if measurement.metric == DAMAGE:
            return read_integrity(every, measurement, storage)
        nodes = list(measurement.members)
        samples, companions, shares = [], [], []
        asked = measurement.labels.get(CLIENTS)
        if asked is not None and asked != str(len(nodes)):
            raise ParseError("fio", f"expected {asked} clients, actual {len(nodes)}")
        for number, run in enumerate(runs):
            if not run.launch.answer.ok:
                raise ParseError("fio", run.launch.answer.why)
            if measurement.scope is not Scope.NODE and set(run.launch.entries) != set(nodes):
                raise ParseError("fio", "it reports other clients than took part")
            check_job(run.launch, nodes, measurement)
            results = [result_of(number, node, storage) for node in nodes]
            check_at_once(run, (result.moved for result in results), storage)
            check_sent(run, storage)
            values = [_value(result, measurement.metric) for result in results]
            samples.append(sum(values))
            shares.append(values)
            companions.append(
                _sum(results, single=measurement.scope is Scope.NODE) | served_bytes(run.served, run.read_bytes)
            )
            if len(every) > 1:
                companions[-1].pop(ONCE, None)  # a run before or after read the same bytes
            if measurement.metric == SHARED:
                companions[-1]["dataset_bytes"] = results[0].companions[
                    "dataset_bytes"
                ]  # one file, however many read it
        complete = of_every(companions)
        used = tuple(run.launch.answer for run in every)
        conditions = conditions_of(runs, nodes, storage, len(every[0].before))
        if ONCE in complete:
            conditions["reads"] = "each byte once at most"
        if asked is not None:
            conditions["fairness"] = fairness_of([dict(zip(nodes, values, strict=True)) for values in shares])
        return Reading(tuple(samples), used, conditions, complete)

    return read


def _value(result: Proven, metric: str) -> float:
    if metric in ("storage.random_read_iops", SYNCED):
        return result.moved.iops
    if metric == "storage.random_read_latency":
        if result.moved.clat_ns is None:
            raise ParseError("fio", "no completion latency")
        return result.moved.clat_ns / 1e3
    if metric not in WORKLOADS:
        raise ParseError("fio", f"it does not measure {metric}")
    return result.moved.bandwidth_bytes_per_s / 1e6


def _sum(results: Sequence[Proven], *, single: bool) -> dict[str, float]:
    """Companions of one client, or those of all clients: sums, and the latency of the mean request."""
    clients = [dict(result.companions) for result in results]
    if single:
        return clients[0]
    rack = {name: sum(c[name] for c in clients) for name in _SUMMED if all(name in c for c in clients)}
    if all("latency_s" in c for c in clients) and rack["iops"]:
        rack["latency_s"] = sum(c["iops"] * c["latency_s"] for c in clients) / rack["iops"]
    return rack
