"""What a run of fio must prove before its number counts. Every function raises ParseError with both values."""

from __future__ import annotations

from collections.abc import Mapping

from rackproof.bench.fio_reader import consistent
from rackproof.bench.storage_commands import BEFORE
from rackproof.bench.storage_runs import Run, State, state_in
from rackproof.core.architecture import Storage
from rackproof.core.fiojob import TEST_FILE
from rackproof.parse import ParseError, fio, mounted
from rackproof.parse.mounts import Mount, NfsMount
from rackproof.remote.command import CommandResult

_SHORTEST = 0.98
"""Of the asked duration: fio's timer ends a little early at times."""
_TOGETHER = 0.02
"""How far numbers of one result may differ that follow from each other."""
_ALLOCATED = 0.95
"""Of a file's size: file systems count blocks in units of their own."""
_COUNTED = 0.97
"""Of the bytes that fio moved: read-ahead and other programs add to a counter, nothing takes away from it."""


def check_options(entry: fio.JobResult, asked: Mapping[str, str]) -> None:
    """The options that fio reports are those that it was given."""
    if not entry.options:
        raise ParseError("fio", "does not report the options of its job; version 3 or newer does")
    if entry.jobname != asked["name"]:
        raise ParseError("fio", f"expected job {asked['name']}, actual {entry.jobname}")
    for option, value in asked.items():
        if option != "name" and entry.options.get(option) != value:
            raise ParseError("fio", f"expected {option}={value}, actual {entry.options.get(option, 'not set')}")


def check_result(entry: fio.JobResult, asked: Mapping[str, str]) -> fio.Direction:
    """The direction that was asked for: as long as asked, in blocks of the asked size, and nothing else."""
    writes = asked["rw"] == "write"
    moved, other = (entry.write, entry.read) if writes else (entry.read, entry.write)
    if moved is None or not moved.io_bytes:
        raise ParseError("fio", f"it has not {'written' if writes else 'read'} anything")
    if other is not None and other.io_bytes:
        raise ParseError("fio", f"expected {asked['rw']} only, actual {other.io_bytes} B in the other direction too")
    if asked.get("time_based") == "1" and moved.runtime_ms < int(asked["runtime"]) * 1000 * _SHORTEST:
        raise ParseError("fio", f"expected a run of {asked['runtime']} s, actual {moved.runtime_ms / 1000:g} s")
    by_count = (moved.total_ios or 0) * int(asked["bs"])
    if not _equal(by_count, moved.io_bytes):
        actual = moved.io_bytes / moved.total_ios if moved.total_ios else 0
        raise ParseError("fio", f"expected blocks of {asked['bs']} B, actual {actual:g} B")
    return consistent(moved)


def _equal(one: float, other: float) -> bool:
    return abs(one - other) <= _TOGETHER * max(one, other)


def check_layout(run: Run, node: str, asked: Mapping[str, str]) -> None:
    """Every byte that the run may touch was written before it: by fio's own count, and by the files as they are now."""
    layout = run.layouts.get(node)
    if layout is None:
        raise ParseError("fio", "nothing wrote its files before")
    check_written(layout.answer, layout.entries.get(node), layout.jobs[node], asked)
    for line in run.launch.result.messages:
        if "Laying out IO file" in line:
            raise ParseError("fio", f"it wrote a file itself before it measured: {line}")


def check_written(
    answer: CommandResult, entry: fio.JobResult | None, job: Mapping[str, str], asked: Mapping[str, str]
) -> None:
    """A run of fio that wrote every byte of the files that a later job, ``asked``, uses. ``job`` is its own."""
    if not answer.ok:
        raise ParseError("fio", f"its files were not written: {answer.why}")
    if entry is None or entry.error:
        raise ParseError("fio", "its files were not written")
    check_options(entry, job)
    expected = int(job["size"]) * int(job["numjobs"])
    actual = entry.write.io_bytes if entry.write else 0
    if actual != expected or job.get("rw") != "write" or job.get("fallocate") != "none":
        raise ParseError("fio", f"expected files of {expected} B written completely, actual {actual} B")
    if job["directory"] != asked["directory"] or any(int(job[key]) < int(asked[key]) for key in ("size", "numjobs")):
        raise ParseError("fio", "other files than its own were written before")


def check_files(state: State, asked: Mapping[str, str]) -> None:
    """The job's files have their size, and blocks for all of it."""
    folders = asked["directory"].split(":")
    size, files = int(asked["size"]), {file.path: file for file in state.client.files}
    for number in range(int(asked["numjobs"])):
        path = f"{folders[number % len(folders)]}/{TEST_FILE}.{number}"
        file = files.get(path)
        if file is None or file.size < size:
            raise ParseError("stat", f"{path}: expected {size} B, actual {f'{file.size} B' if file else 'no file'}")
        if file.allocated < size * _ALLOCATED:
            raise ParseError("stat", f"{path}: expected {size} B written, actual {file.allocated} B allocated")


def check_mounts(storage: Storage, state: State, when: str) -> tuple[Mount, ...]:
    """The storage's mounts are the architecture's. Returns them."""
    client = state.client
    faults = mounted.type_faults(storage, client.mounts)
    mounts = tuple(mount for mount in mounts_of(storage, state) if mount is not None)
    if not faults:
        faults = [
            *mounted.bind_faults(mounts),
            *mounted.source_faults(storage, mounts, state.addresses, client.device, client.daemons),
            *mounted.option_faults(storage, mounts),
            *mounted.port_faults(storage, mounts),
        ]
    if not faults and storage.class_ == "nfs":
        nfs = nfs_of(storage, state)
        if len(nfs) < len(mounts):
            raise ParseError("mountstats", f"{when} the run: no statistics of {storage.mountpoint}")
        faults = [*mounted.transport_faults(storage, nfs), *mounted.connection_faults(storage, nfs)]
    if faults:
        raise ParseError("mount", f"{when} the run: {'; '.join(faults)}")
    return mounts


def mount_fault(storage: Storage, answer: CommandResult) -> str | None:
    """Why a client's mounts are not the architecture's, by an answer to the question for its state; None: they are."""
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


def counted_bytes(storage: Storage, before: State, after: State, *, writes: bool) -> int | None:
    """Bytes that the mounts or the device counted during the run; None where nothing counts them.

    Mounts that share a superblock share its counters.
    """
    if storage.class_ == "local":
        pair = [s.client.device_written_bytes if writes else s.client.device_read_bytes for s in (before, after)]
        return _difference(pair[0], pair[1])
    if storage.class_ != "nfs":
        return None
    superblocks = {mount.mountpoint: mount.device for mount in mounts_of(storage, before) if mount is not None}
    total, seen = 0, set()
    for old, new in zip(nfs_of(storage, before), nfs_of(storage, after), strict=True):
        if superblocks.get(old.mountpoint) in seen:
            continue
        seen.add(superblocks.get(old.mountpoint))
        pair = [m.server_written_bytes if writes else m.server_read_bytes for m in (old, new)]
        moved = _difference(pair[0], pair[1])
        if moved is None:
            return None
        total += moved
    return total


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def check_counter(storage: Storage, counted: int | None, moved: int) -> None:
    """The mounts or the device counted at least the bytes that fio says it moved."""
    if counted is not None and counted < moved * _COUNTED:
        what = "the device" if storage.class_ == "local" else "the mount"
        raise ParseError("fio", f"it says that it moved {moved} B, {what} counted {counted} B")
