"""Runs of the input pipeline in a step's answers, with the clients' states around each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from rackproof.bench.gpu.links import is_sampler
from rackproof.bench.storage import program_runs
from rackproof.bench.storage.program_runs import ProgramRun
from rackproof.parse import ParseError
from rackproof.parse.gpu_list import LIST
from rackproof.parse.jsondoc import Json
from rackproof.remote.command import CommandResult

TOOL: Final = "ingest_node.py"
MARK: Final = "rackproof_ingest"
_PAGE: Final = 4096


@dataclass(frozen=True)
class Part:
    """Configuration and answer of one node for one job in one run."""

    config: Mapping[str, Any]
    answer: Json
    raw: CommandResult

    @property
    def window_s(self) -> float:
        return self.answer.number("seconds")

    @property
    def start_at(self) -> float:
        """The common start by the node's clock, seconds since 1970."""
        return self.answer.number("start_at")

    @property
    def busy_of_each(self) -> list[float]:
        """Busy time by accelerator, seconds."""
        return _numbers(self.answer, "busy_s", int(self.config["accelerators"]))

    @property
    def busy_s(self) -> float:
        """Busy time of all accelerators together."""
        return sum(self.busy_of_each)

    @property
    def rate(self) -> float:
        """Samples a second that the accelerators took; of real ones whole steps count, of emulated ones also parts."""
        if self.real:
            return sum(self.steps) * float(self.config["batch"]) / self.window_s
        return self.busy_s / float(self.config["step_s"]) * float(self.config["batch"]) / self.window_s

    @property
    def steps(self) -> list[float]:
        """Number of steps by accelerator."""
        return _numbers(self.answer, "steps", int(self.config["accelerators"]))

    @property
    def real(self) -> Mapping[str, Any]:
        """Parameters of real accelerators; empty for emulated ones."""
        return self.config.get("torch") or {}

    def pipeline(self, name: str) -> float:
        return self.answer.child("pipeline").number(name)

    @property
    def reads(self) -> bool:
        """Whether its samples come from the storage."""
        return self.config["data"] in ("storage", "undecoded")

    @property
    def read(self) -> float:
        """Bytes that the pipeline read over the whole run, with the index."""
        return self.pipeline("bytes") + self.answer.child("dataset").number("index_bytes")

    @property
    def pages(self) -> float:
        """Bytes that a local drive gives at most beyond those read: files end with a whole page."""
        dataset = self.answer.child("dataset")
        files = dataset.number("files") if dataset.has("files") else 0.0
        return _PAGE * files * self.pipeline("bytes") / dataset.number("bytes", minimum=1.0)

    @property
    def series(self) -> list[list[float | None]]:
        """Seconds since the start, busy and all ticks, bytes of ports, RDMA and mounts, the pipeline's bytes."""
        rows: Any = self.answer.values.get("series")
        sound = isinstance(rows, list) and len(rows) >= 2 and all(_row(row) for row in rows)
        if not sound or any(later[0] <= earlier[0] for earlier, later in pairwise(rows)):
            raise ParseError(TOOL, "its series of counters is not complete")
        return list(rows)


def _row(row: Any) -> bool:
    numbers = isinstance(row, list) and len(row) == 7 and row[0] is not None
    return numbers and all(value is None or (type(value) in (int, float) and 0 <= value < math.inf) for value in row)


def _numbers(document: Json, key: str, count: int) -> list[float]:
    values = document.values.get(key)
    if not isinstance(values, list) or len(values) != count:
        raise ParseError(TOOL, f"expected {count} values of {key}")
    checked = Json(TOOL, f"{key}.", {str(place): value for place, value in enumerate(values)})
    return [checked.number(str(place)) for place in range(count)]


@dataclass
class Run(ProgramRun):
    """A run with each node's list of GPUs before it, and samples of the GPUs during it."""

    lists: dict[str, CommandResult] = field(default_factory=dict)
    """GPUs before the run."""
    samples: dict[str, CommandResult] = field(default_factory=dict)
    """Samples of the GPUs during the run."""


def part_of(run: Run, node: str, job: str) -> Part:
    """Raises ParseError with the program's own error, or without a whole document."""
    config, document = run.document(node, job)
    return Part(config, document, run.answers[node])


def runs_of(answers: Iterable[CommandResult]) -> list[Run]:
    """All runs, in order, each with the lists of GPUs before it and the samples of GPUs after it."""
    lists: dict[str, CommandResult] = {}

    def begun(*arguments: Any) -> Run:
        run = Run(*arguments)
        run.lists |= lists
        return run

    def note(answer: CommandResult, newest: Run | None) -> None:
        if answer.command == LIST:
            lists[answer.node] = answer
        elif is_sampler(answer.command) and newest is not None:
            newest.samples[answer.node] = answer

    return program_runs.program_runs(answers, TOOL, MARK, begun, note)
