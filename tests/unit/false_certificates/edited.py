"""Certified evidence, edited, with a hash chain that is whole again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rackproof.cli.outputs import CERTIFICATE, judged
from rackproof.core.evidence import GENESIS, Kind, Record, make_record
from rackproof.core.verdict import Verdict
from rackproof.evidence.folder import info_of, stored_architecture
from rackproof.evidence.store import EVIDENCE, RAW, read_records
from rackproof.report.certificate import Certificate
from tests.unit.false_certificates.emulated import Emulated
from tests.unit.made_once import made_once

Body = dict[str, Any]


@cache
def example_folder() -> Path:
    """Certified evidence of the virtual rack, and its outputs; without the certificate."""
    (folder,) = made_once("certified", _certified).iterdir()
    return folder


def _certified(reports: Path) -> None:
    certificate = Emulated().certify(reports) / CERTIFICATE
    assert json.loads(certificate.read_bytes())["outcome"] == "CERTIFIED"
    certificate.unlink()


@cache
def example() -> tuple[Record, ...]:
    """The records of ``example_folder``."""
    return tuple(read_records(example_folder()))


def chained(bodies: Iterable[tuple[Kind, Body]]) -> list[Record]:
    """Records of these bodies, with a chain and ends made anew."""
    records: list[Record] = []
    prev = GENESIS
    for seq, (kind, body) in enumerate(bodies):
        if kind is Kind.END:
            body = body | {"records": seq, "head": prev}
        record = make_record(seq, "2026-11-22T02:00:00.000Z", kind, body, prev)
        records.append(record)
        prev = record.hash
    return records


def edited(change: Callable[[Record], Body | None], records: Sequence[Record] | None = None) -> list[Record]:
    """The example with the bodies that ``change`` gives; None keeps a body."""
    source = example() if records is None else records
    return chained((record.kind, change(record) or record.body) for record in source)


def without(records: Sequence[Record], gone: Record) -> list[Record]:
    """The evidence without one record, whole again: with a new chain, and an end that counts the records."""
    kept = chained((r.kind, r.body) for r in records if r is not gone)
    end = kept[-1].body | {"records": kept[-1].seq, "head": kept[-1].prev}
    return chained([*((r.kind, r.body) for r in kept[:-1]), (Kind.END, end)])


def with_body(seq: int, **fields: Any) -> list[Record]:
    """The example with other fields in one record."""
    return edited(lambda record: record.body | fields if record.seq == seq else None)


def certificate(records: Sequence[Record], folder: Path | None = None) -> Certificate:
    folder = folder or example_folder()
    return judged(records, stored_architecture(folder, info_of(records)), folder=folder)


def headline(made: Certificate, id_: str = "run.proof") -> Verdict:
    """The one verdict of this id. Raises ValueError where there is none."""
    (verdict,) = [verdict for verdict in made.verdicts if verdict.id == id_]
    return verdict


def copy(folder: Path, records: Sequence[Record]) -> Path:
    """A run on disk with these records and the example's outputs."""
    folder.mkdir(parents=True)
    shutil.copytree(example_folder() / RAW, folder / RAW)
    write(folder, records)
    return folder


def write(folder: Path, records: Iterable[Record]) -> None:
    (folder / EVIDENCE).write_text("".join(f"{record.model_dump_json()}\n" for record in records))


def of_kind(kind: Kind) -> list[Record]:
    return [record for record in example() if record.kind is kind]
