"""Evidence read again: every number from its raw outputs, by the parsers of this kit."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rackproof.architectures import LoadedArchitecture
from rackproof.bench.reread import disproven
from rackproof.core.evidence import Kind, Record
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict
from rackproof.errors import ArchitectureError, RunError
from rackproof.evidence.folder import info_of, stored_architecture
from rackproof.evidence.store import read_raw


class Proof(NamedTuple):
    """What reading again found."""

    faults: dict[int, str]
    """Why outputs do not give a record's result, by the ``seq`` of the record."""
    read: int
    """How many results were read again."""
    seconds: float

    @property
    def line(self) -> str:
        return f"read {self.read} results again from their raw outputs in {self.seconds:.1f} s"


def prove(records: Sequence[Record], folder: Path, reference: LoadedArchitecture) -> Proof:
    """Read a run's evidence again. The run's own architecture counts; ``reference`` replaces one that is unreadable."""
    began = time.monotonic()
    info = info_of(records)
    own = reference
    if info.architecture_sha256 != reference.sha256:
        with contextlib.suppress(RunError, ArchitectureError):
            own = stored_architecture(folder, info)
    faults = disproven(records, partial(read_raw, folder), own.model, info.proofs)
    measured = sum(record.kind is Kind.MEASUREMENT and bool(record.body.get("samples")) for record in records)
    return Proof(faults, measured, time.monotonic() - began)


def verdict_of(faults: dict[int, str], records: Sequence[Record]) -> Verdict:
    """The headline for results that their raw outputs do not give; ``faults`` is not empty."""
    bodies = {record.seq: record.body for record in records if record.seq in faults}
    seq = min(faults)
    body = bodies[seq]
    name = str(body.get("check") or body.get("metric"))
    where = body.get("node") or "|".join(map(str, body.get("members", ())))
    labels = ", ".join(f"{key}={value}" for key, value in sorted(dict(body.get("labels") or {}).items()))
    item = labels or body.get("item")
    first = f"{name}{f'[{item}]' if item else ''} on {where} (record {seq}): {faults[seq]}"
    many = len(faults) > 1
    return Verdict(
        id="run.proof",
        kind="check",
        title="Results as their raw outputs give them",
        subject="rack",
        status=Status.INVALID,
        required=True,
        message=f"{len(faults)} results are not what their raw outputs give, the first: {first}" if many else first,
        reason="A result that its raw output does not give was edited, or was read wrongly when it was recorded.",
        hint="Compare the evidence with a copy; measure again where the results matter.",
        records=tuple(sorted(faults)),
    )
