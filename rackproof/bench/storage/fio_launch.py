"""Runs of fio on one client or several: requested jobs, and fio's results."""

from __future__ import annotations

import errno
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from rackproof.core.evidence import Measurement
from rackproof.core.wording import exact
from rackproof.parse import ParseError, fio
from rackproof.remote.command import CommandResult

RUN = "fio --eta=never --output-format=json "
"""How the kit begins fio, on one client or as the launcher of several. In containers its options are in another order:
``is_launch`` tells these runs apart by it."""
RAM, CACHED = "client_ram_bytes", "cached_bytes_start"
ONCE = "bytes_read"
"""Companion of runs that read no byte twice."""
ADD_UP = ("application_bytes", CACHED, RAM, "dataset_bytes", "iops", "outstanding")
"""Companions whose sum over clients is the rack's."""
AGREEMENT = 0.02
"""Tolerance of rates against total and run time, relative; for rounded run times also in seconds."""
SHARED = "storage.shared_file_read_bandwidth"
"""All clients read the first one's file."""
SYNCED = "storage.synced_write_iops"
"""An fsync follows every write."""
DAMAGE = "storage.damaged_places"
"""Files with checksums that their writer and other clients read back."""
CHECKED_WRITE, CHECKED_BY_WRITER, CHECKED_BY_OTHER = "-integrity-write", "-integrity-own", "-integrity-other"
"""Ends of the names of these jobs, after the storage's."""
BORROWED = ("-shared", CHECKED_BY_OTHER)
"""Ends of the names of jobs that read what another client has written."""
VERIFY = {"verify": "crc32c", "verify_interval": "4096"}
"""Each 4 KiB carry their place and a checksum of every byte, their header included."""
VERIFY_READ = VERIFY | {"verify_fatal": "1"}
"""Without ``verify_fatal`` fio 3.33 prints a wrong checksum and ends with status 0 and error 0."""
WORKLOADS = {
    "storage.read_bandwidth": "read",
    "storage.write_bandwidth": "write",
    "storage.random_read_iops": "randread",
    "storage.random_read_latency": "randread",
    "storage.random_read_bandwidth": "randread",
    SHARED: "read",
    SYNCED: "write",
}
"""``rw`` of a metric's job."""
_CLIENT = re.compile(r"--client=(?:sock:)?([^\s,]+)(?:,\d+)?")
_OPTIONS = {
    "rw": "rw", "bs": "block_bytes", "iodepth": "iodepth", "numjobs": "numjobs", "size": "file_bytes",
    "runtime": "runtime_s", "ramp_time": "ramp_s",
}  # fmt: skip


@dataclass(frozen=True)
class Launch:
    """One run of fio, and the commands on nodes between the previous run and this one."""

    answer: CommandResult
    before: tuple[CommandResult, ...]
    clients: Mapping[str, str] = field(default_factory=dict)
    """Nodes by socket or address in fio's command; by an empty one where fio ran on one node without a server."""
    jobs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Options of the job file and its ``name``, by node."""

    @cached_property
    def result(self) -> fio.FioResult:
        return fio.parse_fio(self.answer.stdout)

    @property
    def words(self) -> str:
        """Both streams of fio: a server's errors are on standard output, the client's own on standard error."""
        return f"{self.answer.text}\n{self.answer.stderr.decode(errors='replace')}"

    @cached_property
    def entries(self) -> dict[str, fio.JobResult]:
        """fio's result of each node, in fio's order. Raises ParseError for two of one node: its jobs are grouped."""
        entries: dict[str, fio.JobResult] = {}
        for entry in self.result.jobs:
            node = self.clients.get(entry.client or "")
            if node in entries:
                raise ParseError("fio", f"it reports {node} twice")
            if node is not None:
                entries[node] = entry
        return entries


def is_launch(command: str) -> bool:
    """Whether a command runs fio on clients of a storage."""
    return RUN in command


def launches(answers: Sequence[CommandResult]) -> Iterator[Launch]:
    """All runs of fio in a step's answers."""
    before: list[CommandResult] = []
    for answer in answers:
        if not is_launch(answer.command):
            before.append(answer)
            continue
        words = _words(answer.command)
        files = {
            words[at + 2].removeprefix("$d/").removesuffix(".fio"): words[at] for at in _places(words, ">")
        }  # fmt: skip
        clients = {
            match[1]: words[at + 1].removeprefix("$d/").removesuffix(".fio")
            for at, word in enumerate(words)
            if (match := _CLIENT.fullmatch(word))
        }
        if words[-2:] == (RUN.split()[-1], f"$d/{answer.node}.fio") and list(files) == [answer.node]:
            clients = {"": answer.node}
        yield Launch(answer, tuple(before), clients, {node: _options(text) for node, text in files.items()})
        before = []


