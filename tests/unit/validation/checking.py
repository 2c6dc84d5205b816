"""Validators on recordings, without pytest in between, and on recordings that were changed."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from rackproof.core.evidence import CheckResult
from rackproof.remote.collect import RecordingReader
from rackproof.remote.command import CommandResult
from rackproof.validation.checks import Check, checks_in
from rackproof.validation.context import Context, open_context
from rackproof.validation.evaluate import Case

ROOT = Path(__file__).parents[3]
RECORDINGS = ROOT / "tests" / "data" / "recordings" / "virtual-rack"

Change = Callable[[CommandResult], CommandResult]


@cache
def validators() -> dict[str, tuple[Check, Callable[..., None]]]:
    """Every check of ``validators/`` by id."""
    found: dict[str, tuple[Check, Callable[..., None]]] = {}
    for path in sorted((ROOT / "validators").glob("test_*.py")):
        spec = importlib.util.spec_from_file_location(f"validators_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for check, function in checks_in(module):
            assert check.id not in found, f"two checks are called {check.id}"
            found[check.id] = check, function
    return found


@cache
def healthy() -> Context:
    return open_context(None, str(ROOT / "architectures" / "virtual-rack.yaml"), str(RECORDINGS))


def cases(context: Context) -> Iterator[tuple[Callable[..., None], Case]]:
    for check, function in validators().values():
        for node in context.rack.nodes:
            for item in check.items(context.arch, node, context.rack):
                yield function, Case(check, node, item)


def commands_of(function: Callable[..., None], case: Case) -> tuple[str, ...]:
    """What a check reads on the healthy rack."""
    context = healthy()
    with context.readers[case.node.name].tracing() as seen:
        context.evaluate(function, case)
    return tuple(dict.fromkeys(result.command for result in seen))


def changed(node: str, matches: Callable[[str], bool], change: Change) -> Context:
    """The healthy rack with other answers to some commands of one node. Fails when nothing is changed by it."""
    base = healthy()
    used = [r for r in base.readers[node].known() if matches(r.command)]
    assert used, "no such command in the recording"
    others = [r for r in base.readers[node].known() if not matches(r.command)]
    new = [change(result) for result in used]
    assert new != used, "the change changes nothing"
    readers = dict(base.readers) | {node: RecordingReader(node, known=[*others, *new])}
    return Context(base.rack, base.arch, readers)


@dataclass(frozen=True)
class Replace:
    """Other text in the output of a command."""

    old: str
    new: str

    def __call__(self, result: CommandResult) -> CommandResult:
        return replace(result, stdout=result.stdout.replace(self.old.encode(), self.new.encode()))


@dataclass(frozen=True)
class OnceReplaced:
    """Other text at the first place only: one GPU of eight."""

    old: str
    new: str

    def __call__(self, result: CommandResult) -> CommandResult:
        return replace(result, stdout=result.stdout.replace(self.old.encode(), self.new.encode(), 1))


@dataclass(frozen=True)
class Lines:
    """Drop the lines that a pattern is found in."""

    pattern: str

    def __call__(self, result: CommandResult) -> CommandResult:
        kept = [line for line in result.stdout.splitlines(keepends=True) if not re.search(self.pattern.encode(), line)]
        return replace(result, stdout=b"".join(kept))


@dataclass(frozen=True)
class Says:
    """Another answer altogether."""

    text: str

    def __call__(self, result: CommandResult) -> CommandResult:
        return replace(result, stdout=self.text.encode())


def outcome(check: str, node: str, item: str, context: Context) -> CheckResult:
    return context.evaluate(*case_of(check, node, item))


def case_of(check: str, node: str, item: str) -> tuple[Callable[..., None], Case]:
    declared, function = validators()[check]
    return function, Case(declared, healthy().rack.node(node), item)
