"""IMEX on nodes that NVLink joins: the list of its nodes, and the state of its service."""

from __future__ import annotations

import json
from collections.abc import Sequence

VERSION = "570.172.08"


def imex_answer(command: str, addresses: Sequence[str]) -> str | None:
    """None for another command."""
    if "nodes_config.cfg" in command:
        return "".join(f"{address}\n" for address in addresses) + "status 0\n"
    if "nvidia-imex-ctl" not in command:
        return None
    connections = {
        str(number): {"host": address, "status": "CONNECTED", "changed": True}
        for number, address in enumerate(addresses)
    }
    nodes = {
        str(number): {
            "status": "READY", "host": address, "connections": connections, "changed": True, "version": VERSION,
        }
        for number, address in enumerate(addresses)
    }  # fmt: skip
    return json.dumps({"nodes": nodes, "timestamp": "11/3/2025 09:14:52.317", "status": "UP"}) + "\nstatus 0\n"
