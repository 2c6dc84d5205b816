"""Read a pyinfra inventory into a Rack, with errors that name the file and the reason.

pyinfra's own loader reads it, so that groups and data have the same meaning as for ``pyinfra``. It runs in a separate
process because importing it patches the interpreter for gevent.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from rackproof.core.rack import Node, Rack
from rackproof.errors import InventoryError
from rackproof.kit import inventory_file

TIMEOUT_S = 60


def load_rack(inventory: str) -> Rack:
    """Load an inventory file.

    Raises InventoryError when the file is absent, raises, lists a node twice in one group or has no node.
    """
    inventory_file(inventory)
    try:
        completed = subprocess.run(
            [sys.executable, "-m", "rackproof.inventory_reader", inventory],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InventoryError(
            f"{inventory}: still loading after {TIMEOUT_S} s; it waits for something, or this machine is overloaded"
        ) from None
    answer = _answer(inventory, completed)
    if "error" in answer:
        raise InventoryError(f"{inventory}: {answer['error']}")
    nodes = tuple(Node(n["name"], tuple(n["groups"]), n["data"]) for n in answer["nodes"])
    if not nodes:
        raise InventoryError(f"{inventory}: lists no node")
    return Rack(inventory, nodes)


def _answer(inventory: str, completed: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    """The reader's last line; earlier lines were printed by the inventory itself."""
    try:
        answer: dict[str, Any] = json.loads(completed.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        lines = completed.stderr.decode(errors="replace").strip().splitlines()
        raise InventoryError(f"{inventory}: {lines[-1] if lines else 'the reader ended without output'}") from None
    return answer
