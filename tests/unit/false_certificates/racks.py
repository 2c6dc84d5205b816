"""Racks in memory, certified by the real command; their machines can be exchanged, restarted and lost."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from rackproof.architectures import LoadedArchitecture, of_run
from rackproof.bench import waiting
from rackproof.bench.step import BenchContext, Step, expected, reading_of
from rackproof.bench.storage.reader import read_storage
from rackproof.cli import proof, runs, unrecorded
from rackproof.cli.main import cli
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import CheckResult, Measurement, Record, Scope
from rackproof.core.planned_checks import PlannedChecks, planned
from rackproof.core.rack import Node, Rack
from rackproof.evidence.folder import node_infos
from rackproof.evidence.session import Session
from rackproof.evidence.store import read_records
from rackproof.parse.identity import IDENTITY_COMMAND
from rackproof.remote.command import CommandResult
from rackproof.report.document import plain
from rackproof.run import stages
from rackproof.run.converge import Converged
from rackproof.validation.reread import Reread
from rackproof.validation.selection import Selection
from tests.unit.deploys import deployed
from tests.unit.fakes import FakeFleet, identity_answer, reply
from tests.unit.judging import GPU, NODES, asked, check, criterion, document
from tests.unit.load_answers import Machine, load_answer
from tests.unit.storage_nodes import JOB, StorageNodes, recorded_run

STORAGES = ("nfs", "local")
_FINISHED: dict[tuple[str, float], Path] = {}
"""Runs of a healthy rack, by the text of the architecture and the rate of its storage."""


@dataclass
class World:
    """Nodes and their behaviour. ``hooks`` run when a step begins, by its id."""

    folder: Path
    machines: dict[str, int] = field(default_factory=lambda: {name: number for number, name in enumerate(NODES)})
    boots: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NODES, 1))
    failing: set[tuple[str, str]] = field(default_factory=set)
    """(check, node)"""
    silent: set[tuple[str, str]] = field(default_factory=set)
    """(check, node) without an answer."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why a check is unmeasured, by its id, where it has no common reason."""
    rate: float = 60.0
    clients: dict[str, Any] = field(default_factory=dict)
    """Fields of ``StorageNodes``: what its storage clients do."""
    computers: dict[str, Machine] = field(default_factory=lambda: {name: Machine() for name in NODES})
    """Nodes as ``bench.guard`` sees them."""
    hooks: dict[str, Callable[[], object]] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    """By inventory."""
    data: dict[str, Any] = field(default_factory=dict)
    """More data of every node in the inventory."""
    dead: set[str] = field(default_factory=set)
    steps: list[str] = field(default_factory=list)
    """That were executed."""
    deploys: list[tuple[str, ...]] = field(default_factory=list)
    """Nodes that the next deploys change."""
    declared: list[LoadedArchitecture] = field(default_factory=list)
    """Files that each deploy loads."""
    validations: int = 0
    before_validation: Callable[[], object] = lambda: None

    def rack(self, inventory: str) -> Rack:
        address = self.addresses.get(inventory, "10.0.0.")
        data = [{"ssh_hostname": f"{address}{number}", **self.data} for number in range(len(NODES))]
        groups = [("gpu",) if name in GPU else ("storage",) for name in NODES]
        return Rack(inventory, tuple(map(Node, NODES, groups, data)))

    def answer(self, node: str, command: str) -> CommandResult | None:
        if node in self.dead:
            return reply(node, command, rc=None, error="connection lost")
        if command == IDENTITY_COMMAND:
            return identity_answer(node, self.machines[node], self.boots[node])
        return load_answer(self.computers, node, command)

    def validate(
        self,
        session: Session,
        on_check: Callable[[CheckResult], object],
        on_planned: Callable[[PlannedChecks], object],
        *,
        selection: Selection,
        folder: Path,
    ) -> list[CheckResult]:
        self.before_validation()
        self.validations += 1
        xid = (("gpu.xid", "", node) for node in NODES)
        cases = list(dict.fromkeys((*asked(session.architecture, node_infos(session.rack)), *xid)))
        cases = [case for case in cases if selection.has_node(case[2]) and selection.has_name(case[0], case[2])]
        on_planned(planned(cases))
        silent = {node for *_, node in cases if session.run_on(node, "uname -r", 5).rc is None}
        results = []
        for name, item, node in cases:
            outcome = "failed" if (name, node) in self.failing else "passed"
            outcome = "unmeasured" if node in silent or (name, node) in self.silent else outcome
            why = {"message": self.reasons[name]} if outcome == "unmeasured" and name in self.reasons else {}
            results.append(check(node, name, outcome, item, **why))
            on_check(results[-1])
        return results

    def converge(self, rack: Rack, *, data: Sequence[str], dry: bool = False, **_: Any) -> Converged:
        self.declared.append(of_run(dict(entry.split("=", 1) for entry in data)["architecture"]))
        changing = self.deploys[0] if self.deploys else ()
        if not dry and self.deploys:
            self.deploys.pop(0)
        return deployed(NODES, dict.fromkeys(changing, ("file",)), dry=dry, inventory=rack.source)

    def plan(self, architecture: Architecture, profile: str, rack: Rack) -> list[Step]:
        return [self._step(architecture, profile, storage) for storage in STORAGES]

    def _step(self, architecture: Architecture, profile: str, storage: str) -> Step:
        labels = {"storage": storage, "block_bytes": str(JOB.block_bytes)}
        id_ = f"storage/{storage}/read"
        places = tuple(expected("storage.read_bandwidth", Scope.NODE, [node], labels, id_) for node in GPU)

        def execute(context: BenchContext) -> Iterator[Measurement]:
            self.steps.append(id_)
            self.hooks.pop(id_, lambda: None)()
            alive = [node for node in GPU if context.session.run_on(node, "true", 5).rc is not None]
            if alive:
                rates = dict.fromkeys(("read", "write"), self.rate * 1e6)
                clients = StorageNodes(architecture, rates, **self.clients)
                addresses = {node: f"10.0.0.{number}" for number, node in enumerate(alive, 1)}
                run = recorded_run(clients, storage, JOB, addresses)
                read = read_storage([context.session.record(answer) for answer in run], architecture)
                yield from (reading_of(place, read) for place in places if place.members[0] in alive)

        return Step(id_, id_, 1.0, places, execute, digest=f"{profile}-{id_}")

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, [*arguments, "--output", str(self.folder / "reports")])

    def certify(self, *more: str, inventory: str = "a.py") -> Result:
        result = self.run("certify", inventory, "--quiet", *more)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    def finished(self) -> Path:
        """The folder of a run of the healthy rack, as ``certify`` leaves it: made once a process, then copied."""
        healthy = World(self.folder, rate=self.rate)
        assert self == healthy
        key = (self.folder / "architectures/small.yaml").read_text(), self.rate
        if key not in _FINISHED:
            kept = Path(tempfile.mkdtemp(prefix="rackproof-tests-"))
            atexit.register(shutil.rmtree, kept, ignore_errors=True)
            self.certify()
            _FINISHED[key] = shutil.copytree(self.runs[-1], kept / self.runs[-1].name)
            shutil.rmtree(self.runs[-1])
            vars(self).update(vars(healthy))
        return shutil.copytree(_FINISHED[key], self.folder / "reports" / _FINISHED[key].name)

    @property
    def runs(self) -> list[Path]:
        return sorted((self.folder / "reports").iterdir())

    @property
    def records(self) -> list[Record]:
        return read_records(self.runs[-1])

    def certificate(self) -> dict[str, Any]:
        return plain(json.loads((self.runs[-1] / "certificate.json").read_text()))

    def page(self) -> str:
        return (self.runs[-1] / "certificate.html").read_text()

    def verdicts(self, id_: str) -> dict[str, dict[str, Any]]:
        """By subject."""
        return {v["subject"]: v for v in self.certificate()["verdicts"] if v["id"] == id_}


