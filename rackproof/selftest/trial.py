"""Trials of faults on healthy racks.

A check's outcome depends only on the answers that it reads, so a trial runs only the checks that read a changed
answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.core.grouping import grouped
from rackproof.core.verdict import with_item
from rackproof.remote.collect import RecordingReader
from rackproof.remote.command import CommandResult
from rackproof.selftest.catalogue import Fault
from rackproof.selftest.damage import Damage
from rackproof.selftest.mutation import Change
from rackproof.selftest.noise import at_another_moment, varies
from rackproof.validation.context import Context
from rackproof.validation.evaluate import Case
from rackproof.validation.known import Checks, Function

Edit = Callable[[CommandResult], CommandResult]
_SHOWN = 80
"""Characters of a command shown in a message."""


@dataclass(frozen=True)
class HealthyCase:
    """Result of one case on the healthy rack, and the commands that it read."""

    function: Function
    case: Case
    result: CheckResult
    commands: tuple[str, ...]


@dataclass
class Subject:
    """A healthy rack, with every check that applies to it."""

    name: str
    context: Context
    validators: Checks

    @cached_property
    def healthy(self) -> dict[str, list[HealthyCase]]:
        """Results of all cases without a fault, by node."""
        by_node: dict[str, list[HealthyCase]] = {}
        for node in self.context.rack.nodes:
            reader = self.context.readers[node.name]
            healthy = by_node[node.name] = []
            for check, function in self.validators.values():
                for item in check.items(self.context.arch, node, self.context.rack):
                    case = Case(check, node, item)
                    with reader.tracing() as trace:
                        result = self.context.evaluate(function, case)
                    commands = dict.fromkeys(answer.command for answer in trace)
                    healthy.append(HealthyCase(function, case, result, tuple(commands)))
        return by_node

    def false_alarms(self) -> list[CheckResult]:
        """Results on the healthy rack that are not PASS."""
        results = [case.result for cases in self.healthy.values() for case in cases]
        return [result for result in results if result.outcome is not CheckOutcome.PASSED]

    def answers(self, node: str) -> RecordingReader:
        """The unchanged answers of a node."""
        return self.context.readers[node]

    def answers_read(self) -> Iterator[tuple[str, str, list[HealthyCase]]]:
        """Node, command, and the passed checks that read its answer; each check on the first node that runs it."""
        tried: set[str] = set()
        for node, cases in self.healthy.items():
            fresh = [healthy for healthy in cases if healthy.case.check.id not in tried]
            tried |= {healthy.case.check.id for healthy in cases}
            passed = [healthy for healthy in fresh if healthy.result.outcome is CheckOutcome.PASSED]
            by_command = grouped((command, healthy) for healthy in passed for command in healthy.commands)
            yield from ((node, command, readers) for command, readers in by_command.items())

    def altered(self, node: str, edit: Edit) -> Context:
        """The same rack with the answers of one node changed by ``edit``."""
        answers = self.answers(node)
        return self._with(node, RecordingReader(node, _Altered(answers, edit), known=map(edit, answers.known())))

    def answering(self, node: str, *results: CommandResult) -> Context:
        """The same rack, in which one node gives these answers instead of its own."""
        answers = self.answers(node)
        return self._with(node, RecordingReader(node, _Altered(answers), known=(*answers.known(), *results)))

    def _with(self, node: str, reader: RecordingReader) -> Context:
        return Context(self.context.rack, self.context.arch, {**self.context.readers, node: reader})


@dataclass
class _Altered:
    """Replaces the ssh connection: answers of the healthy node, changed by ``edit``."""

    answers: RecordingReader
    edit: Edit = lambda result: result

    def run(self, command: str, timeout_s: float, stdin: bytes | None = None) -> CommandResult:
        return self.edit(self.answers.read(command))


@dataclass(frozen=True)
class Finding:
    """Outcome of one fault."""

    fault: Fault
    rack: str
    results: tuple[CheckResult, ...]
    """Results of the expected check: of the fault's item, or of all items."""
    noticed: tuple[CheckResult, ...]
    """All results that differ from those on the healthy rack."""
    problem: str = ""
    """Why the trial failed, in one line; empty when the expected check found the fault."""

    @property
    def caught(self) -> bool:
        return not self.problem


@dataclass
class _Applied:
    """Applies changes in order, and counts for each how often it matched and how often it changed something."""

    changes: Sequence[Change]
    met: list[int] = field(default_factory=list)
    made: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.met, self.made = [0] * len(self.changes), [0] * len(self.changes)

    def __call__(self, result: CommandResult) -> CommandResult:
        for index, change in enumerate(self.changes):
            if change.applies(result.command):
                new = change(result)
                self.met[index] += 1
                self.made[index] += new != result
                result = new
        return result

    def idle(self) -> str:
        """Why the first change without effect had none; empty when all had an effect."""
        for change, met, made in zip(self.changes, self.met, self.made, strict=True):
            if not met:
                return f"no check reads a command that contains {change.command!r}"
            if not made:
                return f"the change to {change.command!r} changes nothing"
        return ""


