"""The evidence of one run on disk: append-only, hash-chained, flushed before the next step begins."""

from __future__ import annotations

import datetime as dt
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rackproof.atomic_write import replace_file
from rackproof.core.bodies import fault
from rackproof.core.evidence import GENESIS, SCHEMA, CommandRecord, Frozen, Kind, Record, link_breaks, make_record
from rackproof.errors import EvidenceWriteError, RunError
from rackproof.remote.command import CommandResult
from rackproof.remote.redaction import redact_bytes, redacted

EVIDENCE = "evidence.jsonl"
RAW = "raw"
_SHA256 = re.compile("[0-9a-f]{64}")


def utc_now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class EvidenceStore:
    """Writer of a run's evidence. One process at a time; a second one is refused.

    Raises EvidenceWriteError when the disk is full or not writable: whatever was written before stays readable.
    """

    def __init__(self, folder: Path, now: Callable[[], str] = utc_now) -> None:
        self.folder = folder
        self._now = now
        self._seq, self._prev = 0, GENESIS
        try:
            (folder / RAW).mkdir(parents=True, exist_ok=True)
            self._handle = (folder / EVIDENCE).open("ab")
        except OSError as error:
            raise _write_error(folder, error) from error
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._handle.close()
            raise RunError(f"{folder}: another process is writing this run") from None
        for record in self._continue():
            self._seq, self._prev = record.seq + 1, record.hash

    def _continue(self) -> Iterator[Record]:
        """Records already there. A half-written last line (a killed run) is cut off first."""
        path = self.folder / EVIDENCE
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(path, whole)
        yield from read_records(self.folder)

    def close(self) -> None:
        self._handle.close()

    def __enter__(self) -> EvidenceStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, kind: Kind, body: Frozen | dict[str, Any]) -> Record:
        """Write one record; it is on the disk when this returns."""
        plain = body.model_dump(mode="json", by_alias=True) if isinstance(body, Frozen) else body
        record = make_record(self._seq, self._now(), kind, plain, self._prev)
        line = record.model_dump_json().encode() + b"\n"
        start = self._handle.tell()
        try:
            self._handle.write(line)
            self._handle.flush()
            os.fsync(self._handle.fileno())
        except OSError as error:
            self._cut(start)
            raise _write_error(self.folder, error) from error
        self._seq, self._prev = record.seq + 1, record.hash
        return record

    def _cut(self, size: int) -> None:
        """Take back a line that was written in part, so that the file stays readable."""
        try:
            os.truncate(self.folder / EVIDENCE, size)
        except OSError:
            return  # the reader skips a last line without its end anyway

    def raw(self, data: bytes) -> str:
        """Store an output under its sha256 and return that."""
        name = hashlib.sha256(data).hexdigest()
        path = self.folder / RAW / name
        if path.exists():
            return name
        try:
            replace_file(path, data, durable=True)
        except OSError as error:
            raise _write_error(self.folder, error) from error
        return name

    def output(self, data: bytes) -> str:
        """Store what a program printed, without its secrets, and return its name."""
        return self.raw(redact_bytes(data))

    def command(self, result: CommandResult) -> None:
        """Record a command and what it printed, without its secrets."""
        result = redacted(result)
        out, err = self.raw(result.stdout), self.raw(result.stderr)
        self.append(
            Kind.COMMAND,
            CommandRecord(
                node=result.node, command=result.command, rc=result.rc, stdout=out, stderr=err,
                stdout_bytes=len(result.stdout), stderr_bytes=len(result.stderr),
                elapsed_s=round(result.elapsed_s, 3), timeout_s=result.timeout_s, error=result.error,
            ),
        )  # fmt: skip


def read_records(folder: Path) -> list[Record]:
    """All whole records of a run. Raises RunError when a line is damaged or the chain is broken."""
    trusted = read_trusted(folder)
    if trusted.broken is not None:
        raise RunError(f"{folder / EVIDENCE}: {trusted.broken}")
    return trusted.records


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")  # and no JSON, although Python would read it


class Trusted(NamedTuple):
    """What of a run's evidence can be relied on."""

    records: list[Record]
    """Up to the first break."""
    broken: str | None
    """From which record on nothing can be relied on, and why; None where the chain is whole."""
    cut_off: bool
    """The last line was never finished: the run was killed while it wrote, or the file was truncated."""


def read_trusted(folder: Path) -> Trusted:
    """The records of a run as far as the chain holds. Raises RunError where there is no run to read."""
    path = folder / EVIDENCE
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise RunError(f"{folder}: no run there ({EVIDENCE} is missing)") from None
    except OSError as error:
        raise RunError(f"{path}: {error.strerror or error}") from error
    cut_off = lines.pop() != b""  # empty after the last newline, or a line that was never finished
    records: list[Record] = []
    prev = GENESIS
    for number, line in enumerate(lines, 1):
        try:
            record = Record.model_validate(json.loads(line, parse_constant=_no_number))
            # a number that overflows and half a character are found when the line is spelt again for its hash
            broken = next(link_breaks(record, len(records), prev), None)
        except (ValueError, RecursionError):
            return Trusted(records, f"line {number} is damaged", cut_off)
        if record.kind is Kind.RUN:
            _refuse_other_version(path, record)
        if broken := broken or fault(record):
            return Trusted(records, broken, cut_off)
        records.append(record)
        prev = record.hash
    return Trusted(records, None, cut_off)


def _refuse_other_version(path: Path, record: Record) -> None:
    """Raises RunError: of records whose meaning is not known nothing may be said."""
    schema = record.body.get("schema", SCHEMA)
    if isinstance(schema, str) and schema != SCHEMA:
        raise RunError(f"{path}: written by another version of rackproof ({schema[:40]!a}); this one reads {SCHEMA}")


def read_raw(folder: Path, name: str) -> bytes:
    """One stored output. Raises RunError when it is absent or does not match its name."""
    if not _SHA256.fullmatch(name):  # never a path
        raise RunError(f"{folder}: output {name[:12]!a} is missing (outputs have a sha256 for a name)")
    try:
        data = (folder / RAW / name).read_bytes()
    except OSError as error:
        raise RunError(f"{folder}: output {name[:12]} is missing ({error.strerror})") from error
    if hashlib.sha256(data).hexdigest() != name:
        raise RunError(f"{folder}: output {name[:12]} was changed after it was recorded")
    return data


def named_outputs(records: Iterable[Record]) -> dict[str, str]:
    """Every output that a record rests on, with what named it first: ``the measurement in record 7``."""
    outputs: dict[str, str] = {}
    for record in records:
        match record.kind:
            case Kind.COMMAND:
                names: Iterable[Any] = (record.body["stdout"], record.body["stderr"])
            case Kind.CHECK | Kind.MEASUREMENT | Kind.DEPLOY:
                names = record.body.get("raw", ())
            case _:
                continue
        for name in names:
            outputs.setdefault(name, f"the {record.kind.value} in record {record.seq}")
    return outputs


def lost_outputs(folder: Path, records: Iterable[Record]) -> list[str]:
    """A sentence for every output that a record names and that is missing or not what it was; each is read once."""
    lost = []
    for name, whose in named_outputs(records).items():
        try:
            read_raw(folder, name)
        except RunError as error:
            lost.append(f"{str(error).removeprefix(f'{folder}: ')}, of {whose}")
    return lost


def _write_error(folder: Path, error: OSError) -> EvidenceWriteError:
    return EvidenceWriteError(
        f"{folder}: cannot write evidence ({error.strerror or error}); make room and continue with --resume {folder}"
    )
