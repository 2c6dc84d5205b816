"""fio job files. Sizes are plain bytes: the meaning of fio's suffixes depends on ``kb_base``."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rackproof.core.architecture import FioJob, WholeFile

TEST_FILE = "rackproof"
"""Stem of the files that a job reads and writes inside its own directory."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Files that jobs read and write: file k, from 0, belongs to process k of every job."""

    block_bytes: int
    iodepth: int
    numjobs: int
    file_bytes: int

    @property
    def bytes(self) -> int:
        """Bytes of one client."""
        return self.file_bytes * self.numjobs


_LAYOUT_BLOCK = 1 << 20


def layout_of(jobs: Iterable[FioJob]) -> Layout:
    """Files that are large enough and enough for all jobs."""
    every = list(jobs)
    largest = max(job.file_bytes for job in every)
    block = max(_LAYOUT_BLOCK, *(job.block_bytes for job in every))
    widest = max(job.block_bytes for job in every)  # the depth of a job with small requests is too much for large ones
    depth = min(32, max(job.iodepth for job in every if job.block_bytes == widest))
    return Layout(block, depth, max(job.numjobs for job in every), -(-largest // block) * block)


def _job_file(name: str, directory: str, engine: str, rw: str, layout: Layout, further: Iterable[str]) -> str:
    """One job over the files of ``layout``, with its block size and depth."""
    lines = [
        f"[{name}]",
        f"ioengine={engine}",
        "direct=1",
        "thread=1",
        f"directory={directory}",
        f"filename_format={TEST_FILE}.$jobnum",
        "unique_filename=0",
        "fallocate=none",
        f"rw={rw}",
        f"bs={layout.block_bytes}",
        f"size={layout.file_bytes}",
        f"iodepth={layout.iodepth}",
        f"numjobs={layout.numjobs}",
        "group_reporting=1",
        "create_serialize=0",
        "invalidate=1",
        "refill_buffers=1",
        *([] if rw == "write" else ["allow_file_create=0"]),  # it would read what it has just written itself
        *further,
    ]
    return "\n".join(lines) + "\n"


_WRITES = ("randrepeat=0", "end_fsync=1")
"""Data that no storage can compress or deduplicate, and all of it on the storage at the end."""


def command_line(job_file: str) -> str:
    """A job file of one job as the equivalent command line."""
    name, *options = job_file.splitlines()
    return shlex.join(["fio", f"--name={name[1:-1]}", *(f"--{option}" for option in options)])


def ramp_of(job_file: str) -> int:
    """Seconds that a job file of one job runs before fio counts; 0 without a ramp."""
    options = dict(line.partition("=")[::2] for line in job_file.splitlines())
    return int(options.get("ramp_time", 0))


def options_of(words: Iterable[str]) -> dict[str, str]:
    """Options of a job on fio's command line, and its ``name``; without those of fio itself."""
    pairs = (word.removeprefix("--").partition("=") for word in words if "=" in word)
    return {key: value for key, _, value in pairs if key not in ("eta", "output-format")}


def render_layout(name: str, layout: Layout, directory: str, engine: str = "libaio", limit_s: int | None = None) -> str:
    """A job file that writes every byte of the files once, with data that no storage can compress or deduplicate.

    With ``limit_s`` it stops after so many seconds; fio's ``io_bytes`` tells whether it was complete.
    """
    limit = [] if limit_s is None else [f"runtime={limit_s}"]
    return _job_file(name, directory, engine, "write", layout, [*_WRITES, *limit])


def render_whole(name: str, job: WholeFile, directory: str, rw: str, options: Mapping[str, str]) -> str:
    """A job file that writes (``rw``: write) or reads (read) every byte of the files once, with further ``options``."""
    layout = Layout(job.block_bytes, job.iodepth, job.job.numjobs, job.file_bytes)
    further = [*(_WRITES if rw == "write" else ()), *(f"{option}={value}" for option, value in options.items())]
    return _job_file(name, directory, "libaio", rw, layout, further)


def render(
    name: str,
    job: FioJob,
    directory: str,
    engine: str = "libaio",
    arrivals: int | None = None,
    *,
    synced: bool = False,
) -> str:
    """A job file with one job. ``engine`` is fio's ``ioengine``; it must keep ``iodepth`` requests in flight.

    ``arrivals``: requests a second that each process sends, at random times (Poisson), however many are in flight.
    ``synced``: an fsync follows every write.

    Every client has its own directory: clients must not share test files on a shared file system, and fio's own prefix
    is the controller's address, the same for all clients.
    """
    further = [
        *([] if job.once else ["time_based=1"]),
        f"runtime={job.runtime_s}",
        *([f"ramp_time={job.ramp_s}"] if job.ramp_s else []),
        *(_WRITES if job.rw == "write" else ()),
        *(["fsync=1"] if synced else []),
        *(["norandommap=1", "random_generator=tausworthe64"] if job.rw == "randread" and not job.once else []),
        *([f"rate_iops={arrivals}", "rate_process=poisson"] if arrivals is not None else []),
    ]
    layout = Layout(job.block_bytes, job.iodepth, job.numjobs, job.file_bytes)
    return _job_file(name, directory, engine, job.rw, layout, further)
