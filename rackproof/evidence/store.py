"""Evidence of one run on disk: append-only, hash-chained, flushed before the next step begins."""

from __future__ import annotations

import datetime as dt
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from rackproof.atomic_write import replace_file
from rackproof.core.bodies import fault, other_format
from rackproof.core.evidence import GENESIS, CommandRecord, End, Frozen, Kind, Record, link_breaks, make_record
from rackproof.core.texts import SHA256
from rackproof.errors import EvidenceWriteError, RunError
from rackproof.read_file import MIB, opened, read_bytes
from rackproof.remote.command import CommandResult
from rackproof.remote.redaction import redact_bytes, redact_json, redacted

EVIDENCE = "evidence.jsonl"
RAW = "raw"
LINE: Final = 64 * MIB
"""Bytes of a record; outputs are files of their own. A deploy's has 13 kB and more of each node."""


def utc_now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class EvidenceStore:
    """Writer of a run's evidence. One process at a time; a second one is refused.

    Raises EvidenceWriteError when the disk is full or not writable; evidence written before stays readable.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seq, self._prev = 0, GENESIS
        try:
            (folder / RAW).mkdir(parents=True, exist_ok=True)
            if (folder / EVIDENCE).exists():
                opened(folder / EVIDENCE).close()  # a FIFO would be waited for
            self._handle = (folder / EVIDENCE).open("ab", buffering=0)  # a buffer would be written again at the end
        except OSError as error:
            raise _write_error(folder, error) from error
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._handle.close()
            raise RunError(f"{folder}: another process is writing this run") from None
        self.records = list(self._continue())
        """All records of the run, those of earlier parts too."""
        if self.records:
            self._seq, self._prev = self.records[-1].seq + 1, self.records[-1].hash

    def _continue(self) -> Iterator[Record]:
        """Records of an earlier start of the run. A half-written last line, of a killed run, is cut off first."""
        path = self.folder / EVIDENCE
        with opened(path) as file:
            if (whole := _whole(file)) < file.seek(0, os.SEEK_END):
                os.truncate(path, whole)
        yield from read_records(self.folder)

    def close(self) -> None:
        self._handle.close()

    def __enter__(self) -> EvidenceStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, kind: Kind, body: Frozen | dict[str, Any]) -> Record:
        """Write one record without secrets and sync it to disk. Raises EvidenceWriteError."""
        return self._write(kind, redact_json(_plain(body) if isinstance(body, Frozen) else body))

    def _write(self, kind: Kind, plain: dict[str, Any]) -> Record:
        record = make_record(self._seq, utc_now(), kind, plain, self._prev)
        line = record.model_dump_json().encode() + b"\n"
        if len(line) > LINE:  # it could not be read again
            raise EvidenceWriteError(f"{self.folder}: a {kind.value} record has {len(line)} bytes, at most {LINE}")
        start = self._handle.tell()
        try:
            rest = memoryview(line)
            while rest:  # a disk that fills up takes a part
                rest = rest[self._handle.write(rest) :]
            os.fsync(self._handle.fileno())
        except OSError as error:
            self._cut(start)
            raise _write_error(self.folder, error) from error
        self._seq, self._prev = record.seq + 1, record.hash
        self.records.append(record)
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

    def command(self, result: CommandResult) -> CommandResult:
        """Record a command and its output with secrets redacted; return the result as recorded: a number made of it is
        the same when the evidence is read again."""
        result = replace(redacted(result), elapsed_s=round(result.elapsed_s, 3))
        out, err = self.raw(result.stdout), self.raw(result.stderr)
        record = CommandRecord(
            node=result.node, command=result.command, rc=result.rc, stdout=out, stderr=err,
            stdout_bytes=len(result.stdout), stderr_bytes=len(result.stderr),
            elapsed_s=result.elapsed_s, timeout_s=result.timeout_s, error=result.error,
        )  # fmt: skip
        self._write(Kind.COMMAND, _plain(record))
        return result


def _plain(body: Frozen) -> dict[str, Any]:
    return body.model_dump(mode="json", by_alias=True)


def read_records(folder: Path) -> list[Record]:
    """All whole records of a run. Raises RunError when a line is damaged or the chain is broken."""
    trusted = read_trusted(folder)
    if trusted.broken is not None:
        raise RunError(f"{folder / EVIDENCE}: {trusted.broken}")
    return trusted.records


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")  # not JSON, although Python reads it


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):  # the hash would prove the last one, another reader takes the first
        raise ValueError("a key is there twice")
    return members


class Trusted(NamedTuple):
    """The part of a run's evidence that its hash chain proves."""

    records: list[Record]
    """Up to the first break."""
    broken: str | None
    """The first break of the chain and its reason; None where the chain is whole."""
    cut_off: bool
    """The last line was never finished: the run was killed while it wrote, or the file was truncated."""


