"""Certified evidence, edited, with a hash chain that is whole again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rackproof.cli.outputs import judged
from rackproof.core.evidence import GENESIS, Kind, Record, make_record
from rackproof.core.verdict import Verdict
from rackproof.evidence.folder import info_of, stored_architecture
from rackproof.evidence.store import EVIDENCE, RAW, read_records
from rackproof.report.certificate import Certificate

EXAMPLE = Path(__file__).parents[3] / "reports/examples/virtual-rack"

Body = dict[str, Any]


@cache
def example() -> tuple[Record, ...]:
    """The certified evidence of the virtual rack that the kit ships."""
    return tuple(read_records(EXAMPLE))


def chained(bodies: Iterable[tuple[Kind, Body]]) -> list[Record]:
    """Records of these bodies, with a chain made anew."""
    records: list[Record] = []
    prev = GENESIS
    for seq, (kind, body) in enumerate(bodies):
        record = make_record(seq, "2026-11-22T02:00:00.000Z", kind, body, prev)
        records.append(record)
        prev = record.hash
    return records


def edited(change: Callable[[Record], Body | None], records: Sequence[Record] | None = None) -> list[Record]:
    """The example with the bodies that ``change`` gives; None keeps a body."""
    source = example() if records is None else records
    return chained((record.kind, change(record) or record.body) for record in source)


def with_body(seq: int, **fields: Any) -> list[Record]:
    """The example with other fields in one record."""
    return edited(lambda record: record.body | fields if record.seq == seq else None)


def certificate(records: Sequence[Record], folder: Path = EXAMPLE) -> Certificate:
    return judged(records, stored_architecture(folder, info_of(records)), folder=folder)


def headline(made: Certificate, id_: str = "run.proof") -> Verdict:
    """The one verdict of this id. Raises ValueError where there is none."""
    (verdict,) = [verdict for verdict in made.verdicts if verdict.id == id_]
    return verdict


def copy(folder: Path, records: Sequence[Record]) -> Path:
    """A run on disk with these records and the example's outputs."""
    folder.mkdir(parents=True)
    shutil.copytree(EXAMPLE / RAW, folder / RAW)
    (folder / EVIDENCE).write_text("".join(f"{record.model_dump_json()}\n" for record in records))
    return folder


def of_kind(kind: Kind) -> list[Record]:
    return [record for record in example() if record.kind is kind]
