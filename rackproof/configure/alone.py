"""Deploy files that pyinfra executes directly, not through ``deploys/cluster.py``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyinfra import logger
from pyinfra.context import host, state

from rackproof.configure.site import Site, here

EXECUTED = "builtins"
"""``__name__`` in a file that pyinfra executes: such files have no module name."""


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
    reason = why_nothing(here()) if why_nothing else None
    if reason is not None:
        concern = Path(state.current_deploy_filename or "").stem.replace("_", " ")
        host.log(f"{concern}: {reason}", logger.info)
    return reason is None
