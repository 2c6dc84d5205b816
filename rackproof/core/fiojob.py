"""fio job files. Sizes are plain bytes: the meaning of fio's suffixes depends on ``kb_base``."""

from __future__ import annotations

from rackproof.core.architecture import FioJob

TEST_FILE = "rackproof"
"""Stem of the files that a job reads and writes inside its own directory."""


def render(name: str, job: FioJob, directory: str, engine: str = "libaio") -> str:
    """A job file with one job. ``engine`` is fio's ``ioengine``; it must keep ``iodepth`` requests in flight.

    Every client has its own directory: clients must not share test files on a shared file system, and fio's own prefix
    is the controller's address, the same for all clients.
    """
    lines = [
        f"[{name}]",
        f"ioengine={engine}",
        "direct=1",
        "thread=1",
        f"directory={directory}",
        f"filename_format={TEST_FILE}.$jobnum",
        "unique_filename=0",
        f"rw={job.rw}",
        f"bs={job.block_bytes}",
        f"size={job.file_bytes}",
        f"iodepth={job.iodepth}",
        f"numjobs={job.numjobs}",
        "group_reporting=1",
        "create_serialize=0",
        "invalidate=1",
        "refill_buffers=1",
        "time_based=1",
        f"runtime={job.runtime_s}",
    ]
    if job.ramp_s:
        lines.append(f"ramp_time={job.ramp_s}")
    if job.rw == "write":
        lines.append("end_fsync=1")
    if job.rw == "randread":
        lines += ["norandommap=1", "random_generator=tausworthe64"]
    return "\n".join(lines) + "\n"
