"""fio: JSON of versions 2 and 3, run locally (``jobs``) or as a client of fio servers (``client_stats``).

A client whose server refuses a job drops it and still ends with status 0: its entry is missing, and its error message
is only in the text before the document (``FioResult.messages``). Compare ``clients`` with the requested clients.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rackproof.parse.errors import ParseError
from rackproof.parse.jsondoc import Json, find_json

TOOL: Final = "fio"
_ALL_CLIENTS: Final = "All clients"
_VERSION: Final = re.compile(r"fio-(\d+(?:\.\d+)*\S*)")
_PROGRESS: Final = re.compile(
    r"\S+: \(g=\d+\): rw=.*|\.\.\.|fio-\d[\w.-]*|.*: Laying out IO files? .*"
    r"|Starting \d+ (?:process|thread)(?:es|s)?(?: and \d+ threads?)?"
)
"""Lines that fio prints on every run."""
_PERCENTILE: Final = re.compile(r"\d+\.\d+")
_OF_DOCUMENT: Final = re.compile(r"\s*[\"{}\[\]]")
"""Lines of a document that ends too early."""
_DAMAGE: Final = re.compile(r" at file (/.+) offset (\d+), length \d+ \(requested block: ")
_FROM_CLIENT: Final = re.compile(r"<([^<>\s]+)>\s?(.*)")


@dataclass(frozen=True, slots=True)
class Direction:
    """I/O of one job in one direction; all zeros without I/O in that direction."""

    bandwidth_bytes_per_s: float
    """Mean over the run time; exact from fio 3 on, rounded down to KiB by fio 2."""
    iops: float
    io_bytes: int
    runtime_ms: int
    total_ios: int | None
    """None: fio 2.1 does not report it."""
    clat_ns: float | None
    """Mean completion latency; None when nothing completed or ``gtod_reduce`` turns it off."""
    lat_ns: float | None
    """Mean latency from submission to completion."""
    percentiles_ns: Mapping[float, float] = field(default_factory=dict)
    """Completion latency by percentile; empty where fio printed none."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """One job of one client; with ``numjobs`` and no ``group_reporting``, one per process."""

    jobname: str
    client: str | None
    """The argument of ``--client``; None for a local job."""
    port: int | None
    error: int
    """errno; the numbers are valid only if it is 0."""
    read: Direction | None
    write: Direction | None
    mixed: Direction | None
    """Both directions together, with ``unified_rw_reporting``."""
    options: Mapping[str, str]
    """As fio understood them, the global ones included; empty where this version does not report them."""
    syncs: int | None = None
    """Number of fsyncs that followed writes; None where this version does not report it."""
    start_ms: int | None = None
    """Start of its first process since 1970, by the client's clock; None: fio before 3.36 does not report it."""


@dataclass(frozen=True, slots=True)
class Message:
    """A line that fio printed around its document."""

    host: str | None
    """Host name of the server that it came from; None: of the program itself."""
    text: str


@dataclass(frozen=True, slots=True)
class Damage:
    path: str
    offset: int
    """First byte of the checked block, in bytes from the file's begin."""


@dataclass(frozen=True, slots=True)
class FioResult:
    version: str
    jobs: tuple[JobResult, ...]
    """Without fio's own sum over the clients."""
    timestamp_ms: int | None
    """When fio printed it, by the node's clock, since 1970; None where the version does not report it."""
    messages: tuple[str, ...]
    """Lines that fio printed before and after the document."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Hosts that reported at least one job, in order of appearance."""
        return tuple(dict.fromkeys(job.client for job in self.jobs if job.client is not None))

    @property
    def failed(self) -> tuple[JobResult, ...]:
        """Jobs that ended with an error."""
        return tuple(job for job in self.jobs if job.error)


def parse_fio(output: str | bytes) -> FioResult:
    """Read the JSON document out of fio's output; warnings and notes may surround it."""
    parsed = find_json(TOOL, output, _is_document)
    document = Json(TOOL, "", parsed.value)
    version = _VERSION.fullmatch(document.string("fio version"))
    if version is None:
        document.refuse("fio version", "is not a version")
    if document.has("jobs") == document.has("client_stats"):
        raise ParseError(TOOL, "document needs either jobs or client_stats")
    remote = document.has("client_stats")
    common = _options(document, "global options")
    entries = [_job(entry, common, remote=remote) for entry in document.children("client_stats" if remote else "jobs")]
    if not entries:
        raise ParseError(TOOL, "document reports no job")
    sums = [job for job in entries if remote and job.jobname == _ALL_CLIENTS]
    if len(sums) > 1:
        raise ParseError(TOOL, f"{len(sums)} sums over all clients")
    lines = (line.strip() for line in (parsed.before + "\n" + parsed.after).splitlines())
    return FioResult(
        version=version[1],
        jobs=tuple(job for job in entries if job not in sums),
        timestamp_ms=_timestamp_ms(document),
        messages=tuple(line for line in lines if any(c.isalnum() for c in line)),
    )


