"""Runs of the kit's own programs on several nodes at once, in a step's answers, with the states around each."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rackproof.bench.storage.commands import AFTER, BEFORE, DROP, server_state, state_of
from rackproof.bench.storage.runs import StatesAround
from rackproof.parse import ParseError
from rackproof.parse.jsondoc import Json
from rackproof.parse.node_programs import parse_documents
from rackproof.remote.command import CommandResult

Run = TypeVar("Run", bound="ProgramRun")


@dataclass
class ProgramRun(StatesAround):
    """One run of ``program``, a file name, with a configuration for each ``job``; it marks its documents with
    ``mark``."""

    program: str
    mark: str
    before: Mapping[str, CommandResult]
    dropped: bool
    """Whether caches were dropped since the run before."""
    servers_dropped: bool | None
    """None without a command on servers."""
    answers: dict[str, CommandResult] = field(default_factory=dict)
    after: dict[str, CommandResult] = field(default_factory=dict)
    servers_before: Mapping[str, CommandResult] = field(default_factory=dict)
    servers_after: dict[str, CommandResult] = field(default_factory=dict)
    emptied: frozenset[str] = frozenset()
    """Nodes whose page cache alone was dropped since the run before."""

    @property
    def pages_dropped(self) -> bool:
        """Whether the page caches of all nodes were dropped since the run before, and nothing else."""
        return not self.dropped and self.nodes <= self.emptied

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(self.answers)

    def configs(self, node: str) -> list[dict[str, Any]]:
        return configs_of(self.answers[node].command, self.program)

    @property
    def jobs(self) -> tuple[str, ...]:
        """Names of the jobs that ran together."""
        return tuple(str(config["job"]) for config in self.configs(next(iter(self.answers))))

    def document(self, node: str, job: str) -> tuple[dict[str, Any], Json]:
        """The node's configuration of a job, and what the program printed for it.

        Raises ParseError with the program's own error, or without a whole document.
        """
        answer = self.answers.get(node)
        if answer is None:
            raise ParseError(self.program, f"{node} did not take part")
        configs = [config for config in self.configs(node) if config["job"] == job]
        try:
            every = parse_documents(self.program, answer.stdout, self.mark)
        except ParseError as cut:
            raise ParseError(self.program, f"{node}: {cut.reason}") from None
        documents = [document for document in every if document.get("job") == job]
        if len(configs) != 1 or len(documents) != 1:
            why = answer.why if not answer.ok else f"{len(documents)} answers of {job}"
            raise ParseError(self.program, f"{node}: {why}")
        if error := documents[0].get("error"):
            raise ParseError(self.program, f"{node}: {error}")
        if not answer.ok:
            others = [str(document["error"]) for document in every if document.get("error")]
            raise ParseError(self.program, f"{node}: {'; '.join(others) or answer.why}")
        return configs[0], Json(self.program, f"{node}: ", documents[0])


def configs_of(command: str, program: str) -> list[dict[str, Any]]:
    """Configurations in a command; none for another command."""
    match = re.search(rf"/{re.escape(program)} (.*)\Z", command, re.DOTALL)
    return [json.loads(word) for word in shlex.split(match[1])] if match else []


def program_runs(
    answers: Iterable[CommandResult],
    program: str,
    mark: str,
    kind: Callable[..., Run],
    note: Callable[[CommandResult, Run | None], None] = lambda answer, newest: None,
) -> list[Run]:
    """All runs, in order. A state after a run is also the one before a run that follows without dropped caches.

    ``note`` gets each answer to another command, with the newest run.
    """
    runs: list[Run] = []
    before: dict[str, CommandResult] = {}
    drops: list[CommandResult] = []
    of_servers: dict[str, CommandResult] = {}
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
        elif answer.command == server_state(BEFORE):
            of_servers[answer.node] = answer
        elif answer.command == server_state(AFTER):
            if runs:
                runs[-1].servers_after.setdefault(answer.node, answer)  # not those of a client that follows
        elif configs_of(answer.command, program):
            if current is None:
                servers = all(drop.ok for drop in drops) if drops else None
                earlier = runs[-1].after if runs else {}
                current = kind(program, mark, before or earlier, bool(before), servers if before else None)
                current.emptied = frozenset() if before else frozenset(drop.node for drop in drops if drop.ok)
                current.servers_before = of_servers
                runs.append(current)
                before, drops, of_servers = {}, [], {}
            current.answers[answer.node] = answer
        else:
            note(answer, runs[-1] if runs else None)
    return runs
