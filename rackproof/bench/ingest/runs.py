"""Runs of the input pipeline in a step's answers, with the clients' states around each."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from rackproof.bench.gpu.links import is_sampler
from rackproof.bench.storage.commands import AFTER, BEFORE, DROP, state_of
from rackproof.bench.storage.runs import State, state_in
from rackproof.parse import ParseError
from rackproof.parse.gpu_list import LIST
from rackproof.parse.jsondoc import Json
from rackproof.remote.command import CommandResult

TOOL: Final = "ingest_node.py"
MARK: Final = "rackproof_ingest"
_PROGRAM: Final = re.compile(r"/ingest_node\.py (.*)\Z", re.DOTALL)


@dataclass(frozen=True)
class Part:
    """What one node did for one job in one run."""

    config: Mapping[str, Any]
    answer: Json
    raw: CommandResult

    @property
    def window_s(self) -> float:
        return self.answer.number("seconds")

    @property
    def busy_s(self) -> float:
        """Of all accelerators."""
        return sum(_numbers(self.answer, "busy_s", int(self.config["accelerators"])))

    @property
    def rate(self) -> float:
        """Samples a second that the accelerators took; of real ones whole steps count, of emulated ones also parts."""
        if self.real:
            return sum(self.steps) * float(self.config["batch"]) / self.window_s
        return self.busy_s / float(self.config["step_s"]) * float(self.config["batch"]) / self.window_s

    @property
    def steps(self) -> list[float]:
        """By accelerator."""
        return _numbers(self.answer, "steps", int(self.config["accelerators"]))

    @property
    def real(self) -> Mapping[str, Any]:
        """What real accelerators were asked for; empty for emulated ones."""
        return self.config.get("torch") or {}

    def pipeline(self, name: str) -> float:
        return self.answer.child("pipeline").number(name)

    @property
    def series(self) -> list[list[float | None]]:
        """Seconds since the start, busy and all ticks, bytes of ports, RDMA and mounts, the pipeline's bytes."""
        rows: Any = self.answer.values.get("series")
        sound = isinstance(rows, list) and len(rows) >= 2 and all(_row(row) for row in rows)
        if not sound or any(later[0] <= earlier[0] for earlier, later in pairwise(rows)):
            raise ParseError(TOOL, "its series of counters is not complete")
        return list(rows)


def _row(row: Any) -> bool:
    numbers = isinstance(row, list) and len(row) == 7
    return numbers and all(value is None or (isinstance(value, int | float) and value >= 0) for value in row)


def _numbers(document: Json, key: str, count: int) -> list[float]:
    values = document.values.get(key)
    if not isinstance(values, list) or len(values) != count:
        raise ParseError(TOOL, f"expected {count} values of {key}")
    checked = Json(TOOL, f"{key}.", {str(place): value for place, value in enumerate(values)})
    return [checked.number(str(place)) for place in range(count)]


@dataclass
class Run:
    """One run on several nodes; ``configs`` by node and job."""

    before: Mapping[str, CommandResult]
    dropped: bool
    """Whether caches were dropped since the run before."""
    servers_dropped: bool | None
    """None without a command on servers."""
    answers: dict[str, CommandResult] = field(default_factory=dict)
    after: dict[str, CommandResult] = field(default_factory=dict)
    lists: dict[str, CommandResult] = field(default_factory=dict)
    """GPUs by node, as the driver lists them."""
    samples: dict[str, CommandResult] = field(default_factory=dict)
    """What the driver says of the GPUs during the run, by node."""

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(self.answers)

    def configs(self, node: str) -> list[dict[str, Any]]:
        return configs_of(self.answers[node].command)

    @property
    def jobs(self) -> tuple[str, ...]:
        """Names of the jobs that ran together."""
        return tuple(str(config["job"]) for config in self.configs(next(iter(self.answers))))

    def part(self, node: str, job: str) -> Part:
        """Raises ParseError with the program's own error, or without a whole document."""
        answer = self.answers.get(node)
        if answer is None:
            raise ParseError(TOOL, f"{node} did not take part")
        configs = [config for config in self.configs(node) if config["job"] == job]
        documents = [document for document in _documents(answer) if document.get("job") == job]
        if len(configs) != 1 or len(documents) != 1:
            why = answer.why if not answer.ok else f"{len(documents)} answers of {job}"
            raise ParseError(TOOL, f"{node}: {why}")
        if error := documents[0].get("error"):
            raise ParseError(TOOL, f"{node}: {error}")
        if not answer.ok:
            others = [str(document["error"]) for document in _documents(answer) if document.get("error")]
            raise ParseError(TOOL, f"{node}: {'; '.join(others) or answer.why}")
        return Part(configs[0], Json(TOOL, f"{node}: ", documents[0]), answer)

    def state(self, node: str, when: str) -> State:
        answer = (self.before if when == BEFORE else self.after).get(node)
        if answer is None:
            raise ParseError("client state", f"{node} was not asked {when} the run")
        return state_in(answer, when)


def configs_of(command: str) -> list[dict[str, Any]]:
    """Configurations in a command; none for another command."""
    match = _PROGRAM.search(command)
    return [json.loads(word) for word in shlex.split(match[1])] if match else []


def _documents(answer: CommandResult) -> list[dict[str, Any]]:
    """Whole lines of the program. Raises ParseError for a cut one."""
    documents = []
    for line in answer.stdout.decode(errors="replace").splitlines():
        if not line.startswith("{"):
            continue
        try:
            document = json.loads(line)
        except ValueError as error:
            raise ParseError(TOOL, f"{answer.node}: its answer is cut off or damaged ({error})") from None
        if isinstance(document, dict) and document.get(MARK) == 1:
            documents.append(document)
    return documents


def runs_of(answers: Iterable[CommandResult]) -> list[Run]:
    """All runs, in order. A state after a run is also the one before a run that follows without dropped caches."""
    runs: list[Run] = []
    before: dict[str, CommandResult] = {}
    drops: list[CommandResult] = []
    lists: dict[str, CommandResult] = {}
    current: Run | None = None
    for answer in answers:
        asked = state_of(answer.command)
        if asked and asked[0] == BEFORE:
            before[answer.node] = answer
            current = None
        elif asked and asked[0] == AFTER:
            if runs:
                runs[-1].after[answer.node] = answer
            current = None
        elif answer.command == DROP:
            drops.append(answer)
        elif answer.command == LIST:
            lists[answer.node] = answer
        elif is_sampler(answer.command) and runs:
            runs[-1].samples[answer.node] = answer
        elif configs_of(answer.command):
            if current is None:
                servers = all(drop.ok for drop in drops) if drops else None
                earlier = runs[-1].after if runs else {}
                current = Run(before or earlier, bool(before), servers if before else None, lists=dict(lists))
                runs.append(current)
                before, drops = {}, []
            current.answers[answer.node] = answer
    return runs
