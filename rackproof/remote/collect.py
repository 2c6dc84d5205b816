"""Reads nodes through recordings: all commands of a node in one round trip, all nodes in parallel.

The needed commands are found by trial: every question (a check) runs against the recording, and one that lacks an
answer reports the command and is postponed. All missing commands of a node are then read together, and the questions
run again, until no answer is missing. That takes as many round trips as the longest chain of commands that depend on
each other, two or three, however many questions there are.

A trial costs the controller as much as the questions themselves. So one node of each role is tried and its commands
are sent to all nodes of the role; commands cached from an earlier run replace the trial. Both are guesses: a node that
lacks an answer later gets a trial of its own, and after the second such node all nodes do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Protocol

from rackproof.core import clocks, nvlink_domain
from rackproof.parse.errors import ParseError
from rackproof.parse.nvlink_domain import DOMAIN, parse_nvlink_domains
from rackproof.remote.batch import MAGIC, budget_s, script, unpack
from rackproof.remote.clocks import LIMIT_S
from rackproof.remote.command import GRACE_S, CommandResult
from rackproof.remote.fleet import Fleet
from rackproof.remote.redaction import redacted
from rackproof.remote.ssh import Connection

COMMAND_TIMEOUT_S = 20.0
TRIP_GRACE_S = 60.0
"""Seconds that a round trip may take longer than its commands: an emulated node needs seconds to start a shell."""
PATIENCE = 3
"""Commands or round trips that may fail to end before a node gets no more commands."""
ROUNDS = 12
COMPARISONS = (clocks.COMMAND, nvlink_domain.COMMAND)
"""Placeholders for comparisons of nodes: the controller answers them, no node runs them."""
CLOCKS_APART_S = 0.1
"""Seconds; if the nodes' clocks agree within twice this and the controller's does not, a line says so: the default of
``system.time.max_offset_ms``."""

Question = Callable[[], object]
"""Reads a node through a reader; may raise any exception."""


class Live(Protocol):
    """Runs commands that are not recorded: ``rackproof.remote.ssh.Connection``."""

    def run(self, command: str, timeout_s: float, stdin: bytes | None = None) -> CommandResult: ...


class QuestionsNeeded(BaseException):
    """Ends a question whose answers are not recorded yet. Not an Exception, so that a question cannot catch it."""

    def __init__(self, commands: Sequence[str]) -> None:
        super().__init__(*commands)
        self.commands = tuple(commands)


class RecordingReader:
    """Answers for one node from its recording, and runs other commands on the node.

    Output is redacted when it arrives, so that checks see the stored text.

    ``on_result`` gets every result at its first use, and every failed attempt. Without ``live`` the result of a command
    that is not recorded is an error.
    """

    def __init__(
        self,
        node: str,
        live: Live | None = None,
        *,
        known: Iterable[CommandResult] = (),
        timeout_s: float = COMMAND_TIMEOUT_S,
        on_result: Callable[[CommandResult], object] = lambda result: None,
    ) -> None:
        self.node = node
        self.timeout_s = timeout_s
        self.misses = 0
        """Commands that were not prefetched and ran when a question needed them."""
        self.lost: str | None = None
        """Why the node gets no further commands."""
        self._live = live
        self._on_result = on_result
        self._known = {result.command: result for result in known}
        self._used: dict[str, CommandResult] = {}
        self._trace: list[CommandResult] | None = None
        self._trying = False
        self._unfinished = 0
        self.refill: Callable[[], object] | None = None
        """Called once before missing commands are run one by one, to read all missing ones together."""

    @property
    def used(self) -> Mapping[str, CommandResult]:
        """Results that were used, in the order of their first use."""
        return self._used

    def has(self, command: str) -> bool:
        return command in self._known

    def recorded(self, command: str) -> CommandResult | None:
        return self._known.get(command)

    def known(self) -> tuple[CommandResult, ...]:
        """All recorded results, used or not."""
        return tuple(self._known.values())

    def read(self, command: str) -> CommandResult:
        result = self._known.get(command)
        if result is None:
            if self.lost is not None:
                return self._unanswered(command, self.lost)
            if self._trying:
                raise QuestionsNeeded([command])
            result = self._missed(command)
            if result is None:
                return self._unanswered(command, self.lost or f"not in the recording: {command}")
        if not self._trying:
            if command not in self._used:
                self._used[command] = result
                self._on_result(result)
            if self._trace is not None:
                self._trace.append(result)
        return result

    def add(self, results: Iterable[CommandResult]) -> None:
        """Store the results of a round trip."""
        new = list(results)
        for result in new:
            self._known.setdefault(result.command, redacted(result))
        self._count(new)

    def _missed(self, command: str) -> CommandResult | None:
        """Run a command that was not prefetched; None without a live connection."""
        if self._live is None:
            return None
        refill, self.refill = self.refill, None
        if refill is not None:
            refill()
            if command in self._known:
                return self._known[command]
            if self.lost is not None:
                return None
        self.misses += 1
        result = redacted(self._live.run(command, self.timeout_s))
        self._known[command] = result
        self._count([result])
        if result.error is not None and result.elapsed_s >= result.timeout_s + GRACE_S:
            # The node's own time limit has passed long ago: the node is gone.
            self.lost = self.lost or f"the node fell silent ({result.error})"
        return result

    def _count(self, results: Sequence[CommandResult]) -> None:
        """Stop sending commands to a node on which commands repeatedly fail to end."""
        error = next((result.error for result in results if result.error is not None), None)
        if error is not None:
            self._unfinished += 1
            if self._unfinished >= PATIENCE:
                self.lost = self.lost or f"given up after {PATIENCE} commands that did not end ({error})"

    def attempt(self, result: CommandResult) -> None:
        """Record a failed round trip."""
        self._on_result(result)
        self.lost = self.lost or result.error

    def announce(self, commands: Sequence[str]) -> None:
        """Announce independent commands that will be read; saves round trips."""
        if self._trying and self.lost is None:
            missing = [command for command in commands if command not in self._known]
            if missing:
                raise QuestionsNeeded(missing)

    def missing(self, question: Question) -> tuple[str, ...]:
        """Commands that a question needs next and that are not recorded; empty when none is missing."""
        self._trying = True
        try:
            question()
        except QuestionsNeeded as needed:
            return needed.commands
        except Exception:
            return ()  # nothing is missing; the question fails again, and is reported, when it runs
        finally:
            self._trying = False
        return ()

    @contextmanager
    def tracing(self) -> Iterator[list[CommandResult]]:
        """The results that are read inside the block, in order, with repetitions."""
        trace: list[CommandResult] = []
        outer, self._trace = self._trace, trace
        try:
            yield trace
        finally:
            self._trace = outer
            if outer is not None:
                outer.extend(trace)

    def _unanswered(self, command: str, reason: str) -> CommandResult:
        return CommandResult(self.node, command, None, timeout_s=self.timeout_s, error=reason)


class Gathering:
    """Reads what questions need, by node, and counts round trips."""

    def __init__(
        self,
        fleet: Fleet,
        readers: Mapping[str, RecordingReader],
        questions: Mapping[str, Sequence[Question]],
        rounds: int = ROUNDS,
    ) -> None:
        self._fleet, self._readers, self._questions, self._rounds = fleet, readers, questions, rounds
        self.trips = 0
        self._refilled = False

    def run(self, kinds: Mapping[str, str], remembered: Mapping[str, Sequence[str]]) -> None:
        """``kinds``: kind by node, ``remembered``: commands of the last run by node; both may lack nodes.

        Commands that are still missing afterwards are run when they are needed.
        """
        alike: dict[str, list[str]] = {}
        for node in self._questions:
            if not remembered.get(node):
                alike.setdefault(kinds.get(node, node), []).append(node)
        known = {node: tuple(commands) for node, commands in remembered.items() if node in self._questions and commands}
        answering = set(self._learn(list(alike.values()), known))
        for node in answering:
            self._readers[node].refill = partial(self._refill, node)

    def _learn(self, groups: list[list[str]], known: dict[str, tuple[str, ...]]) -> set[str]:
        """Try the questions on the first node of each group. Returns the nodes that answered."""
        open_ = {group[0]: list(self._questions[group[0]]) for group in groups}
        answered: set[str] = set()
        for _ in range(self._rounds):
            wanted, known = dict(known), {}
            for group in groups:
                commands = self._missing(group[0], open_)
                for node in group:
                    missing = [command for command in commands if not self._readers[node].has(command)]
                    if missing and self._readers[node].lost is None:
                        wanted[node] = tuple(missing)
            if not wanted:
                break
            self.trips += 1
            fetched = fetch(self._fleet, self._readers, wanted)
            answered |= fetched
            if not fetched:
                break
            # If the first node of a group does not answer, the next one is tried.
            for group in groups:
                if group[0] not in fetched and any(node in fetched for node in group):
                    group.sort(key=lambda node: node not in fetched)
                    open_[group[0]] = list(self._questions[group[0]])
        return answered

    def _refill(self, node: str) -> None:
        """A node lacks an answer: try its questions, and those of all nodes if it is not the first such node."""
        nodes = [name for name in self._questions if self._readers[name].refill] if self._refilled else []
        for name in nodes:
            self._readers[name].refill = None
        self._refilled = True
        readers = [self._readers[name] for name in (node, *nodes)]
        counts = [len(reader.known()) for reader in readers]
        self._learn([[reader.node] for reader in readers], {})
        for reader, before in zip(readers, counts, strict=True):
            reader.misses += len(reader.known()) - before

    def _missing(self, node: str, open_: dict[str, list[Question]]) -> list[str]:
        reader = self._readers[node]
        missing = [(question, reader.missing(question)) for question in open_[node]]
        open_[node] = [question for question, several in missing if several]
        return list(dict.fromkeys(command for _, several in missing for command in several))


def gather(
    fleet: Fleet,
    readers: Mapping[str, RecordingReader],
    questions: Mapping[str, Sequence[Question]],
    rounds: int = ROUNDS,
    *,
    kinds: Mapping[str, str] | None = None,
    remembered: Mapping[str, Sequence[str]] | None = None,
) -> Gathering:
    """Record the commands that questions need; see Gathering.run."""
    gathering = Gathering(fleet, readers, questions, rounds)
    gathering.run(kinds or {}, remembered or {})
    return gathering


def fetch(fleet: Fleet, readers: Mapping[str, RecordingReader], wanted: Mapping[str, Sequence[str]]) -> set[str]:
    """Read commands in one round trip per node, all nodes in parallel. Returns the nodes that answered any of them.

    Commands of ``COMPARISONS`` are answered by the controller, for all nodes that are asked together.
    """
    base_s = time.time() - time.monotonic()

    def ask(connection: Connection) -> _Fetched:
        name = connection.node.name
        asked = clocks.COMMAND in wanted[name]
        clock = connection.clock(base_s) if asked else None  # before the node is busy
        results, failure = _batch(connection, name, [c for c in wanted[name] if c not in COMPARISONS], readers[name])
        return results, failure, clock if failure is None else None

    answers: dict[str, _Fetched] = fleet.each(wanted, ask, "answers to the checks")
    read = {node: clock for node, (_, _, clock) in answers.items() if clock is not None}
    table = clocks.rendered(read).encode()
    if remark := clocks.controller_is_off(read, CLOCKS_APART_S):
        fleet.on_wait(remark)
    for node, (results, failure, _) in answers.items():
        if failure is not None:
            readers[node].attempt(failure)
        compared = [CommandResult(node, clocks.COMMAND, 0, table, timeout_s=LIMIT_S)] if node in read else []
        readers[node].add([*results, *compared])
    _compare_nvlink_domains(readers, [node for node in answers if nvlink_domain.COMMAND in wanted[node]])
    return {node for node, (results, _, _) in answers.items() if results or node in read}


def _compare_nvlink_domains(readers: Mapping[str, RecordingReader], asked: Sequence[str]) -> None:
    """Give the nodes that ask for it the table of all nodes that reported the domains of their GPUs."""
    reported = {}
    for name, reader in readers.items() if asked else ():
        answer = reader.recorded(DOMAIN)
        with suppress(ParseError):
            if answer is not None and answer.rc == 0:
                reported[name] = parse_nvlink_domains(answer.text.splitlines())
    table = nvlink_domain.rendered(reported).encode()
    for name in asked:
        if name in reported:
            readers[name].add([CommandResult(name, nvlink_domain.COMMAND, 0, table, timeout_s=readers[name].timeout_s)])


_Fetched = tuple[list[CommandResult], CommandResult | None, clocks.Clock | str | None]
"""Results, why the node does not answer, and its clock where it was asked for."""


def _batch(
    connection: Live, node: str, commands: Sequence[str], reader: RecordingReader
) -> tuple[list[CommandResult], CommandResult | None]:
    if not commands:
        return [], None
    limit = reader.timeout_s
    answer = connection.run("sh -s", budget_s(limit, len(commands)) + TRIP_GRACE_S, script(commands, limit))
    results = unpack(node, commands, limit, answer.stdout)
    if results or MAGIC in answer.stdout:
        return results, None
    # Does the node run any command?
    failure = answer if answer.rc is None else connection.run("true", limit)
    return [], failure if failure.error is not None else None
