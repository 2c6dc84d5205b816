"""Evaluate one check on one node."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rackproof.core.architecture import Architecture, Severity
from rackproof.core.architecture.expectations import ABSENT, role_with, value_at
from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.core.rack import Node
from rackproof.errors import RackproofError
from rackproof.remote.command import CommandResult
from rackproof.validation.checks import ROLE, Check

_LONGEST = 500


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
    case: Case, arch: Architecture, error: BaseException | None, seen: Iterable[CommandResult]
) -> CheckResult:
    """The record of a check that ended with ``error`` (None: it returned) after reading ``seen``."""
    outcome, message = outcome_of(error)
    distinct = list({result.command: result for result in seen}.values())
    if outcome is CheckOutcome.PASSED and not distinct:
        outcome, message = CheckOutcome.UNMEASURED, "the check read nothing"
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
        message=message,
        reads=reads,
        expected=expectation(arch, reads),
        elapsed_s=round(sum(result.elapsed_s for result in distinct), 3),
        raw=tuple(
            hashlib.sha256(data).hexdigest()
            for result in distinct
            for data in (result.stdout, result.stderr)
            if data
        ),
    )  # fmt: skip


def key_read(case: Case, arch: Architecture) -> str:
    """The architecture key that the check reads, with the item and the node's role filled in."""
    reads = case.check.reads.replace("*", case.item)
    if ROLE in reads:
        part = reads.partition(".expect.")[2].split(".")[0]
        reads = reads.replace(ROLE, role_with(arch, case.node.groups, part) or ROLE)
    return reads


def expectation(arch: Architecture, reads: str) -> Any:
    """The expected value. It is recorded with the result, so that later judgements can compare it."""
    value = value_at(arch, reads)
    return None if value is ABSENT else value


def outcome_of(error: BaseException | None) -> tuple[CheckOutcome, str]:
    """AssertionError: FAILED; any other exception: UNMEASURED."""
    if error is None:
        return CheckOutcome.PASSED, ""
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
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
