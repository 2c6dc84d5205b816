"""Frame of the deploy files: ``@deploy``, and files that pyinfra executes directly."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path

from pyinfra import logger
from pyinfra.api.arguments_typed import PyinfraOperation
from pyinfra.api.deploy import deploy as pyinfra_deploy
from pyinfra.context import host, state

from rackproof.configure.operation import one_line
from rackproof.configure.operations import refused
from rackproof.configure.site import Site, here
from rackproof.errors import Refused

EXECUTED = "builtins"
"""``__name__`` in a file that pyinfra executes: such files have no module name."""


def deploy(
    name: str, why_nothing: Callable[[Site], str | None] | None = None
) -> Callable[[Callable[[], None]], PyinfraOperation[[]]]:
    """pyinfra's ``@deploy`` for a function that may raise errors of the kit.

    ``Refused`` fails the node with one line where this operation would have been; the other nodes go on.
    ``why_nothing``: as in ``alone``; a deploy that does not apply to a node adds no operations to it.
    """

    def decorator(body: Callable[[], None]) -> PyinfraOperation[[]]:
        @wraps(body)
        def framed() -> None:
            with one_line():
                try:
                    if why_nothing is None or why_nothing(here()) is None:
                        body()
                except Refused as error:
                    refused(name="Refused", reason=str(error))

        return pyinfra_deploy(name)(framed)

    return decorator


def alone(module: str, why_nothing: Callable[[Site], str | None] | None = None) -> bool:
    """Whether pyinfra executes the calling deploy file directly and the file applies to this node.

    + module: ``__name__`` of the deploy file
    + why_nothing: returns why the file does not apply to a node, or None; the reason is logged, one line per node

    **Example:**

    .. code:: python

        if alone(__name__, plan.why_nothing):
            preflight()
            base()
            storage_client()
            reboot()
    """
    if module != EXECUTED:
        return False
    with one_line():
        reason = why_nothing(here()) if why_nothing else None
    if reason is not None:
        concern = Path(state.current_deploy_filename or "").stem.replace("_", " ")
        host.log(f"{concern}: {reason}", logger.info)
    return reason is None
