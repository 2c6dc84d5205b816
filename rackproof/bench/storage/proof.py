"""Proofs of a run of fio without which its number does not count. All functions raise ParseError with both values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rackproof.bench.storage.commands import AFTER, BEFORE, benchmark_roots
from rackproof.bench.storage.fio_launch import SHARED, consistent, suffix_of
from rackproof.bench.storage.runs import Run, State, StatesAround, state_in
from rackproof.core.architecture import Storage
from rackproof.core.fiojob import TEST_FILE
from rackproof.core.wording import exact
from rackproof.parse import ParseError, client_transfer, fio, mounted
from rackproof.parse.mounts import Mount, NfsMount
from rackproof.remote.command import CommandResult

_SHORTEST = 0.98
"""Minimum share of the requested duration, and of the requested fsyncs: fio's timer may end a little early."""
_TOGETHER = 0.02
"""Relative tolerance between dependent numbers of one result."""
_ALLOCATED = 0.95
"""Minimum share of a file's size in allocated blocks, which have file systems' own units."""
_MOST_LAG = 0.2
_STARTING_S = 2.5
"""Largest time between the first and the last client's start: as a share of the shortest run, and in seconds, which
emulated nodes need, up to half of that run. With a larger one some of the clients had the storage for themselves."""


def check_options(entry: fio.JobResult, requested: Mapping[str, str]) -> None:
    """fio reports the requested options."""
    if not entry.options:
        raise ParseError("fio", "does not report the options of its job; version 3 or newer does")
    if entry.jobname != requested["name"]:
        raise ParseError("fio", f"expected job {requested['name']}, actual {entry.jobname}")
    for option, value in requested.items():
        if option != "name" and entry.options.get(option) != value:
            raise ParseError("fio", f"expected {option}={value}, actual {entry.options.get(option, 'not set')}")


def check_result(entry: fio.JobResult, requested: Mapping[str, str]) -> fio.Direction:
    """The requested direction, with the requested duration and block size, and nothing in the other direction."""
    writes = requested["rw"] == "write"
    moved, other = (entry.write, entry.read) if writes else (entry.read, entry.write)
    if moved is None or not moved.io_bytes:
        raise ParseError("fio", f"it has not {'written' if writes else 'read'} anything")
    if other is not None and other.io_bytes:
        raise ParseError(
            "fio", f"expected {requested['rw']} only, actual {other.io_bytes} B in the other direction too"
        )
    if "runtime" in requested and moved.runtime_ms < int(requested["runtime"]) * 1000 * _SHORTEST:
        whole = "time_based" not in requested and moved.io_bytes == int(requested["size"]) * int(requested["numjobs"])
        if not whole:
            raise ParseError("fio", f"expected a run of {requested['runtime']} s, actual {moved.runtime_ms / 1000:g} s")
    block = int(requested["bs"])
    by_count = (moved.total_ios or 0) * block
    # Requests in flight at the end of a ramp: fio counts the bytes, and no request.
    in_flight = int(requested["iodepth"]) * int(requested["numjobs"]) * block if "ramp_time" in requested else 0
    if not _equal(by_count, moved.io_bytes) and not 0 <= moved.io_bytes - by_count <= in_flight:
        actual = moved.io_bytes / moved.total_ios if moved.total_ios else 0
        raise ParseError("fio", f"expected blocks of {requested['bs']} B, actual {exact(actual)} B")
    if requested.get("fsync") == "1":
        written, syncs = moved.total_ios or 0, entry.syncs or 0
        # The run may end between a process's last write and its fsync.
        if not syncs or syncs < min(written * _SHORTEST, written - int(requested["numjobs"])):
            raise ParseError("fio", f"expected an fsync after each of {written} writes, actual {syncs}")
    return consistent(moved)


def check_at_once(run: Run, moved: Iterable[fio.Direction], storage: Storage) -> None:
    """All clients began with those that ``moved`` something, by their clocks, which the deploy keeps together; unknown
    before fio 3.36. Clients of local drives share nothing."""
    entries = run.launch.entries.values()
    starts = [entry.start_ms for entry in entries if entry.start_ms]
    if storage.class_ == "local" or len(starts) < max(2, len(entries)):
        return
    lag, shortest = (max(starts) - min(starts)) / 1000, min(one.runtime_ms for one in moved) / 1000
    if lag > max(_MOST_LAG * shortest, min(_STARTING_S, shortest / 2)):
        began = f"began up to {lag:g} s apart, and the shortest one took {shortest:g} s"
        raise ParseError("fio", f"its clients {began}: let them run longer, or see chrony")


def _equal(a: float, b: float) -> bool:
    return abs(a - b) <= _TOGETHER * max(a, b)


def check_layout(run: Run, node: str, requested: Mapping[str, str]) -> None:
    """All bytes that the run may read were written before, by fio's count and by the files' sizes."""
    if requested["name"].endswith(suffix_of(SHARED)) and len(_directories(run)) > 1:
        raise ParseError("fio", "expected one file for all clients, actual several")
    if (written := run.layout(node)) is None:
        raise ParseError("fio", "nothing wrote its files before")
    owner, layout = written
    check_written(layout.answer, layout.entries.get(owner), layout.jobs[owner], requested)
    if line := fio.file_complaint(run.launch.words):
        raise ParseError("fio", f"a file was missing or too short when it began: {line}")


def _directories(run: Run) -> set[str]:
    return {job["directory"] for job in run.launch.jobs.values()}


