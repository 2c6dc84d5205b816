"""Numbers of small files from a step's runs of ``files_node.py``, each proven.

A number counts only if every process used all of its files, began with the others and ended well; if mounts were the
architecture's before and after; if what was read had not been in memory, by the counters of mount, client, device or
ports, of clients and servers; and if the servers of names, where a counter tells, got a request for every file. What
servers move for names alone is told and not judged: one answer may be about many files, and drives read none again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rackproof.bench.reading import Reading, of_every
from rackproof.bench.storage.byte_counters import COUNTED, check_ports, counted_bytes, counted_requests, told_by_then
from rackproof.bench.storage.checkpoint_reader import MOST_LAG
from rackproof.bench.storage.commands import BEFORE, folders_of
from rackproof.bench.storage.conditions import cache_conditions, mounts_text, server_conditions, start_share, worst
from rackproof.bench.storage.fio_launch import CACHED, RAM
from rackproof.bench.storage.program_runs import ProgramRun, program_runs
from rackproof.bench.storage.proof import states_around
from rackproof.bench.storage.server_counters import served_bytes
from rackproof.core.architecture import Storage
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.wording import significant
from rackproof.parse import FromMemory, Mismatch, ParseError
from rackproof.parse.client_state import Tree
from rackproof.parse.jsondoc import Json
from rackproof.remote.command import CommandResult

PROGRAM: Final = "files_node.py"
MARK: Final = "rackproof_files"
SMALL: Final = "storage.small_file_read_bandwidth"
SHARDS: Final = "storage.shard_read_bandwidth"
METADATA: Final = "storage.metadata_rate"
OF_FILES: Final = (SMALL, SHARDS, METADATA)
TOGETHER_S: Final = 0.5
"""Largest difference between a process's start and the common start, seconds."""
_REQUESTS: Final = {
    "create": ("CREATE", "OPEN", "OPEN_NOATTR"),
    "stat": ("LOOKUP", "GETATTR"),
    "read": ("READ", "READ_PLUS"),
    "remove": ("REMOVE",),
}
"""Operations of NFS 3 and 4 of which each file needs one, after caches were dropped."""
_SIZES: Final = ("file_bytes", "files", "processes")


def trees_of(storage: Storage, node: str) -> tuple[str, ...]:
    """Folders of a node's small files, one per mount, beside those of fio's."""
    return tuple(f"{folder}/tree" for folder in folders_of_small_files(storage, node))


def folders_of_small_files(storage: Storage, node: str) -> tuple[str, ...]:
    return tuple(f"{folder}-files" for folder in folders_of(storage, node))


def newest_fault(answer: CommandResult, job: str) -> str | None:
    """Why a node's answer has no document of a job; None: it has one."""
    try:
        ProgramRun(PROGRAM, MARK, {}, True, None, {answer.node: answer}).document(answer.node, job)
    except ParseError as error:
        return str(error)
    return None


class _Row(NamedTuple):
    """One process; times in seconds since the common start."""

    files: float
    bytes: float
    begin_s: float
    end_s: float


_ROW: Final = _Row._fields


class _Part(NamedTuple):
    """Proven figures of one client in one run."""

    files: int
    bytes: int
    """Read, or created."""
    read: int
    begin_s: float
    end_s: float
    """Start of the first process and end of the last one, seconds since the common start."""
    requests: int | None
    companions: Mapping[str, float]
    cached: float | None
    """Share of its files in the page cache at the start; None: unknown."""
    text: str
    """Counters that confirm the bytes, for the report."""


def read_files(answers: Sequence[CommandResult], measurement: Measurement, storage: Storage) -> Reading:
    """One sample per run. Raises ParseError."""
    nodes, job = list(measurement.members), _job_of(measurement)
    runs = [run for run in program_runs(answers, PROGRAM, MARK, ProgramRun) if run.jobs == (job,)]
    if not runs:
        raise ParseError(PROGRAM, f"no run of {job}")
    samples, parts, served = [], [], []
    for run in runs:
        if not set(nodes) <= run.nodes or (measurement.scope is Scope.RACK and run.nodes != set(nodes)):
            raise ParseError(PROGRAM, "it reports other clients than took part")
        _check_alike(run, measurement)
        own = [_part(run, node, job, storage) for node in nodes]
        served.append((run.served, own[0].read * len(run.nodes)))  # all clients are alike
        seconds = _seconds(own)
        check_ports(*served[-1], storage, PROGRAM, told_by_then(seconds))
        amount = sum(part.files if measurement.metric == METADATA else part.bytes / 1e6 for part in own)
        samples.append(amount / seconds)
        parts.append(own)
    names = parts[0][0].companions.keys() & set.intersection(*(set(part.companions) for own in parts for part in own))
    companions = {name: tuple(sum(part.companions[name] for part in own) for own in parts) for name in sorted(names)}
    companions |= of_every([served_bytes(*one) for one in served])
    return Reading(
        tuple(samples),
        tuple(run.answers[node] for run in runs for node in sorted(run.nodes)),
        _conditions(runs, [part for own in parts for part in own], nodes, job, storage) | server_conditions(served),
        companions,
    )


def _job_of(measurement: Measurement) -> str:
    if measurement.metric == METADATA:
        return f"metadata-{measurement.labels['op']}"
    return "small-read" if measurement.metric == SMALL else "shards-read"


