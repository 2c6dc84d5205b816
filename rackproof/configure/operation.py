"""Frame of every operation of the kit: ask a fact, plan, and send one command.

An exception that leaves an operation ends pyinfra's run for every node. The frame turns ``Refused`` and ``ParseError``
into a command that fails on the one node concerned, with the reason as its error line. Errors of the declaration end
the run with one line. Every other exception is a defect and ends the run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from inspect import getframeinfo, stack
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from pyinfra import logger
from pyinfra.api import util
from pyinfra.api.arguments_typed import PyinfraOperation
from pyinfra.api.command import FunctionCommand, PyinfraCommand, QuoteString, StringCommand
from pyinfra.api.exceptions import DeployError
from pyinfra.api.facts import FactBase
from pyinfra.api.host import Host
from pyinfra.api.operation import operation as pyinfra_operation
from pyinfra.api.state import State
from pyinfra.context import host

from rackproof.core.plan import REPORTS, Change, NodeReport, Problem, Report
from rackproof.errors import DeclarationError, RackproofError, Refused, VersionSetError
from rackproof.parse import ParseError
from rackproof.shell import Script, shown_form

P = ParamSpec("P")
T = TypeVar("T")

# pyinfra orders operations by the file and line of each frame. It does not use the text of these lines, which
# ``inspect`` searches all modules for: a third of the time of a plan.
vars(util).update(stack=partial(stack, 0), getframeinfo=partial(getframeinfo, context=0))

Commands = Generator[StringCommand | FunctionCommand, None, None]


class Unreadable(Refused):
    """A node gave no complete answer. ``what`` names what was read."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} could not be read, so nothing was changed")


@contextmanager
def one_line() -> Iterator[None]:
    """Errors of inventory, architecture and version set become ``DeployError``, which ends pyinfra's run with one line.

    DeclarationError and VersionSetError do not name the node: its name is put in front.
    """
    try:
        yield
    except RackproofError as error:
        node = f"{host.name}: " if isinstance(error, DeclarationError | VersionSetError) else ""
        raise DeployError(f"{node}{error}") from None


def operation() -> Callable[[Callable[P, Commands | None]], PyinfraOperation[P]]:
    """pyinfra's ``@operation()`` for a function that may raise ``Refused`` or ``ParseError``; the other nodes
    go on.

    The function yields commands. One that only checks, and raises or calls ``host.noop``, returns None.
    """

    def decorator(body: Callable[P, Commands | None]) -> PyinfraOperation[P]:
        @wraps(body)
        def framed(*args: P.args, **kwargs: P.kwargs) -> Commands:
            _keep(Report())
            with one_line():
                try:
                    yield from body(*args, **kwargs) or ()
                except (Refused, ParseError) as error:
                    _add(refused=str(error))
                    host.log(str(error), logger.error)
                    yield StringCommand("echo", QuoteString(str(error)), ">&2;", "exit 1")
                finally:
                    _publish()

        return pyinfra_operation()(framed)

    return decorator


def ask(fact: type[FactBase[T | None]], what: str, **arguments: object) -> T:
    """The answer of this node to a fact. Raises ``Unreadable`` with ``what`` when it has none.

    **Example:**

    .. code:: python

        table = ask(facts.MountTable, "the mount table")
    """
    return required(host.get_fact(fact, **arguments), what)


def required(answer: T | None, what: str) -> T:
    """``answer``, unless it is None: then raises ``Unreadable``."""
    if answer is None:
        raise Unreadable(what)
    return answer


def shown(command: PyinfraCommand) -> str:
    """A command as plans show it."""
    bits = command.bits if isinstance(command, StringCommand) else ()
    return shown_form(bits[0]) if len(bits) == 1 and isinstance(bits[0], Script) else str(command)


_reports: WeakKeyDictionary[State, dict[tuple[str, str | None], Report]] = WeakKeyDictionary()
"""Reports of operations by node and hash. Every operation runs twice, planning and execution; the last pass counts."""


def report_of(state: State, node: str, op_hash: str) -> Report:
    """Records of an operation of the kit in its last pass; empty for an operation of pyinfra's."""
    return _reports.get(state, {}).get((node, op_hash)) or Report()


def _key() -> tuple[str, str | None]:
    return host.name, getattr(host, "current_op_hash", None)  # hosts in tests have none


def _report() -> Report:
    return _reports.get(host.state, {}).get(_key()) or Report()


def _keep(report: Report) -> None:
    _reports.setdefault(host.state, {})[_key()] = report


def _add(**fields: object) -> None:
    """Change fields of the report of this pass."""
    _keep(_report().model_copy(update=fields))


def _publish() -> None:
    """Append the report of this pass to the file that ``rackproof deploy`` reads, if it is set."""
    op_hash = getattr(host, "current_op_hash", None)
    report = _report()
    if op_hash is not None and report != Report():
        _append(
            NodeReport(
                **dict(report), node=host.name, operation=_name(host.state, op_hash), executed=host.state.is_executing
            )
        )


def _name(state: State, op_hash: str) -> str:
    return ", ".join(sorted(state.op_meta[op_hash].names))


def operation_here() -> str:
    """Name of the operation that plans or executes on the current node."""
    op_hash = getattr(host, "current_op_hash", None)
    return _name(host.state, op_hash) if op_hash is not None else "an operation without a name"


def _append(report: NodeReport) -> None:
    if path := os.environ.get(REPORTS):
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{report.model_dump_json()}\n")


def report_loss(state: State, lost: Host) -> None:
    """Report that the connection to a node was lost, in the operation that it executes or outside of any."""
    op_hash = lost.executing_op_hash if state.is_executing else None
    operation = _name(state, op_hash) if op_hash else ""
    _append(NodeReport(node=lost.name, operation=operation, executed=state.is_executing, lost=True))


def record(changes: Iterable[Change]) -> None:
    """Record what the operation changes on this node. ``--debug`` shows each in a line, ``--diff`` the differences."""
    new = tuple(changes)
    _add(changes=(*_report().changes, *new))
    for change in new:
        logger.debug("%s: %s", host.name, change.line)
        if host.state.config.DIFF:
            for line in change.difference or (change.line,):
                logger.info("  %s", line)


def record_reasons(reasons: Iterable[str]) -> None:
    """``record`` for changes that are one line each."""
    record(Change(what=reason) for reason in reasons)


def note(text: str) -> None:
    """Record a warning; the operation goes on."""
    _add(notes=(*_report().notes, text))
    host.log(text, logger.warning)


def record_problems(problems: Iterable[Problem]) -> None:
    """Record problems of preflight, also accepted ones."""
    _add(problems=(*_report().problems, *problems))


def record_pending_reboot(reasons: Iterable[str]) -> None:
    """Record why this node needs a reboot that is not allowed in this run."""
    _add(pending_reboot=tuple(reasons))


def record_reboot() -> None:
    """Record that the operation has rebooted this node."""
    _add(rebooted=True)
