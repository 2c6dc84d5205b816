"""Evaluate one check on one node."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rackproof.core.architecture import Architecture, Severity
from rackproof.core.architecture.expectations import ABSENT, role_with, value_at
from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.core.failure import DENIED, NEEDS_ROOT, cause_of, last_words
from rackproof.core.rack import Node
from rackproof.core.wording import shortened
from rackproof.errors import RackproofError
from rackproof.parse.preamble import printed_before
from rackproof.remote.command import CommandResult, program
from rackproof.validation.checks import ROLE, Blames, Check

_LONGEST = 500
_BRIEF = 1000
"""Characters at the start of standard output that are searched for a program's message that it needs root."""
_BYTES_PER_CHARACTER = 4
"""At most, in UTF-8."""


@dataclass(frozen=True, slots=True)
class Case:
    """One check, on one node, for one of its items (``""`` when it has none)."""

    check: Check
    node: Node
    item: str

    @property
    def id(self) -> str:
        return f"{self.node.name}-{self.item}" if self.item else self.node.name


def call(function: Callable[..., None], values: dict[str, Any]) -> None:
    """Run a check outside of pytest; raises what it raises."""
    function(**{name: values[name] for name in _argument_names(function)})


@lru_cache(maxsize=1024)
def _argument_names(function: Callable[..., None]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def result_of(
    case: Case, arch: Architecture, error: BaseException | None, results: Iterable[CommandResult], starved: str = ""
) -> CheckResult:
    """The record of a check that ended with ``error`` (None: it returned) after reading ``results``; see ``ending``."""
    distinct = list({result.command: result for result in results}.values())
    outcome, message = ending(case, error, distinct, starved)
    printed = dict.fromkeys((program(r.command), printed_before(r.command, r.stdout)) for r in distinct)
    beside = _line("; ".join(f"{name} also printed: {text}" for name, text in printed if text and text not in message))
    severity = arch.checks.get(case.check.id)
    reads = key_read(case, arch)
    return CheckResult(
        check=case.check.id,
        node=case.node.name,
        item=case.item,
        outcome=outcome,
        required=case.check.required if severity is None else severity is Severity.REQUIRED,
        protects=case.check.protects,
        hint=case.check.hint,
        message=_line(f"{message}; {beside}") if message and beside else message,
        reads=reads,
        expected=expectation(arch, reads),
        elapsed_s=round(sum(result.elapsed_s for result in distinct), 3),
        raw=tuple(name for result in distinct for name in result.outputs),
        beside=beside,
        blames=error.server if isinstance(error, Blames) else "",
    )


def ending(
    case: Case, error: BaseException | None, results: Collection[CommandResult], starved: str
) -> tuple[CheckOutcome, str]:
    """Outcome and message of a check that ended with ``error`` after reading ``results``.

    ``starved``: why machines were starved; a failing timed check is then UNMEASURED.
    """
    outcome, message = outcome_of(error, results)
    if outcome is not CheckOutcome.PASSED:
        outcome, message = _without_rights(outcome, message, results)
    if starved and case.check.timed and outcome is CheckOutcome.FAILED:
        return CheckOutcome.UNMEASURED, _line(f"{starved}; {message}")
    return outcome, message


def _without_rights(
    outcome: CheckOutcome, message: str, results: Collection[CommandResult]
) -> tuple[CheckOutcome, str]:
    """Outcome and message of a check that did not pass. UNMEASURED if one of its programs needs root, which the login
    lacks; an UNMEASURED check's message names a denied access."""
    for result in results:
        errors = result.stderr.decode(errors="replace")
        start = result.stdout[: _BYTES_PER_CHARACTER * _BRIEF].decode(errors="replace")[:_BRIEF]
        if line := _line_that_needs_root(f"{errors}\n{start}"):
            return CheckOutcome.UNMEASURED, _line(f"it needs root: {line}")
        words = last_words(errors)
        if DENIED.search(words) and outcome is CheckOutcome.UNMEASURED and words not in message:
            return outcome, _line(f"{cause_of(words)}: {words}; {message}")
    return outcome, message


@lru_cache(maxsize=1024)  # many checks read the same outputs
def _line_that_needs_root(text: str) -> str:
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if NEEDS_ROOT.search(line)), "")


def key_read(case: Case, arch: Architecture) -> str:
    """The architecture key that the check reads, with its item and the node's role."""
    reads = case.check.reads.replace("*", case.item)
    if ROLE in reads:
        part = reads.partition(".expect.")[2].split(".")[0]
        reads = reads.replace(ROLE, role_with(arch, case.node.groups, part) or ROLE)
    return reads


def expectation(arch: Architecture, reads: str) -> Any:
    """The expected value, which is recorded for later judgements."""
    value = value_at(arch, reads)
    return None if value is ABSENT else value


def outcome_of(error: BaseException | None, results: Collection[CommandResult]) -> tuple[CheckOutcome, str]:
    """AssertionError: FAILED; any other exception, or nothing read: UNMEASURED."""
    if error is None:
        return (CheckOutcome.PASSED, "") if results else (CheckOutcome.UNMEASURED, "the check read nothing")
    if isinstance(error, AssertionError):
        # pytest appends its introspection; the check's message comes first.
        return CheckOutcome.FAILED, _line(str(error).split("\nassert ")[0]) or "the assertion does not hold"
    return CheckOutcome.UNMEASURED, _line(_reason(error)) or type(error).__name__


def _reason(error: BaseException) -> str:
    if isinstance(error, RackproofError):
        return str(error)
    if type(error).__name__ == "Skipped":
        return f"skipped: {error}"
    return f"{type(error).__name__}: {error}"


def _line(text: str) -> str:
    return shortened(" ".join(text.split()), _LONGEST)
