"""Evidence of one run on disk: append-only, hash-chained, flushed before the next step begins."""

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
from rackproof.core.evidence import GENESIS, SCHEMA, CommandRecord, End, Frozen, Kind, Record, link_breaks, make_record
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

    Raises EvidenceWriteError when the disk is full or not writable; evidence written before stays readable.
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
        """Records of an earlier start of the run. A half-written last line, of a killed run, is cut off first."""
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
        """Write one record and sync it to disk. Raises EvidenceWriteError."""
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

    def end(self, stages: Iterable[str], interrupted: bool = False) -> None:
        """Write the last record of this part of the run. Raises EvidenceWriteError."""
        self.append(Kind.END, End(records=self._seq, head=self._prev, stages=tuple(stages), interrupted=interrupted))

    def _cut(self, size: int) -> None:
        """Remove a line that was written in part, so that the file stays readable."""
        try:
            os.truncate(self.folder / EVIDENCE, size)
        except OSError:
            return  # the reader skips an unfinished last line

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
        """Store the output of a program with secrets redacted; return its name."""
        return self.raw(redact_bytes(data))

    def command(self, result: CommandResult) -> None:
        """Record a command and its output with secrets redacted."""
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
    raise ValueError(f"{name} is no number")  # not JSON, although Python reads it


class Trusted(NamedTuple):
    """The part of a run's evidence that its hash chain proves."""

    records: list[Record]
    """Up to the first break."""
    broken: str | None
    """The first break of the chain and its reason; None where the chain is whole."""
    cut_off: bool
    """The last line was never finished: the run was killed while it wrote, or the file was truncated."""


def read_trusted(folder: Path) -> Trusted:
    """Records of a run up to the first break of the chain. Raises RunError where there is no run."""
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
            # overflowing numbers and lone surrogates show when the line is serialised again for its hash
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
    """Raises RunError: records of another schema have unknown meaning."""
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
    """Outputs that records refer to, each with its first reference: ``the measurement in record 7``."""
    outputs: dict[str, str] = {}
    for record in records:
        match record.kind:
            case Kind.COMMAND:
                names: Iterable[Any] = (record.body["stdout"], record.body["stderr"])
            case Kind.CHECK | Kind.MEASUREMENT | Kind.DEPLOY:
                names = record.body.get("raw", ())
            case Kind.RUN:
                names = record.body.get("inventory_data", {}).values()
            case _:
                continue
        for name in names:
            outputs.setdefault(name, f"the {record.kind.value} in record {record.seq}")
    return outputs


def lost_outputs(folder: Path, records: Iterable[Record]) -> list[str]:
    """A sentence for every output of a record that is missing or was changed; each output is read once."""
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
