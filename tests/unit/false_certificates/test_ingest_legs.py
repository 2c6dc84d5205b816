"""A run that ends within an ingest leg loses no leg that was finished before."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from rackproof.bench.ingest.datasets import MARK, PROGRAM
from rackproof.bench.ingest.runs import TOOL
from rackproof.bench.plan import plan_steps
from rackproof.bench.storage.program_runs import configs_of
from rackproof.cli import proof, runs
from rackproof.core.architecture import DataSet, IngestJob
from rackproof.core.evidence import Kind, Measurement
from rackproof.core.rack import Node, Rack
from rackproof.core.verdict import Outcome
from rackproof.remote.command import CommandResult
from rackproof.run import stages
from tests.unit.bench.test_ingest import BEGIN, document
from tests.unit.bench.test_ingest import JOB as TRAIN
from tests.unit.bench.test_ingest import SET as PHOTOS
from tests.unit.fakes import reply
from tests.unit.false_certificates.racks import World
from tests.unit.judging import NODES, bar, criterion
from tests.unit.judging import document as architecture_of
from tests.unit.storage_nodes import StorageNodes

FIRST, SECOND = "ingest/nfs/train/storage-2", "ingest/nfs/train/undecoded-2"
RATE = "ingest.samples_rate"
PHOTOS_ON_NFS: DataSet = PHOTOS.model_copy(update={"storage": "nfs"})
WORKLOAD = {
    "title": "Pictures", "sample_size": {"value": 1000, "unit": "B", "source": "us"},
    "rate_per_gpu": {"value": 71.2, "unit": "1/s", "source": "us"}, "batch_per_gpu": 4,
}  # fmt: skip
TRAINING = IngestJob.model_validate(
    TRAIN.model_dump() | {"data": ("storage", "undecoded"), "seconds": 10, "warmup_s": 1}
)


@dataclass
class IngestNodes(StorageNodes):
    """Nodes with a whole data set; all accelerators are busy for ``busy_s`` of 10 s."""

    busy_s: float = 5.0
    interrupted: str = ""
    """A run with such data is interrupted, after its first node has answered."""
    ran: list[tuple[str, str]] = field(default_factory=list)
    """Data and node of each program that has ended."""
    starts: list[str] = field(default_factory=list)
    """Start file of each run."""

    def answer(self, node: str, command: str) -> CommandResult | None:
        if f"/{PROGRAM} state " in command:
            return self._told(node, command, {MARK: 1, "needed": 0, "free": 1, "complete": 6, "shards": 6})
        if f"/{PROGRAM} seal " in command:
            made = {"samples": 24, "distinct": 24, "copies": 1, "bytes": 24_000, "samples_sha256": "ab"}
            return self._told(node, command, {MARK: 1} | made)
        for own in configs_of(command, TOOL):
            if own["data"] == self.interrupted and own["node"] > 0:
                raise KeyboardInterrupt
            self.ran.append((own["data"], node))
            self.moved.setdefault((node, "/mnt/nfs"), [0, 0])[0] += 440_100
            if own["start_file"] not in self.starts:
                self.starts.append(own["start_file"])
            begin = BEGIN + 100 * len(self.starts)
            times = {"start_at": begin, "began_at": begin + 0.01, "ended_at": begin + 11.02}
            told = document(own) | times | {"node": node, "busy_s": [self.busy_s] * 2}
            told["pipeline"]["samples"] = 2000.0  # more than accelerators that are always busy take
            return self._told(node, command, told)
        return super().answer(node, command)

    def _told(self, node: str, command: str, what: dict[str, Any]) -> CommandResult:
        return reply(node, command, json.dumps(what) + "\n")


def certifying(world: World, monkeypatch: pytest.MonkeyPatch) -> IngestNodes:
    """``certify`` with the kit's own plan of two legs, with samples that are decoded and that are not."""
    legs = [
        criterion(id=data, metric=RATE, where={"data": data}, scope="rack",
                  bar=bar("ge", 1, "1/s"))
        for data in ("storage", "undecoded")
    ]  # fmt: skip
    photos, train = (one.model_dump(mode="json", exclude_unset=True) for one in (PHOTOS_ON_NFS, TRAINING))
    profile = {"ingest": {"datasets": {"photos": photos}, "jobs": {"train": train}}}
    made = architecture_of(*legs, profiles={"full": profile}, workloads={TRAIN.workload: WORKLOAD})
    made["storage"] = {"nfs": made["storage"]["nfs"]}
    (world.folder / "architectures/small.yaml").write_text(yaml.safe_dump(made, sort_keys=False))
    rack = Rack("a.py", tuple(
        Node(name, ("gpu",) if name.startswith("gpu") else ("storage",), {"fabric_addresses": [f"10.0.0.{number}/24"]})
        for number, name in enumerate(NODES, 1)
    ))  # fmt: skip
    nodes = IngestNodes(runs.architectures.load("small").model)
    plain = world.answer
    monkeypatch.setattr(world, "answer", lambda node, command: plain(node, command) or nodes.answer(node, command))
    for module in (stages, proof):
        monkeypatch.setattr(module, "plan_steps", plan_steps)
    monkeypatch.setattr(runs, "load_rack", lambda inventory: rack)
    return nodes


def numbers(world: World, step: str) -> list[Measurement]:
    """Everything that was recorded of a leg."""
    every = (Measurement.model_validate(r.body) for r in world.records if r.kind is Kind.MEASUREMENT)
    return [one for one in every if one.step == step]


def rates(world: World) -> dict[str, tuple[float, ...]]:
    """Samples a second of the rack in the certificate, by leg."""
    every = world.certificate()["measurements"]
    return {m["step"]: tuple(m["samples"]) for m in every if m["metric"] == RATE and m["scope"] == "rack"}


def test_a_run_that_ends_in_its_second_leg_keeps_the_first_and_repeats_the_second(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = certifying(world, monkeypatch)
    nodes.interrupted = "undecoded"
    assert world.run("certify", "a.py", "--quiet").exit_code == 130
    assert nodes.ran == [("storage", "gpu-01"), ("storage", "gpu-02"), ("undecoded", "gpu-01")]
    kept = numbers(world, FIRST)
    assert {m.reason for m in kept if m.metric == RATE} == {None}
    assert numbers(world, SECOND) == []
    assert world.run("judge", world.runs[0].name).exit_code == 2
    assert {id_: world.verdicts(id_)["rack"]["status"] for id_ in ("storage", "undecoded")} == {
        "storage": "PASS", "undecoded": "UNMEASURED",
    }  # fmt: skip

    nodes.interrupted, nodes.busy_s = "", 8.0
    nodes.ran.clear()
    result = world.certify("--resume", "latest")
    assert nodes.ran == [("undecoded", "gpu-01"), ("undecoded", "gpu-02")]
    assert numbers(world, FIRST) == kept
    rate = 2 * 2 * TRAINING.batch / TRAINING.step_s / TRAINING.seconds  # for each busy second of the four accelerators
    assert rates(world) == {FIRST: pytest.approx((5 * rate,)), SECOND: pytest.approx((8 * rate,))}
    assert result.exit_code == 0, result.output
    assert world.certificate()["outcome"] == Outcome.CERTIFIED
    assert world.run("judge", world.runs[0].name).exit_code == 0  # the numbers follow from the outputs of both parts