def _check_alike(run: ProgramRun, measurement: Measurement) -> None:
    """All clients ran the measurement's job. Raises ParseError."""
    if not run.dropped:
        raise ParseError(PROGRAM, "caches were not dropped before it")
    configs = [run.configs(node)[0] for node in sorted(run.nodes)]
    own = [{key: value for key, value in config.items() if key != "folders"} for config in configs]
    action = measurement.labels["op"] if measurement.metric == METADATA else "read"
    asked = {"action": action, "shards": measurement.metric == SHARDS}
    if measurement.metric != METADATA:
        asked["file_bytes"] = int(measurement.labels["block_bytes"])
    for config in own:
        if config != own[0] or any(config[key] != value for key, value in asked.items()):
            raise Mismatch(PROGRAM, f"expected {asked} on all clients, actual {config}")


def _part(run: ProgramRun, node: str, job: str, storage: Storage) -> _Part:
    """Raises ParseError for a part without proof."""
    config, document = run.document(node, job)
    if tuple(config["folders"]) != trees_of(storage, node):
        raise ParseError(PROGRAM, f"{node}: expected files in {', '.join(trees_of(storage, node))}")
    before, after = states_around(run, node, storage)
    each, reads, moves = int(config["files"]), config["action"] == "read", config["action"] in ("read", "create")
    size = each * int(config["file_bytes"])
    used = 1 if config["shards"] else each
    if any(document.values.get(key) != config[key] for key in ("folders", "start_file")):
        raise ParseError(PROGRAM, f"{node}: it answers another command")
    rows = _rows(document, int(config["processes"]))
    for row in rows:
        if (row.files, row.bytes) != (used, size if moves else 0):
            actual = f"{row.files:.0f} with {row.bytes:.0f} B"
            raise ParseError(PROGRAM, f"{node}: expected {used} files of a process, actual {actual}")
        if abs(row.begin_s) > TOGETHER_S or row.end_s <= row.begin_s:
            ran = f"from {row.begin_s:+.3f} s to {row.end_s:+.3f} s"
            raise ParseError(PROGRAM, f"{node}: a process ran {ran} of the common start")
    begin_s, end_s = min(row.begin_s for row in rows), max(row.end_s for row in rows)
    dataset = size * len(rows)
    companions = {"dataset_bytes": float(dataset)}
    cached, text = None, ""
    if reads:
        if before.client.tree != (tree := Tree(used * len(rows), dataset)):
            raise ParseError(PROGRAM, f"{node}: expected {tree} before it read, actual {before.client.tree}")
        counted = counted_bytes(storage, before, after, writes=False)
        counted.check(dataset, PROGRAM, seconds=end_s - begin_s)
        text, cached = counted.text, start_share(before, dataset)
        companions["application_bytes"] = float(dataset)
        if counted.exact is not None:
            companions["counter_bytes"] = float(counted.exact)
        if cached is not None:
            companions[CACHED] = cached * dataset
    if before.client.ram_bytes is not None:
        companions[RAM] = float(before.client.ram_bytes)
    requests = None if config["shards"] else counted_requests(storage, before, after, _REQUESTS[config["action"]])
    if requests is not None and requests < used * len(rows) * COUNTED:
        why = f"of {used * len(rows)} files were in the client's memory: the client counted {requests} requests"
        raise FromMemory(PROGRAM, f"{node}: {100 * (1 - requests / used / len(rows)):.0f} % {why}")
    if requests is not None and not reads:
        cached = 0.0
    return _Part(used * len(rows), dataset, dataset if reads else 0, begin_s, end_s, requests, companions, cached, text)


def _rows(document: Json, count: int) -> list[_Row]:
    """Raises ParseError."""
    rows = document.values.get("processes")
    if not isinstance(rows, list) or len(rows) != count:
        raise ParseError(PROGRAM, f"{document.where}expected {count} processes")
    read = []
    for row in rows:
        named = dict(zip(_ROW, row, strict=False)) if isinstance(row, list) else {}
        numbers = Json(PROGRAM, f"{document.where}process ", named)
        read.append(_Row(*(numbers.number(key, minimum=None) for key in _ROW)))
    return read


def _seconds(parts: Sequence[_Part]) -> float:
    """From the first client's begin to the last one's end. Raises ParseError if they hardly ran at once."""
    begins = [part.begin_s for part in parts]
    whole_s, lag_s = max(part.end_s for part in parts) - min(begins), max(begins) - min(begins)
    if lag_s > MOST_LAG * whole_s:
        apart = f"{significant(lag_s)} s apart, in {significant(whole_s)} s"
        raise ParseError(PROGRAM, f"its clients began up to {apart}: let them use more files")
    return whole_s


def _conditions(
    runs: Sequence[ProgramRun], parts: Sequence[_Part], nodes: Sequence[str], job: str, storage: Storage
) -> dict[str, Any]:
    config, share = runs[-1].configs(nodes[0])[0], worst([part.cached for part in parts])
    conditions = {
        "io": "buffered",
        **cache_conditions(storage, share, "each file used once", [run.servers_dropped for run in runs]),
        "clients": len(runs[-1].nodes),
        "clients_asked": len(runs[0].nodes),
        "mount": mounts_text(storage, [run.state(node, BEFORE) for run in runs for node in nodes]),
        "files": f"{job}, by {PROGRAM}",
        "workload": {key: int(config[key]) for key in _SIZES},
        "requests": "nothing counts them",
    }
    counts = [part.requests for part in parts if part.requests is not None]
    if len(counts) == len(parts) and not config["shards"]:
        conditions["requests"] = (
            f"{significant(min(counts) / (parts[0].files or 1))} or more for each file, by the client"
        )
    if texts := dict.fromkeys(part.text for part in parts if part.text):
        conditions["bytes"] = "; ".join(texts)
    return conditions
