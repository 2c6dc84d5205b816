"""Trying faults on racks that are well.

A check's outcome depends on nothing but what it reads, so of all checks of a node only those need to run again that
read an answer which a fault changes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.errors import SelfTestError
from rackproof.remote.collect import RecordingReader
from rackproof.remote.command import CommandResult
from rackproof.selftest.catalogue import Fault
from rackproof.selftest.mutation import Change
from rackproof.validation.checks import Check, checks_in
from rackproof.validation.context import Context
from rackproof.validation.evaluate import Case

Function = Callable[..., None]
Validators = dict[str, tuple[Check, Function]]
Edit = Callable[[CommandResult], CommandResult]


def load_validators(folder: Path) -> Validators:
    """Every check of a folder by id, in the order of files and their text. Raises SelfTestError."""
    found: Validators = {}
    for path in sorted(folder.glob("test_*.py")):
        spec = importlib.util.spec_from_file_location(f"rackproof_validators_{path.stem}", path)
        if spec is None or spec.loader is None:
            raise SelfTestError(f"{path}: no Python module")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise SelfTestError(f"{path}: {type(error).__name__}: {error}") from error
        for check, function in checks_in(module):
            if check.id in found:
                raise SelfTestError(f"{path}: there is another check {check.id}")
            found[check.id] = check, function
    if not found:
        raise SelfTestError(f"{folder}: no checks there (test_*.py)")
    return found


@dataclass(frozen=True)
class Seen:
    """What came out of one case on the healthy rack, and the commands that it read."""

    function: Function
    case: Case
    result: CheckResult
    commands: tuple[str, ...]


@dataclass
class Subject:
    """A rack that is well, with every check that applies to it."""

    name: str
    context: Context
    validators: Validators

    @cached_property
    def healthy(self) -> dict[str, list[Seen]]:
        """All cases by node, as they are without a fault."""
        found: dict[str, list[Seen]] = {}
        for node in self.context.rack.nodes:
            reader = self.context.readers[node.name]
            seen = found[node.name] = []
            for check, function in self.validators.values():
                for item in check.items(self.context.arch, node, self.context.rack):
                    case = Case(check, node, item)
                    with reader.tracing() as trace:
                        result = self.context.evaluate(function, case)
                    commands = dict.fromkeys(answer.command for answer in trace)
                    seen.append(Seen(function, case, result, tuple(commands)))
        return found

    def false_alarms(self) -> list[CheckResult]:
        """Results on the healthy rack that are no PASS."""
        results = [seen.result for several in self.healthy.values() for seen in several]
        return [result for result in results if result.outcome is not CheckOutcome.PASSED]

    def answers(self, node: str) -> RecordingReader:
        """The node's own answers."""
        return self.context.readers[node]

    def altered(self, node: str, edit: Edit) -> Context:
        """The same rack, in which answers of one node pass through ``edit``."""
        reader = RecordingReader(node, _Altered(self.answers(node), edit))
        return Context(self.context.rack, self.context.arch, dict(self.context.readers) | {node: reader})


@dataclass
class _Altered:
    """Stands where an ssh connection would: the healthy node's answers, edited."""

    answers: RecordingReader
    edit: Edit

    def run(self, command: str, timeout_s: float, stdin: bytes | None = None) -> CommandResult:
        return self.edit(self.answers.read(command))


@dataclass(frozen=True)
class Finding:
    """What became of one fault."""

    fault: Fault
    rack: str
    results: tuple[CheckResult, ...]
    """Of the expected check: the item asked for, or all."""
    noticed: tuple[CheckResult, ...]
    """Everything that is no longer as on the healthy rack."""
    problem: str = ""
    """Why the fault proves nothing, in one line; empty when the expected check caught it."""

    @property
    def caught(self) -> bool:
        return not self.problem


@dataclass
class _Applied:
    """Applies changes one after the other, and counts what they did."""

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
        """Why a change did nothing, for the first that did nothing; else empty."""
        for change, met, made in zip(self.changes, self.met, self.made, strict=True):
            if not met:
                return f"no check reads a command with {change.command!r}"
            if not made:
                return f"the change to {change.command!r} changes nothing"
        return ""


def try_fault(subject: Subject, fault: Fault) -> Finding:
    """Put one fault on a rack that is well, and see who notices."""
    if fault.node not in subject.healthy:
        return Finding(fault, subject.name, (), (), f"no node {fault.node} in {subject.name}")
    if fault.check not in subject.validators:
        return Finding(fault, subject.name, (), (), f"no check {fault.check}")
    applied = _Applied(fault.change)
    context = subject.altered(fault.node, applied)
    results, noticed = [], []
    for seen in subject.healthy[fault.node]:
        if not any(change.applies(command) for change in fault.change for command in seen.commands):
            continue
        result = context.evaluate(seen.function, seen.case)
        if result.outcome is not seen.result.outcome:
            noticed.append(result)
        if seen.case.check.id == fault.check and fault.item in ("", seen.case.item):
            results.append(result)
    return Finding(fault, subject.name, tuple(results), tuple(noticed), _problem(fault, applied, results))


def _problem(fault: Fault, applied: _Applied, results: list[CheckResult]) -> str:
    if idle := applied.idle():
        return idle
    what = f"{fault.check}[{fault.item}]" if fault.item else fault.check
    if not results:
        return f"{what} does not read what was changed, or does not run on {fault.node}"
    right = [result for result in results if result.outcome is fault.outcome]
    if not right:
        actual = results[0]
        said = f": {actual.message}" if actual.message else ""
        return f"{what}: expected {fault.outcome.value}, actual {actual.outcome.value}{said}"
    if fault.says and not any(fault.says in result.message for result in right):
        return f"{what}: expected the words {fault.says!r}, actual {right[0].message!r}"
    return ""


def cases_of(subject: Subject, check: str) -> Iterator[Seen]:
    """All cases of one check, all nodes."""
    for several in subject.healthy.values():
        yield from (seen for seen in several if seen.case.check.id == check)
