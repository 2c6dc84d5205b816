"""Read a pyinfra inventory into a Rack, with errors that name the file and the reason.

pyinfra's own loader reads it, so that groups and data have the same meaning as for ``pyinfra``. It runs in a separate
process because importing it patches the interpreter for gevent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rackproof.core.node_data import wrong, wrong_name
from rackproof.core.rack import Node, Rack
from rackproof.errors import InventoryError
from rackproof.kit import inventory_file
from rackproof.read_file import DOCUMENT, read_bytes

TIMEOUT_S = 60
LOGIN_FILES = ("ssh_key", "ssh_known_hosts_file", "ssh_config_file")


def load_rack(inventory: str) -> Rack:
    """Load an inventory file.

    Raises InventoryError when the file is absent, raises, lists a node twice in one group or has no node.
    """
    inventory_file(inventory)
    try:
        completed = subprocess.run(
            [sys.executable, "-P", "-m", "rackproof.inventory_reader", inventory],
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
    try:
        nodes = tuple(Node(n["name"], tuple(n["groups"]), n["data"]) for n in answer["nodes"])
    except InventoryError as error:
        raise InventoryError(f"{inventory}: {error}") from None
    if not nodes:
        raise InventoryError(f"{inventory}: lists no node")
    for node in nodes:
        if problem := wrong_name(node.name, node.groups):
            raise InventoryError(f"{inventory}: {problem}")
        if problem := wrong(node.data):
            raise InventoryError(f"{inventory}: {node.name}: {problem}")
    _check_login_files(inventory, nodes)
    return Rack(inventory, nodes)


def _check_login_files(inventory: str, nodes: Iterable[Node]) -> None:
    """Files that paramiko reads whole: it waits for a FIFO without end. The connection names those
    that are absent or closed."""
    checked = {os.devnull}
    for node in nodes:
        for key in LOGIN_FILES:
            file = str(node.data.get(key) or os.devnull)
            if file in checked:
                continue
            checked.add(file)
            try:
                read_bytes(Path(os.path.expanduser(file)), DOCUMENT)
            except (FileNotFoundError, PermissionError):
                continue
            except OSError as error:
                raise InventoryError(f"{inventory}: {node.name}: {key}: {file}: {error.strerror}") from None


def _answer(inventory: str, completed: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    """The reader's last line; earlier lines were printed by the inventory itself."""
    try:
        answer: dict[str, Any] = json.loads(completed.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        lines = completed.stderr.decode(errors="replace").strip().splitlines()
        raise InventoryError(f"{inventory}: {lines[-1] if lines else 'the reader ended without output'}") from None
    return answer