def try_fault(subject: Subject, fault: Fault) -> Finding:
    """Put one fault on a healthy rack and run its checks."""
    if fault.node not in subject.healthy:
        return Finding(fault, subject.name, (), (), f"no node {fault.node} in {subject.name}")
    if fault.check not in subject.validators:
        return Finding(fault, subject.name, (), (), f"no check {fault.check}")
    applied = _Applied(fault.change)
    context = subject.altered(fault.node, applied)
    results, noticed, before = [], [], []
    for healthy in subject.healthy[fault.node]:
        if not any(change.applies(command) for change in fault.change for command in healthy.commands):
            continue
        result = context.evaluate(healthy.function, healthy.case)
        if result.outcome is not healthy.result.outcome:
            noticed.append(result)
        if healthy.case.check.id == fault.check and fault.item in ("", healthy.case.item):
            results.append(result)
            before.append(healthy.result)
    problem = _problem(fault, applied, results) or _already(fault, before)
    return Finding(fault, subject.name, tuple(results), tuple(noticed), problem)


def _problem(fault: Fault, applied: _Applied, results: list[CheckResult]) -> str:
    if idle := applied.idle():
        return idle
    what = with_item(fault.check, fault.item)
    if not results:
        return f"{what} does not read the changed answer, or does not run on {fault.node}"
    right = [result for result in results if result.outcome is fault.outcome]
    if not right:
        actual = results[0]
        detail = f": {actual.message}" if actual.message else ""
        return f"{what}: expected {fault.outcome.value}, actual {actual.outcome.value}{detail}"
    if fault.says and not any(fault.says in result.message for result in right):
        return f"{what}: expected {fault.says!r} in the message, actual {right[0].message!r}"
    return ""


def _already(fault: Fault, before: list[CheckResult]) -> str:
    """The problem if the check does not pass without the fault either: then its failure proves nothing."""
    for result in before:
        if result.outcome is not CheckOutcome.PASSED:
            return f"{fault.check} does not pass on the healthy rack: {result.message}"
    return ""


@dataclass(frozen=True)
class Mishap:
    """A check with an outcome that the damage does not allow."""

    damage: Damage
    rack: str
    command: str
    result: CheckResult
    place: str = ""
    """The value that is missing or unknown, in a partial answer."""
    lacks: str = ""
    """Words that its message lacks."""

    @property
    def problem(self) -> str:
        result = self.result
        outcomes = " or ".join(sorted(outcome.value for outcome in self.damage.allowed))
        allowed = f"{self.lacks} in the message" if self.lacks else outcomes
        detail = f": {result.message}" if result.message else ""
        command = self.command if len(self.command) <= _SHOWN else f"{self.command[:_SHOWN]}…"
        place = f": at {self.place[-_SHOWN:]!r}" if self.place else ""
        return f"{result.check}: {command}{place}: expected {allowed}, actual {result.outcome.value}{detail}"


def try_damages(subject: Subject, damages: Sequence[Damage]) -> tuple[int, list[Mishap]]:
    """Damage every answer that a check reads, one at a time. Returns the number of trials, and the mishaps.

    Each check is tried on the first node that runs it.
    """
    tried, mishaps = 0, []
    for node, command, readers in subject.answers_read():
        answer = subject.answers(node).read(command)
        for damage in damages:
            bad = damage.change(answer)
            if bad == answer:
                continue
            context = subject.answering(node, bad)
            for healthy in readers:
                tried += 1
                result = context.evaluate(healthy.function, healthy.case)
                lacks = "" if result.outcome is CheckOutcome.PASSED else damage.unclear(result.message)
                if result.outcome not in damage.allowed or lacks:
                    mishaps.append(Mishap(damage, subject.name, command, result, lacks=lacks))
    return tried, mishaps


def try_variants(subject: Subject, count: int) -> list[tuple[int, CheckResult]]:
    """Run the healthy rack with varied values. Returns results that no longer pass, each with its moment (seed)."""
    alarms = []
    for node, cases in subject.healthy.items():
        read = dict.fromkeys(command for healthy in cases for command in healthy.commands)
        varying = [answer for answer in map(subject.answers(node).read, read) if varies(answer)]
        for moment in range(count):
            noisy = {answer.command: at_another_moment(answer, f"{moment}") for answer in varying}
            changed = {answer.command for answer in varying if answer != noisy[answer.command]}
            context = subject.answering(node, *noisy.values())
            for healthy in cases:
                if healthy.result.outcome is not CheckOutcome.PASSED or changed.isdisjoint(healthy.commands):
                    continue
                if context.outcome(healthy.function, healthy.case) is not CheckOutcome.PASSED:
                    alarms.append((moment, context.evaluate(healthy.function, healthy.case)))
    return alarms