def read_trusted(folder: Path) -> Trusted:
    """Records of a run up to the first break of the chain. Raises RunError without a run, and for another format."""
    path = folder / EVIDENCE
    try:
        file = opened(path)
    except FileNotFoundError:
        raise RunError(f"{folder}: no run there ({EVIDENCE} is missing)") from None
    except OSError as error:
        raise RunError(f"{path}: {error.strerror or error}") from error
    with file:
        return _trusted(path, file)


def _trusted(path: Path, file: IO[bytes]) -> Trusted:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 1))
    cut_off = file.read() not in (b"", b"\n")
    file.seek(0)
    records: list[Record] = []
    prev = GENESIS
    for number, line in enumerate(iter(lambda: file.readline(LINE), b""), 1):
        if not line.endswith(b"\n") and len(line) < LINE:
            break  # never finished
        try:
            record = Record.model_validate(
                json.loads(line, parse_constant=_no_number, object_pairs_hook=_each_key_once)
            )
            # overflowing numbers and lone surrogates show when the line is serialised again for its hash
            broken = next(link_breaks(record, len(records), prev), None)
        except (ValueError, RecursionError):
            return Trusted(records, f"line {number} is damaged", cut_off)
        other = other_format(record.body) if record.kind is Kind.RUN else None
        if broken and not other:
            return Trusted(records, broken, cut_off)
        if why := other or fault(record):  # written so: the chain is intact
            kit = _written_by([*records, record][0].body)
            raise RunError(f"{path}: evidence of another format ({why}); judge it with the kit that wrote it{kit}")
        records.append(record)
        prev = record.hash
    return Trusted(records, None, cut_off)


def _whole(file: IO[bytes]) -> int:
    """Bytes up to the end of the last finished line; all of them where the last line is longer than any record."""
    size = file.seek(0, os.SEEK_END)
    start = file.seek(max(0, size - LINE))
    newline = file.read().rfind(b"\n")
    return start + newline + 1 if newline >= 0 or start == 0 else size


def _written_by(run: Mapping[str, Any]) -> str:
    """Version and build in the first record of a run."""
    version, build = (
        ascii(str(run.get(key, ""))[:size])[1:-1] for key, size in (("rackproof", 40), ("kit_sha256", 12))
    )
    return f": rackproof {version}{f', build {build}' if build else ''}" if version else ""


def read_raw(folder: Path, name: str) -> bytes:
    """One stored output. Raises RunError when it is absent or does not match its name."""
    if not re.fullmatch(SHA256, name):  # never a path
        raise RunError(f"{folder}: output {name[:12]!a} is missing (outputs have a sha256 for a name)")
    try:
        data = read_bytes(folder / RAW / name)
    except OSError as error:
        raise RunError(f"{folder}: output {name[:12]} is missing ({error.strerror})") from error
    if hashlib.sha256(data).hexdigest() != name:
        raise RunError(f"{folder}: output {name[:12]} was changed after it was recorded")
    return data


Output = Callable[[str], bytes]
"""A stored output by its sha256. Raises RunError if it is missing or changed."""


def answer_of(record: CommandRecord, output: Output) -> CommandResult:
    """A recorded command with its outputs. Raises RunError for a missing output."""
    return CommandResult(
        record.node, record.command, record.rc, output(record.stdout), output(record.stderr),
        record.elapsed_s, record.timeout_s, record.error,
    )  # fmt: skip


def named_outputs(records: Iterable[Record]) -> dict[str, str]:
    """Outputs that records refer to, each with its first reference: ``the measurement in record 7``."""
    outputs: dict[str, str] = {}
    for record in records:
        match record.kind:
            case Kind.COMMAND:
                names: Iterable[Any] = (record.body["stdout"], record.body["stderr"])
            case Kind.CHECK | Kind.MEASUREMENT | Kind.DEPLOY:
                names = record.body["raw"]
            case Kind.RUN:
                names = record.body["inventory_data"].values()
            case _:
                continue
        for name in names:
            outputs.setdefault(name, f"the {record.kind.value} in record {record.seq}")
    return outputs


def lost_outputs(folder: Path, records: Sequence[Record]) -> list[str]:
    """A sentence for every output of a record that is missing, was changed, or has not the recorded size; each output
    is read once."""
    lost = []
    sizes = {}
    for name, whose in named_outputs(records).items():
        try:
            sizes[name] = len(read_raw(folder, name))
        except RunError as error:
            lost.append(f"{str(error).removeprefix(f'{folder}: ')}, of {whose}")
    for record in records:
        for stream in ("stdout", "stderr") if record.kind is Kind.COMMAND else ():
            name, recorded = record.body[stream], record.body[f"{stream}_bytes"]
            if (size := sizes.get(name, recorded)) != recorded:
                whose = f"the {record.kind.value} in record {record.seq}"
                lost.append(f"output {name[:12]} has {size} bytes, recorded {recorded}, of {whose}")
    return lost


def _write_error(folder: Path, error: OSError) -> EvidenceWriteError:
    return EvidenceWriteError(
        f"{folder}: cannot write evidence ({error.strerror or error}); make room and start again"
        f" (certify: --resume {folder})"
    )
