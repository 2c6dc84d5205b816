"""Frame of every operation of the kit: ask a fact, plan, and send one command.

An exception that leaves an operation ends pyinfra's run for every node. The frame turns ``Refused`` into a command that
fails on the one node concerned, with the reason as its error line. Every other exception is a defect and ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import wraps
from typing import ParamSpec, TypeVar

from pyinfra import logger
from pyinfra.api.arguments_typed import PyinfraOperation
from pyinfra.api.command import FunctionCommand, QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.operation import operation as pyinfra_operation
from pyinfra.context import host

from rackproof.errors import Refused

P = ParamSpec("P")
T = TypeVar("T")

Commands = Generator[StringCommand | FunctionCommand, None, None]


class Unreadable(Refused):
    """A node did not answer completely. ``what`` names what was asked for."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} could not be read, so nothing was changed")


def operation() -> Callable[[Callable[P, Commands | None]], PyinfraOperation[P]]:
    """pyinfra's ``@operation()`` for a function that may raise ``Refused``; the other nodes go on.

    The function yields commands. One that only checks, and raises or calls ``host.noop``, returns None.
    """

    def decorator(body: Callable[P, Commands | None]) -> PyinfraOperation[P]:
        @wraps(body)
        def framed(*args: P.args, **kwargs: P.kwargs) -> Commands:
            try:
                yield from body(*args, **kwargs) or ()
            except Refused as error:
                host.log(str(error), logger.error)
                yield StringCommand("echo", QuoteString(str(error)), ">&2;", "exit 1")

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
    """``answer``, an answer of the node that was asked for elsewhere. Raises ``Unreadable`` when it is None."""
    if answer is None:
        raise Unreadable(what)
    return answer
