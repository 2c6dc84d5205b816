"""Reading nodes through recordings: ask once, in one round trip a node, all nodes at the same time.

What has to be asked is found out by trying: every question is put to the recording, and one that lacks an answer
says which command it needs and is put off. All missing commands of a node then travel together, and the questions
are put again, until none lacks anything. That takes as many round trips as the longest chain of commands that
depend on each other, two or three, however many questions and nodes there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from rackproof.remote.batch import budget_s, script, unpack
from rackproof.remote.command import GRACE_S, OUTPUT_LIMIT, CommandResult
from rackproof.remote.ssh import Fleet

COMMAND_TIMEOUT_S = 20.0
TRIP_GRACE_S = 30.0
"""How much longer than its commands a round trip may take: an emulated node needs seconds to start a shell."""
PATIENCE = 3
"""Commands that may fail to end on one node before it is not asked any more."""
ROUNDS = 12

Question = Callable[[], object]
"""Something that reads a node; may raise whatever it likes."""


class Live(Protocol):
    """What a reader falls back to: ``rackproof.remote.ssh.Connection``."""

    def run(self, command: str, timeout_s: float, stdin: bytes | None = None) -> CommandResult: ...


class Wanted(BaseException):
    """Ends a question whose answers are not recorded yet. Not an Exception: a question must not swallow it."""

    def __init__(self, commands: Sequence[str]) -> None:
        super().__init__(*commands)
        self.commands = tuple(commands)


class RecordingReader:
    """Answers for one node from what is recorded, and asks the node itself for the rest.

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
        """Commands that had to be asked one by one."""
        self.lost: str | None = None
        """Why the node is not asked any more."""
        self._live = live
        self._on_result = on_result
        self._known = {result.command: result for result in known}
        self._used: dict[str, CommandResult] = {}
        self._trace: list[CommandResult] | None = None
        self._trying = False
        self._unfinished = 0

    @property
    def used(self) -> Mapping[str, CommandResult]:
        """Everything that was read, in that order."""
        return self._used

    def known(self) -> tuple[CommandResult, ...]:
        """Everything that is recorded, read or not."""
        return tuple(self._known.values())

    def read(self, command: str) -> CommandResult:
        result = self._known.get(command)
        if result is None:
            if self.lost is not None:
                return self._unanswered(command, self.lost)
            if self._trying:
                raise Wanted([command])
            if self._live is None:
                return self._unanswered(command, f"not in the recording: {command}")
            self.misses += 1
            result = self._live.run(command, self.timeout_s)
            self.add([result])
        if not self._trying:
            if command not in self._used:
                self._used[command] = result
                self._on_result(result)
            if self._trace is not None:
                self._trace.append(result)
        return result

    def add(self, results: Iterable[CommandResult]) -> None:
        """Take over results, and give up on a node on which too many commands do not end."""
        for result in results:
            self._known.setdefault(result.command, result)
            if result.error is None:
                continue
            self._unfinished += 1
            if result.elapsed_s >= result.timeout_s + GRACE_S:
                # The node's own limit should have ended it long ago: nobody is there.
                self.lost = self.lost or f"the node fell silent ({result.error})"
            elif self._unfinished >= PATIENCE:
                self.lost = self.lost or f"given up after {PATIENCE} commands that did not end ({result.error})"

    def attempt(self, result: CommandResult) -> None:
        """Record an attempt to read that failed as a whole."""
        self._on_result(result)
        self.lost = self.lost or result.error

    def announce(self, commands: Sequence[str]) -> None:
        """Say which commands will be read, where one does not depend on another's answer; saves round trips."""
        if self._trying and self.lost is None:
            missing = [command for command in commands if command not in self._known]
            if missing:
                raise Wanted(missing)

    def missing(self, question: Question) -> tuple[str, ...]:
        """The commands that a question needs next and that are not recorded; none when it has all it needs."""
        self._trying = True
        try:
            question()
        except Wanted as wanted:
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


def gather(
    fleet: Fleet,
    readers: Mapping[str, RecordingReader],
    questions: Mapping[str, Sequence[Question]],
    rounds: int = ROUNDS,
) -> int:
    """Record what the questions need, by node. Returns the number of round trips.

    What is still missing after ``rounds`` is read one by one when it is asked for.
    """
    open_: dict[str, list[Question]] = {node: list(asked) for node, asked in questions.items()}
    for trip in range(rounds):
        wanted: dict[str, list[str]] = {}
        for node, asked in open_.items():
            missing = [(question, readers[node].missing(question)) for question in asked]
            open_[node] = [question for question, several in missing if several]
            commands = dict.fromkeys(command for _, several in missing for command in several)
            if commands:
                wanted[node] = list(commands)
        if not wanted:
            return trip
        if not fetch(fleet, readers, wanted):
            return trip + 1
    return rounds


def fetch(fleet: Fleet, readers: Mapping[str, RecordingReader], wanted: Mapping[str, Sequence[str]]) -> bool:
    """Read commands in one round trip a node, all nodes at once. True when anything at all was learnt."""

    def ask(connection: Live, node: str) -> CommandResult:
        limit = readers[node].timeout_s
        return connection.run("sh -s", budget_s(limit) + TRIP_GRACE_S, script(wanted[node], limit))

    answers: dict[str, CommandResult] = fleet.each(wanted, lambda connection: ask(connection, connection.node.name))
    learnt = False
    for node, answer in answers.items():
        reader = readers[node]
        if answer.rc is None and len(answer.stdout) < OUTPUT_LIMIT:
            reader.attempt(answer)
            learnt = True
            continue
        results = unpack(node, wanted[node], reader.timeout_s, answer.stdout)
        reader.add(results)
        learnt = learnt or bool(results)
    return learnt
