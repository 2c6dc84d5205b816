"""The frame of operations: a refusal fails on one node, a defect is not hidden."""

from __future__ import annotations

import inspect

import pytest
from pyinfra.api.command import StringCommand

from rackproof.configure.facts import MountTable
from rackproof.configure.network import PortProblem
from rackproof.configure.operation import Commands, Unreadable, ask, operation
from rackproof.errors import Refused
from tests.unit.configure.stub import StubHost, at, run


@operation()
def painted(colour: str, coats: int = 1) -> Commands:
    """Paint the wall."""
    if colour == "pink":
        raise PortProblem("no pink; take another colour")
    yield StringCommand(f"paint {colour} {coats}")
    if colour == "grey":
        raise Refused("it's still wet")
    if colour == "defect":
        raise ZeroDivisionError


@operation()
def checked(good: bool) -> None:
    if not good:
        raise Refused("not painted")


def test_commands_pass_through() -> None:
    host = StubHost({})
    assert run(painted, host, colour="blue", coats=2) == ["paint blue 2"]
    assert host.logged == []


def test_a_refusal_is_an_error_line_and_a_failing_command() -> None:
    host = StubHost({})
    assert run(painted, host, colour="pink") == ["echo 'no pink; take another colour' >&2; exit 1"]
    assert host.logged == ["no pink; take another colour"]


def test_a_refusal_after_a_command_comes_behind_it() -> None:
    _, refusal = run(painted, StubHost({}), colour="grey")
    assert refusal.endswith(">&2; exit 1")


def test_a_defect_ends_the_run() -> None:
    with pytest.raises(ZeroDivisionError):
        run(painted, StubHost({}), colour="defect")


def test_an_operation_that_only_checks_yields_nothing() -> None:
    assert run(checked, StubHost({}), good=True) == []
    assert run(checked, StubHost({}), good=False) == ["echo 'not painted' >&2; exit 1"]


def test_pyinfra_sees_name_and_arguments_of_the_function() -> None:
    assert (painted.__name__, painted.__module__, painted.__doc__) == ("painted", __name__, "Paint the wall.")
    assert list(inspect.signature(painted).parameters) == ["colour", "coats"]
    with pytest.raises(TypeError, match="missing a required argument"):
        inspect.signature(painted._inner).bind(color="blue")


def test_a_fact_without_an_answer_is_refused() -> None:
    with at(StubHost({MountTable: None})), pytest.raises(Unreadable, match="the mounts could not be read"):
        ask(MountTable, "the mounts")
