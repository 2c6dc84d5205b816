"""The validators on recordings, without pytest in between."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from rackproof.core.evidence import CheckResult
from rackproof.remote.command import CommandResult
from rackproof.selftest.mutation import Change
from rackproof.selftest.trial import Subject
from rackproof.selftest.validators import load_validators
from rackproof.selftest.written import open_rack, racks_below
from rackproof.validation.context import Context
from rackproof.validation.evaluate import Case
from rackproof.validation.known import Checks

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data"


@cache
def validators() -> Checks:
    """Every check of ``validators/`` by id."""
    return load_validators(ROOT / "validators")


@cache
def subjects() -> tuple[Subject, ...]:
    """Every healthy rack there is."""
    return tuple(Subject(name, open_rack(DATA, name), validators()) for name in racks_below(DATA))


def subject() -> Subject:
    """The virtual rack, healthy, as it was recorded."""
    return next(subject for subject in subjects() if subject.name == "virtual-rack")


def healthy() -> Context:
    return subject().context


def damaged(*changes: Change) -> Context:
    """The virtual rack with changed answers of gpu-01."""

    def edit(result: CommandResult) -> CommandResult:
        for change in changes:
            result = change(result) if change.applies(result.command) else result
        return result

    return subject().altered("gpu-01", edit)


def outcome(check: str, node: str, item: str, context: Context) -> CheckResult:
    return context.evaluate(*case_of(check, node, item))


def case_of(check: str, node: str, item: str) -> tuple[Callable[..., None], Case]:
    declared, function = validators()[check]
    return function, Case(declared, healthy().rack.node(node), item)