@lru_cache(maxsize=256)
def _words(command: str) -> tuple[str, ...]:
    return tuple(shlex.split(command))


def _places(words: Sequence[str], mark: str) -> Iterator[int]:
    """Positions of words before a ``mark`` that a file name follows."""
    return (at - 1 for at, word in enumerate(words) if word == mark and words[at + 1].endswith(".fio"))


def _options(text: str) -> dict[str, str]:
    name, *lines = text.splitlines()
    return {"name": name.strip("[]")} | {key: value for key, _, value in (line.partition("=") for line in lines)}


def suffix_of(metric: str) -> str:
    """End of the name of a metric's job, after the storage's."""
    return {SHARED: "shared", SYNCED: "synced"}.get(metric) or WORKLOADS[metric]


def check_job(launch: Launch, nodes: Sequence[str], measurement: Measurement) -> None:
    """Raises ParseError if fio's job is not the measurement's."""
    rw, name = WORKLOADS[measurement.metric], f"{measurement.labels['storage']}-{suffix_of(measurement.metric)}"
    expected = {"name": name, "rw": rw, "bs": measurement.labels["block_bytes"]}
    expected |= {"fsync": "1"} if measurement.metric == SYNCED else {}
    for node in nodes:
        job = launch.jobs.get(node)
        if job is None:
            raise ParseError("fio", f"no job of {node}")
        for option, value in expected.items():
            if job.get(option) != value:
                raise ParseError("fio", f"expected {option}={value}, actual {job.get(option)}")


def found_damage(entry: fio.JobResult) -> bool:
    """Whether a job that verifies read other bytes than were written."""
    asked = all(entry.options.get(option) == value for option, value in VERIFY_READ.items())
    return asked and entry.error == errno.EILSEQ


def consistent(direction: fio.Direction) -> fio.Direction:
    """The direction. Raises ParseError if its rates contradict its bytes, requests and run time."""
    seconds = direction.runtime_ms / 1e3
    rates = [("bandwidth", direction.bandwidth_bytes_per_s, direction.io_bytes)]
    if direction.total_ios is not None:
        rates.append(("iops", direction.iops, direction.total_ios))
    for name, rate, total in rates:
        if seconds and abs(rate * seconds - total) > AGREEMENT * total + AGREEMENT * rate:
            raise ParseError("fio", f"{name} {exact(rate)} contradicts {total} in {seconds:g} s")
    return direction


def workload(job: Mapping[str, str], runs: int) -> dict[str, Any]:
    """Options of the job file, by field of ``FioJob``."""
    named = {key: job[option] for option, key in _OPTIONS.items() if option in job}
    numbers = {key: int(value) if value.isdecimal() else value for key, value in named.items()}
    return {"ramp_s": 0} | numbers | {"runs": runs} | ({"once": True} if reads_once(job) and "runtime" in job else {})


def reads_once(job: Mapping[str, str]) -> bool:
    """Whether a run reads no byte of its files twice: each process has its own file, and ends with it. fio's map of
    random blocks, where it is not turned off, has each block once."""
    repeats = {"time_based", "loops", "io_size", "norandommap"}
    return job.get("rw") in ("read", "randread") and not repeats & job.keys()
