"""Which operations every deploy file adds to every node when pyinfra executes it alone, and what it says.

``python -m tests.unit.plan.alone INVENTORY…`` prints it as JSON; nothing is planned beyond that.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def main() -> None:
    os.environ["PYINFRA_PROGRESS"] = "off"
    os.environ.setdefault("RACKPROOF_PLAN_SECRET", "not a secret")
    import pyinfra

    pyinfra.is_cli = True
    sys.path.append(".")
    listener = Lines()
    pyinfra.logger.setLevel(logging.INFO)
    pyinfra.logger.addHandler(listener)
    pyinfra.logger.propagate = False
    deploys = sorted(str(path) for path in Path("deploys").glob("[a-z]*.py"))
    answers = {
        inventory: {deploy: _loaded(inventory, deploy, listener) for deploy in deploys} for inventory in sys.argv[1:]
    }
    print(json.dumps(answers))


def _loaded(source: str, deploy: str, listener: Lines) -> dict[str, dict[str, list[str]]]:
    """Node: names of its operations in their order, and the lines about it."""
    from pyinfra.api.config import Config
    from pyinfra.api.connect import connect_all, disconnect_all
    from pyinfra.api.state import State, StateStage
    from pyinfra.context import ctx_config, ctx_inventory, ctx_state
    from pyinfra_cli.inventory import make_inventory
    from pyinfra_cli.util import load_deploy_file

    listener.lines.clear()
    state = State(check_for_changes=False)
    state.cwd = os.getcwd()
    ctx_state.set(state)  # type: ignore[no-untyped-call]
    config = Config()  # type: ignore[no-untyped-call]
    ctx_config.set(config)  # type: ignore[no-untyped-call]
    config.lock_current_state()
    inventory = make_inventory(source, cwd=state.cwd)
    ctx_inventory.set(inventory)  # type: ignore[no-untyped-call]
    state.init(inventory, config)
    try:
        state.set_stage(StateStage.Connect)
        connect_all(state)
        state.set_stage(StateStage.Prepare)
        load_deploy_file(state, deploy)
        order = state.get_op_order()
    finally:
        disconnect_all(state)
    return {
        host.name: {
            "operations": [", ".join(state.op_meta[key].names) for key in order if key in state.ops[host]],
            "lines": [line.partition("] ")[2] for line in listener.lines if f"[{host.name}]" in line],
        }
        for host in inventory
    }


if __name__ == "__main__":
    main()
