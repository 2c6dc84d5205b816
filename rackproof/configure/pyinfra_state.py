"""pyinfra's state of one run, set up as its command does, without a command line.

Several inventories and deploy files can be loaded one after the other in one process.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def start(listener: logging.Handler) -> None:
    """Prepare this process for deploy files; pyinfra's messages go to ``listener`` alone."""
    os.environ["PYINFRA_PROGRESS"] = "off"
    import pyinfra

    pyinfra.is_cli = True
    sys.path.append(".")
    pyinfra.logger.setLevel(listener.level)
    pyinfra.logger.addHandler(listener)
    pyinfra.logger.propagate = False


def new_state(source: str, data: Sequence[str] = (), diff: bool = True) -> Any:
    """A ``State`` with the hosts of an inventory, not yet connected. ``data``: ``KEY=VALUE`` of ``--data``."""
    from pyinfra.api.config import Config
    from pyinfra.api.state import State
    from pyinfra.context import ctx_config, ctx_inventory, ctx_state
    from pyinfra_cli.inventory import make_inventory
    from pyinfra_cli.util import exec_file, parse_cli_arg

    state = State(check_for_changes=False)
    state.cwd = os.getcwd()
    ctx_state.set(state)  # type: ignore[no-untyped-call]
    config = Config()  # type: ignore[no-untyped-call]
    ctx_config.set(config)  # type: ignore[no-untyped-call]
    if Path("config.py").exists():
        exec_file("config.py")
    config.DIFF = diff
    config.lock_current_state()
    override = {key: parse_cli_arg(value) for key, _, value in (pair.partition("=") for pair in data)}
    inventory = make_inventory(source, cwd=state.cwd, override_data=override)
    ctx_inventory.set(inventory)  # type: ignore[no-untyped-call]
    state.init(inventory, config)
    return state


@contextmanager
def loaded(state: Any, deploy: str) -> Iterator[None]:
    """The hosts connected and the deploy file loaded for each. Hosts that are lost are in ``state.failed_hosts``."""
    from pyinfra.api.connect import connect_all, disconnect_all
    from pyinfra.api.exceptions import PyinfraError
    from pyinfra.api.state import StateStage
    from pyinfra_cli.util import load_deploy_file

    try:
        try:
            state.set_stage(StateStage.Connect)
            connect_all(state)
            state.set_stage(StateStage.Prepare)
            load_deploy_file(state, deploy)
        except PyinfraError as error:
            if str(error) != "No hosts remaining!":  # every lost node has an error of its own
                raise
        yield
    finally:
        disconnect_all(state)


def cause(error: BaseException) -> BaseException:
    """pyinfra wraps what an inventory or a deploy raises."""
    return getattr(error, "exception", error)


def one_line(error: BaseException) -> str:
    """An error without secrets, in one line; with its type where it is a defect."""
    from pyinfra.api.exceptions import PyinfraError

    from rackproof.errors import RackproofError
    from rackproof.remote.redaction import redact

    error = cause(error)
    text = " ".join(str(error).split()) or type(error).__name__
    known = isinstance(error, PyinfraError | RackproofError)
    return redact(text if known else f"{type(error).__name__}: {text}")
