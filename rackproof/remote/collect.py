"""Reading nodes through recordings: ask once, in one round trip a node, all nodes at the same time.

What has to be asked is found out by trying: every question is put to the recording, and one that lacks an answer
says which command it needs and is put off. All missing commands of a node then travel together, and the questions
are put again, until none lacks anything. That takes as many round trips as the longest chain of commands that
depend on each other, two or three, however many questions there are.

A trial costs the controller as much as the questions themselves, so one node of each role is tried and its commands
are sent to all nodes of the role; commands cached from an earlier run replace the trial. Both are guesses: a node that
lacks an answer later is tried itself, and from the second such node on all of them are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from rackproof.remote.batch import MAGIC, budget_s, script, unpack
from rackproof.remote.command import GRACE_S, CommandResult
from rackproof.remote.redaction import redacted
from rackproof.remote.ssh import Fleet

COMMAND_TIMEOUT_S = 20.0
TRIP_GRACE_S = 60.0
"""How much longer than its commands a round trip may take: an emulated node needs seconds to start a shell."""
PATIENCE = 3
"""Commands read one by one, or round trips with such commands, that may fail to end before a node is given up."""
ROUNDS = 12

Question = Callable[[], object]
"""Something that reads a node; may raise whatever it likes."""


class Live(Protocol):
    """What a reader falls back to: ``rackproof.remote.ssh.Connection``."""

    def run(self, command: str, timeout_s: float, stdin: bytes | None = None) -> CommandResult: ...


class QuestionsNeeded(BaseException):
    """Ends a question whose answers are not recorded yet. Not an Exception: a question must not swallow it."""

    def __init__(self, commands: Sequence[str]) -> None:
        super().__init__(*commands)
        self.commands = tuple(commands)


class RecordingReader:
    """Answers for one node from what is recorded, and asks the node itself for the rest.

    What the node says is redacted as it comes in, so that a check sees the text that is kept.

    ``on_result`` is given every result the first time that it is used, and every attempt that failed. Without
    ``live`` a command that is not recorded has an error for a result.
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
        """Called once when something is missing, before it is read one by one: brings what else is missing, too."""

    @property
    def used(self) -> Mapping[str, CommandResult]:
        """Everything that was read, in that order."""
        return self._used

    def has(self, command: str) -> bool:
        return command in self._known

    def known(self) -> tuple[CommandResult, ...]:
        """Everything that is recorded, read or not."""
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
        """Take over what a round trip brought."""
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
        """Give up on a node on which time and again something does not end."""
        error = next((result.error for result in results if result.error is not None), None)
        if error is not None:
            self._unfinished += 1
            if self._unfinished >= PATIENCE:
                self.lost = self.lost or f"given up after {PATIENCE} commands that did not end ({error})"

    def attempt(self, result: CommandResult) -> None:
        """Record an attempt to read that failed as a whole."""
        self._on_result(result)
        self.lost = self.lost or result.error

    def announce(self, commands: Sequence[str]) -> None:
        """Say which commands will be read, where one does not depend on another's answer; saves round trips."""
        if self._trying and self.lost is None:
            missing = [command for command in commands if command not in self._known]
            if missing:
                raise QuestionsNeeded(missing)

    def missing(self, question: Question) -> tuple[str, ...]:
        """The commands that a question needs next and that are not recorded; none when it has all it needs."""
        self._trying = True
        try:
            question()
        except QuestionsNeeded as wanted:
            return wanted.commands
        except Exception:
            return ()  # it has what it needs to fail; whoever asks it in earnest will see why
        finally:
            self._trying = False
        return ()

    @contextmanager
    def tracing(self) -> Iterator[list[CommandResult]]:
        """The results that are read inside the block, in order and repetitions included."""
        seen: list[CommandResult] = []
        outer, self._trace = self._trace, seen
        try:
            yield seen
        finally:
            self._trace = outer
            if outer is not None:
                outer.extend(seen)

    def _unanswered(self, command: str, reason: str) -> CommandResult:
        return CommandResult(self.node, command, None, timeout_s=self.timeout_s, error=reason)


class Gathering:
    """Reads what questions need, by node, and keeps count of the round trips."""

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
        """``kinds`` says which nodes are alike, ``remembered`` what a node was asked last time; both may lack nodes.

        What is still missing afterwards is read when it is asked for.
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
        """Let the first node of each group try for all of it. Returns the nodes that answered."""
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
            fetched = self._fetch(wanted)
            answered |= fetched
            if not fetched:
                break
            # Where the first one cannot be asked, the next one tries.
            for group in groups:
                if group[0] not in fetched and any(node in fetched for node in group):
                    group.sort(key=lambda node: node not in fetched)
                    open_[group[0]] = list(self._questions[group[0]])
        return answered

    def _refill(self, node: str) -> None:
        """Somebody lacks an answer: let it try for itself, and let everybody else do so when it is not the only one."""
        nodes = [name for name in self._questions if self._readers[name].refill] if self._refilled else []
        for name in nodes:
            self._readers[name].refill = None
        self._refilled = True
        everybody = [self._readers[name] for name in (node, *nodes)]
        had = [len(reader.known()) for reader in everybody]
        self._learn([[reader.node] for reader in everybody], {})
        for reader, before in zip(everybody, had, strict=True):
            reader.misses += len(reader.known()) - before

    def _missing(self, node: str, open_: dict[str, list[Question]]) -> list[str]:
        reader = self._readers[node]
        missing = [(question, reader.missing(question)) for question in open_[node]]
        open_[node] = [question for question, several in missing if several]
        return list(dict.fromkeys(command for _, several in missing for command in several))

    def _fetch(self, wanted: Mapping[str, Sequence[str]]) -> set[str]:
        self.trips += 1
        return fetch(self._fleet, self._readers, wanted)


def gather(
    fleet: Fleet,
    readers: Mapping[str, RecordingReader],
    questions: Mapping[str, Sequence[Question]],
    rounds: int = ROUNDS,
    *,
    kinds: Mapping[str, str] | None = None,
    remembered: Mapping[str, Sequence[str]] | None = None,
) -> Gathering:
    """Record what the questions need; see Gathering.run."""
    gathering = Gathering(fleet, readers, questions, rounds)
    gathering.run(kinds or {}, remembered or {})
    return gathering


def fetch(fleet: Fleet, readers: Mapping[str, RecordingReader], wanted: Mapping[str, Sequence[str]]) -> set[str]:
    """Read commands in one round trip a node, all nodes at once. Returns the nodes that answered to any of them."""

    def ask(connection: Live, node: str) -> tuple[list[CommandResult], CommandResult | None]:
        limit = readers[node].timeout_s
        time_s = budget_s(limit, len(wanted[node])) + TRIP_GRACE_S
        answer = connection.run("sh -s", time_s, script(wanted[node], limit))
        results = unpack(node, wanted[node], limit, answer.stdout)
        if results or MAGIC in answer.stdout:
            return results, None
        # Does it run anything at all?
        failure = answer if answer.rc is None else connection.run("true", limit)
        return [], failure if failure.error is not None else None

    answers: dict[str, tuple[list[CommandResult], CommandResult | None]] = fleet.each(
        wanted, lambda connection: ask(connection, connection.node.name)
    )
    for node, (results, failure) in answers.items():
        if failure is not None:
            readers[node].attempt(failure)
        readers[node].add(results)
    return {node for node, (results, _) in answers.items() if results}