def complaints(text: str) -> tuple[Message, ...]:
    """Lines outside of the document that are not part of a normal run, also where there is no document."""
    try:
        parsed = find_json(TOOL, text, _is_document)
        outside = f"{parsed.before}\n{parsed.after}"
    except ParseError:
        outside = "\n".join(line for line in text.splitlines() if not _OF_DOCUMENT.match(line))
    messages = []
    for line in outside.splitlines():
        match = _FROM_CLIENT.fullmatch(line.strip())
        host, words = (match[1], match[2].strip()) if match else (None, line.strip())
        if any(c.isalnum() for c in words) and not _PROGRESS.fullmatch(words):
            messages.append(Message(host, words.removeprefix("fio: ")))
    return tuple(messages)


def damages(text: str) -> tuple[Damage, ...]:
    """Places that fio's verification names: in every one something is not what was written."""
    places = (_DAMAGE.search(message.text) for message in complaints(text))
    return tuple(dict.fromkeys(Damage(match[1], int(match[2])) for match in places if match))


def file_complaint(text: str) -> str | None:
    """The line of a run that laid out a file itself, or refused to: the file was missing or too short."""
    signs = ("Laying out IO file", "file creation disallowed")
    return next((line.strip() for line in text.splitlines() if any(sign in line for sign in signs)), None)


def _is_document(value: Any) -> bool:
    return isinstance(value, dict) and "fio version" in value


def _timestamp_ms(document: Json) -> int | None:
    if document.has("timestamp_ms"):
        return document.integer("timestamp_ms")
    return document.integer("timestamp") * 1000 if document.has("timestamp") else None


def _job(entry: Json, common: Mapping[str, str], *, remote: bool) -> JobResult:
    directions = {key: _direction(entry.child(key)) for key in ("read", "write", "mixed") if entry.has(key)}
    if not directions:
        entry.refuse("read, write and mixed", "are missing")
    return JobResult(
        jobname=entry.string("jobname"),
        client=entry.string("hostname") if remote else None,
        port=entry.integer("port") if remote else None,
        error=entry.integer("error", minimum=None),
        read=directions.get("read"),
        write=directions.get("write"),
        mixed=directions.get("mixed"),
        options={**common, **(_options(entry, "job options"))},
        syncs=_syncs(entry),
        start_ms=entry.integer("job_start") if entry.has("job_start") else None,
    )


def _syncs(entry: Json) -> int | None:
    if not entry.has("sync") or not entry.child("sync").has("total_ios"):
        return None
    return entry.child("sync").integer("total_ios")


def _options(entry: Json, key: str) -> dict[str, str]:
    """Options of a job; a list where fio 3 has none. Raises ParseError where one is no text."""
    if not entry.has(key) or entry.values[key] == []:
        return {}
    options = entry.child(key)
    return {name: options.string(name) if options.values[name] else "" for name in options.values}


def _direction(entry: Json) -> Direction:
    """fio 2 counts ``io_bytes`` and ``bw`` in KiB; fio 3 adds ``io_kbytes`` and ``bw_bytes`` and counts bytes."""
    in_bytes = entry.has("io_kbytes")
    total = entry.integer("total_ios") if entry.has("total_ios") else None
    io_bytes = entry.integer("io_bytes") * (1 if in_bytes else 1024)
    idle = total == 0 or io_bytes == 0
    return Direction(
        bandwidth_bytes_per_s=entry.number("bw_bytes") if entry.has("bw_bytes") else entry.number("bw") * 1024,
        iops=entry.number("iops"),
        io_bytes=io_bytes,
        runtime_ms=entry.integer("runtime"),
        total_ios=total,
        clat_ns=None if idle else _latency_ns(entry, "clat"),
        lat_ns=None if idle else _latency_ns(entry, "lat"),
        percentiles_ns={} if idle else _percentiles_ns(entry),
    )


def _latency_ns(entry: Json, kind: str) -> float | None:
    """Mean latency in nanoseconds, whatever unit the version prints."""
    key, scale = (f"{kind}_ns", 1) if entry.has(f"{kind}_ns") else (kind, 1000)
    if not entry.has(key):
        return None
    values = entry.child(key)
    return values.number("mean") * scale if values.number("max") else None  # 0: not measured


def _percentiles_ns(entry: Json) -> dict[float, float]:
    key, scale = ("clat_ns", 1) if entry.has("clat_ns") else ("clat", 1000)
    if not entry.has(key) or not entry.child(key).has("percentile"):
        return {}
    values = entry.child(key).child("percentile")
    return {float(name): values.number(name) * scale for name in values.values if _PERCENTILE.fullmatch(name)}