def check_written(
    answer: CommandResult, entry: fio.JobResult | None, job: Mapping[str, str], requested: Mapping[str, str]
) -> None:
    """A run of fio, ``job``, wrote all bytes of the files of a later job, ``requested``."""
    if not answer.ok:
        raise ParseError("fio", f"its files were not written: {answer.why}")
    if entry is None or entry.error:
        raise ParseError("fio", "its files were not written")
    check_options(entry, job)
    expected = int(job["size"]) * int(job["numjobs"])
    actual = entry.write.io_bytes if entry.write else 0
    if actual != expected or job.get("rw") != "write" or job.get("fallocate") != "none":
        raise ParseError("fio", f"expected files of {expected} B written completely, actual {actual} B")
    smaller = any(int(job[key]) < int(requested[key]) for key in ("size", "numjobs"))
    if job["directory"] != requested["directory"] or smaller:
        raise ParseError("fio", "the files written before are in another folder, too small or too few")


def check_files(state: State, requested: Mapping[str, str]) -> None:
    """The job's files have their size and are allocated completely."""
    folders = requested["directory"].split(":")
    size, files = int(requested["size"]), {file.path: file for file in state.client.files}
    for number in range(int(requested["numjobs"])):
        path = f"{folders[number % len(folders)]}/{TEST_FILE}.{number}"
        file = files.get(path)
        if file is None or file.size < size:
            raise ParseError("stat", f"{path}: expected {size} B, actual {f'{file.size} B' if file else 'no file'}")
        if file.allocated < size * _ALLOCATED:
            raise ParseError("stat", f"{path}: expected {size} B written, actual {file.allocated} B allocated")


def states_around(run: StatesAround, node: str, storage: Storage) -> tuple[State, State]:
    """States of a client before and after a run, with the architecture's mounts, the same ones. Raises ParseError."""
    before, after = run.state(node, BEFORE), run.state(node, AFTER)
    check_around(storage, before, after)
    return before, after


def check_around(storage: Storage, before: State, after: State) -> None:
    """The storage's mounts are the architecture's before and after a run, and the same. Raises ParseError."""
    for old, new in zip(check_mounts(storage, before, BEFORE), check_mounts(storage, after, AFTER), strict=True):
        if old != new:
            raise ParseError("mount", f"{new.mountpoint} changed during the run: {_changes(old, new)}")


def _changes(old: Mount, new: Mount) -> str:
    """Differences between two mounts of one mount point, with both values."""
    pairs = [("source", old.source, new.source), ("device", old.device, new.device)]
    changes = [f"{name} {was} before it, {now} after it" for name, was, now in pairs if was != now]
    first, last = ({*mount.options, *mount.super_options} for mount in (old, new))
    options = [f"{one} in force before it only" for one in sorted(first - last)]
    options += [f"{one} in force after it only" for one in sorted(last - first)]
    return "; ".join(changes + options) or "it was mounted anew"


def check_mounts(storage: Storage, state: State, when: str) -> tuple[Mount, ...]:
    """The storage's mounts are the architecture's. Returns them."""
    client = state.client
    faults = mounted.type_faults(storage, client.mounts)
    mounts = tuple(mount for mount in mounts_of(storage, state) if mount is not None)
    if not faults:
        faults = [
            *mounted.bind_faults(mounts),
            *mounted.source_faults(
                storage,
                mounts,
                state.addresses,
                client.device,
                client.daemons,
                state.fsids,
                client_transfer.fsids_in(storage, client.counters),
            ),
            *mounted.option_faults(storage, mounts),
            *mounted.port_faults(storage, mounts),
            *_mounted_below(storage, client.mounts),
        ]
    if not faults and storage.class_ == "nfs":
        nfs = nfs_of(storage, state)
        if len(nfs) < len(mounts):
            raise ParseError("mountstats", f"{when} the run: no statistics of {storage.mountpoint}")
        faults = [*mounted.transport_faults(storage, nfs), *mounted.connection_faults(storage, nfs)]
    if not faults and storage.class_ == "parallel" and storage.transport is not None:
        if client.transport is None:
            raise ParseError("mount", f"{when} the run: the client was not asked for its transport")
        used = client_transfer.transports_in(storage, client.transport)
        faults = client_transfer.transport_faults(storage, used, idle=when == BEFORE)
    if faults:
        raise ParseError("mount", f"{when} the run: {'; '.join(faults)}")
    return mounts


def _mounted_below(storage: Storage, mounts: Iterable[Mount]) -> list[str]:
    """Mounts on the benchmarks' folders, whose files are then not the storage's."""
    folders = tuple(f"{root}/" for root in benchmark_roots(storage))
    return [
        f"{mount.mountpoint}: expected a folder of the storage, actual a mount of {mount.source} ({mount.fstype})"
        for mount in mounts
        if not mount.hidden_by and f"{mount.mountpoint}/".startswith(folders)
    ]


def mount_fault(storage: Storage, answer: CommandResult) -> str | None:
    """Why a client's mounts differ from the architecture's, from the answer with its state; None: they do not."""
    try:
        check_mounts(storage, state_in(answer, BEFORE), BEFORE)
    except ParseError as error:
        return str(error)
    return None


def mounts_of(storage: Storage, state: State) -> tuple[Mount | None, ...]:
    return mounted.mounts_in(state.client.mounts, storage)


def nfs_of(storage: Storage, state: State) -> tuple[NfsMount, ...]:
    """NFS mounts of the storage; the visible ones where several are stacked."""
    by_point = {mount.mountpoint: mount for mount in state.client.nfs}
    return tuple(by_point[point] for point in storage.mountpoints if point in by_point)
