"""Places that were read back otherwise than they were written, with file and offset, from a step's runs of fio.

Each file is proven to be written completely with checksums, then read completely by its writer, and, where the storage
is shared, by another client. A read that finds damage counts as soon as its mounts and options are proven, also where
another client fails.
A place that the writer's own read finds counts for the writer only; the other client, whose read it ended, then has no
number.
"""

from __future__ import annotations

from collections.abc import Sequence

from rackproof.bench.reading import Reading, of_every
from rackproof.bench.storage.commands import BEFORE
from rackproof.bench.storage.conditions import cached_at_start, conditions_of
from rackproof.bench.storage.fio_launch import (
    CACHED,
    CHECKED_BY_OTHER,
    CHECKED_BY_WRITER,
    CHECKED_WRITE,
    VERIFY,
    VERIFY_READ,
    Launch,
    found_damage,
)
from rackproof.bench.storage.proof import check_options, states_around
from rackproof.bench.storage.result import summed, whole
from rackproof.bench.storage.runs import Run
from rackproof.bench.storage.server_counters import served_bytes
from rackproof.core.architecture import Storage
from rackproof.core.evidence import Measurement
from rackproof.core.metrics import DAMAGE
from rackproof.parse import ParseError, fio

_SHOWN = 20
"""Maximum number of places that are named."""
_SIZES = {"bs": "block_bytes", "iodepth": "iodepth", "size": "file_bytes"}


def read_integrity(runs: Sequence[Run], measurement: Measurement, storage: Storage) -> Reading:
    """One sample. Raises ParseError."""
    nodes = list(measurement.members)
    asked, (write, *reads) = _in_order(runs, measurement, storage)
    for node in write.launch.jobs:
        _check_whole(write, node, storage)
    damage: list[str] = []
    faults: list[ParseError] = []
    for run in reads:
        for node in nodes:
            try:
                places = _damage(write, run, node, storage)
            except ParseError as error:
                faults.append(error)
                continue
            own = _found_by_writer(write, reads[0], run, node) if places else set()
            damage += (new := [line for place, line in places if place is None or place not in own])
            if places and not new:
                why = f"{node}'s read ended at a place that the file's writer finds damaged too"
                faults.append(ParseError("fio", why))
    if not damage and faults:
        raise faults[0]
    if not damage and len(runs) < asked:
        raise ParseError("fio", f"expected {asked} runs, actual {len(runs)}")
    files = float(write.launch.jobs[nodes[0]]["size"])
    companions: dict[str, tuple[float, ...]] = {"dataset_bytes": (files * len(nodes) * len(reads),)}
    cached = [cached_at_start(run.state(node, BEFORE), int(files)) for run in reads for node in nodes]
    if None not in cached:
        companions[CACHED] = (sum(share for share in cached if share is not None),)
    if not damage:  # it ends a read before the end of the file
        companions |= summed([[whole(run, node, storage) for run in reads for node in nodes]])
        served = of_every([served_bytes(run.served, run.read_bytes) for run in reads])
        companions |= {name: (sum(numbers),) for name, numbers in served.items()}
    conditions = conditions_of(reads, nodes, storage, len(write.before))
    conditions["workload"] = {field: int(write.launch.jobs[nodes[0]][option]) for option, field in _SIZES.items()}
    readers = ["the writer", "another client"][: len(reads)]
    conditions["read_back_by"] = f"{' and '.join(readers)}, after caches were dropped"
    if damage:
        conditions[DAMAGE] = damage[:_SHOWN]
    return Reading((float(len(damage)),), tuple(run.launch.answer for run in runs), conditions, companions)


def _in_order(runs: Sequence[Run], measurement: Measurement, storage: Storage) -> tuple[int, list[Run]]:
    """Number of runs to expect, and the run that writes and those that read, of the same clients; the last one may be
    missing. Raises ParseError."""
    clients = set(runs[0].launch.jobs)
    ends = [CHECKED_WRITE, CHECKED_BY_WRITER]
    ends += [CHECKED_BY_OTHER] if storage.class_ != "local" and len(clients) > 1 else []
    if not set(measurement.members) <= clients or any(set(run.launch.jobs) != clients for run in runs):
        raise ParseError("fio", "its runs have other clients than took part")
    expected = [f"{measurement.labels['storage']}{end}" for end in ends]
    if not 1 < len(runs) <= len(expected):
        raise ParseError("fio", f"expected {len(expected)} runs, actual {len(runs)}")
    for run, name in zip(runs, expected, strict=False):
        for job in run.launch.jobs.values():
            own = {"name": name, "rw": "write" if run is runs[0] else "read", "bs": measurement.labels["block_bytes"]}
            own |= VERIFY if run is runs[0] else VERIFY_READ
            if strange := [f"{key}={value}" for key, value in own.items() if job.get(key) != value]:
                raise ParseError("fio", f"expected {', '.join(strange)}, actual {job['name']}")
            if "continue_on_error" in job:
                raise ParseError("fio", "its job continues after errors, which hides them")
    if len(runs) > 2:
        _check_exchanged(runs[0].launch, runs[2].launch)
    return len(expected), list(runs)


def _check_exchanged(write: Launch, read: Launch) -> None:
    """Every file is read by one client, which has not written it. Raises ParseError."""
    written = {job["directory"]: node for node, job in write.jobs.items()}
    owners = {node: written.get(job["directory"]) for node, job in read.jobs.items()}
    if set(owners.values()) != set(write.jobs) or any(node == owner for node, owner in owners.items()):
        raise ParseError("fio", "expected each client to read a file that another client wrote")


def _check_whole(run: Run, node: str, storage: Storage) -> None:
    """The run moved every byte of its file once. Raises ParseError."""
    if not run.launch.answer.ok and not any(map(found_damage, run.launch.entries.values())):
        raise ParseError("fio", run.launch.answer.why)
    whole(run, node, storage)


def _damage(write: Run, read: Run, node: str, storage: Storage) -> list[tuple[fio.Damage | None, str]]:
    """The places, and a line for each, where a client read other bytes than were written; empty if all were right."""
    launch = read.launch
    requested, entry = launch.jobs[node], launch.entries.get(node)
    writer = next((name for name, job in write.launch.jobs.items() if job["directory"] == requested["directory"]), "")
    if not writer or any(requested[key] != write.launch.jobs[writer][key] for key in _SIZES):
        raise ParseError("fio", f"{node} read another file than was written")
    folders = tuple(f"{folder}/" for folder in requested["directory"].split(":"))
    named = [place for place in fio.damages(launch.words) if place.path.startswith(folders)]
    if not named and (entry is None or not found_damage(entry)):
        _check_whole(read, node, storage)
        return []
    if entry is None:
        raise ParseError("fio", f"no result of {node}")
    states_around(read, node, storage)
    check_options(entry, requested)
    who = f"written by {writer}, read by {node}"
    return [(place, f"{place.path}, offset {place.offset}, {who}") for place in named] or [
        (None, f"in {requested['directory']}, at a place that fio does not name, {who}")
    ]


def _found_by_writer(write: Run, own: Run, read: Run, node: str) -> set[fio.Damage]:
    """Places that the writer's own read names, of the files that a node reads in another run."""
    folder = read.launch.jobs[node]["directory"]
    writer = next(name for name, job in write.launch.jobs.items() if job["directory"] == folder)
    if read is own or writer == node or own.launch.jobs[writer]["directory"] != folder:
        return set()
    return set(fio.damages(own.launch.words))
