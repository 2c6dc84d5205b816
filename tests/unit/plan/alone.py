"""Which operations every deploy file adds to every node when pyinfra executes it alone, and what it says.

``python -m tests.unit.plan.alone INVENTORY…`` prints it as JSON; nothing is planned beyond that.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

from rackproof.configure.pyinfra_state import loaded, new_state, start


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def main() -> None:
    os.environ.setdefault("RACKPROOF_PLAN_SECRET", "not a secret")
    listener = Lines()
    start(listener)
    deploys = sorted(str(path) for path in Path("deploys").glob("[a-z]*.py"))
    answers = {
        inventory: {deploy: _loaded(inventory, deploy, listener) for deploy in deploys} for inventory in sys.argv[1:]
    }
    print(json.dumps(answers))


def _loaded(source: str, deploy: str, listener: Lines) -> dict[str, dict[str, list[str]]]:
    """Node: names of its operations in their order, and the lines about it."""
    listener.lines.clear()
    state = new_state(source)
    with loaded(state, deploy):
        order = state.get_op_order()
    return {
        host.name: {
            "operations": [", ".join(state.op_meta[key].names) for key in order if key in state.ops[host]],
            "lines": [line.partition("] ")[2] for line in listener.lines if f"[{host.name}]" in line],
        }
        for host in state.inventory
    }


if __name__ == "__main__":
    main()
