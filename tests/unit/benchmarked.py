"""Benchmarks run on nodes in memory, and whether what a run left proves its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rackproof.bench.plan import plan_steps
from rackproof.bench.reread import disproven
from rackproof.bench.runner import run_steps
from rackproof.bench.step import Step
from rackproof.core.architecture import Architecture, Profile, StorageProfile
from rackproof.core.evidence import Kind, Measurement, Record
from rackproof.core.rack import Rack
from rackproof.evidence.folder import node_infos
from rackproof.evidence.store import read_raw, read_records
from tests.unit.fakes import Answer, lab_rack, scripted, virtual_rack


@dataclass(frozen=True)
class Bench:
    """A rack, and the profile of its architecture that is measured."""

    architecture: Architecture
    rack: Rack
    profile: str = "depth"

    def steps(self, begin: str = "") -> list[Step]:
        """Those whose ids begin like this."""
        return [s for s in plan_steps(self.architecture, self.profile, self.rack) if s.id.startswith(begin)]

    def measure(
        self,
        folder: Path,
        answer: Answer,
        steps: Sequence[Step] | None = None,
        *,
        dead: Iterable[str] = (),
        say: Callable[[str], None] = str,
        **more: Any,
    ) -> list[Measurement]:
        """Run all steps, or these; ``dead`` nodes do not answer."""
        with scripted(folder, answer, self.rack, self.architecture) as session:
            session.fleet.dead.update(dead)  # type: ignore[attr-defined]
            run_steps(session, self.steps() if steps is None else steps, set(), say, **more)
        return measurements(folder)

    def faults(self, folder: Path, records: Sequence[Record] | None = None, *, leave_out: str = "") -> dict[int, str]:
        """Faults of numbers in the evidence or in ``records``, by place; without commands that have ``leave_out``."""
        records = read_records(folder) if records is None else records
        if leave_out:
            records = [record for record in records if leave_out not in str(record.body.get("command", ""))]
        return disproven(records, partial(read_raw, folder), self.architecture, self.profile, node_infos(self.rack))


def of_storage(gpu: int = 2, **profile: Any) -> Bench:
    """The virtual rack, with a profile ``depth`` of storage: no jobs on ``nfs-tcp``, unless told otherwise."""
    sizes = StorageProfile(**{"jobs": {}, "storages": ("nfs-tcp",), **profile})
    rack = virtual_rack()
    profiles = {**rack.profiles, "depth": Profile(storage=sizes)}
    return Bench(rack.model_copy(update={"profiles": profiles}), lab_rack(gpu))


def measurements(folder: Path) -> list[Measurement]:
    return [Measurement.model_validate(r.body) for r in read_records(folder) if r.kind is Kind.MEASUREMENT]


def commands(folder: Path) -> list[str]:
    return [str(r.body["command"]) for r in read_records(folder) if r.kind is Kind.COMMAND]