def text(storages: Iterable[str] = STORAGES) -> str:
    criteria = [criterion(id=f"{name}.read", where={"storage": name}) for name in storages]
    made = document(*criteria, profiles={"lab": {}, "full": {}})
    return yaml.safe_dump(made, sort_keys=False)


def world_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A healthy rack of three nodes, with the inventories ``a.py`` and ``b.py``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "architectures").mkdir()
    (tmp_path / "architectures/small.yaml").write_text(text())
    made = World(tmp_path)

    monkeypatch.setattr(waiting, "PAUSE_S", 0.0)
    for module in (stages, unrecorded):
        monkeypatch.setattr(module, "Fleet", lambda rack: FakeFleet(rack, made.answer, made.dead))
    monkeypatch.setattr(stages, "run_validators", made.validate)
    monkeypatch.setattr(stages, "converge", made.converge)
    monkeypatch.setattr(stages, "plan_steps", made.plan)
    monkeypatch.setattr(proof, "plan_steps", made.plan)
    monkeypatch.setattr(runs, "load_rack", made.rack)
    # its checks read nothing that could be read again
    monkeypatch.setattr(proof, "reread", lambda *_: Reread())
    monkeypatch.setattr(runs, "architecture_of", lambda rack, wanted: runs.architectures.load(wanted or "small"))
    return made
