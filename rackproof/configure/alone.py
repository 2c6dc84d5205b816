"""Deploy files that pyinfra executes themselves, instead of by way of ``deploys/cluster.py``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyinfra import logger
from pyinfra.context import host, state

from rackproof.configure.site import Site, here

EXECUTED = "builtins"
"""What ``__name__`` is in a file that pyinfra executes: it gives such files no module name."""


def alone(module: str, why_nothing: Callable[[Site], str | None] | None = None) -> bool:
    """Whether pyinfra executes the calling deploy file itself and this node gets something from it.

    + module: ``__name__`` of the deploy file
    + why_nothing: says why a node gets nothing; the reason is logged, one line a node

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
    reason = why_nothing(here()) if why_nothing else None
    if reason is not None:
        concern = Path(state.current_deploy_filename or "").stem.replace("_", " ")
        host.log(f"{concern}: {reason}", logger.info)
    return reason is None
