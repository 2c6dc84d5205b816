"""Storage clients in memory that also run ``files_node.py``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rackproof.bench.storage.program_runs import configs_of
from rackproof.bench.storage.small_files_reader import MARK, PROGRAM
from rackproof.remote.command import CommandResult
from tests.unit.fakes import reply
from tests.unit.storage_nodes import StorageNodes
from tests.unit.transfer_answers import FSID

FILES_S = 200.0
"""Small files a second of every client."""
SHARDS = 60e6
"""B/s of a client's shards."""
_OPERATIONS = {"create": "OPEN", "stat": "LOOKUP", "read": "READ", "remove": "REMOVE"}
Answer = Callable[[dict[str, Any]], object]


@dataclass
class FileNodes(StorageNodes):
    """``edit`` changes what the program of a node prints for a job; ``asked`` are its configurations."""

    name: str = "nfs-tcp"
    edit: Mapping[tuple[str, str], Answer] = field(default_factory=dict)
    """By node and job."""
    exits: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Exit statuses after the program's answer."""
    requested: float = 1.0
    """Share of the files for which the client asks its server."""
    late: Mapping[str, float] = field(default_factory=dict)
    """Seconds that a node begins after the common start."""
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    trees: dict[str, tuple[int, int]] = field(default_factory=dict)
    calls: dict[str, dict[str, int]] = field(default_factory=dict)

    def answer(self, node: str, command: str) -> CommandResult | None:
        for config in configs_of(command, PROGRAM):
            return self._program(node, command, config)
        return super().answer(node, command)

    def _program(self, node: str, command: str, config: dict[str, Any]) -> CommandResult:
        self.asked.append((node, config))
        document: dict[str, Any] = {MARK: 1} | {key: config[key] for key in ("job", "folders")}
        size, action = config["files"] * config["file_bytes"], config["action"]
        used = 1 if config["shards"] else config["files"]
        if action not in ("prepare", "clear"):
            document |= {"start_at": 1e9 + len(self.asked), "start_file": config["start_file"]}
            moved = size if action in ("create", "read") else 0
            seconds = size / SHARDS if config["shards"] else config["files"] / FILES_S
            begin = 0.01 + self.late.get(node, 0.0)
            document["processes"] = [[used, moved, begin, begin + seconds]] * config["processes"]
            point = self._storage("").mountpoints[0]
            counters = self.moved.setdefault((node, point), [0, 0])
            counters[action == "create"] += int(moved * config["processes"] * self.counted)
            calls = self.calls.setdefault(node, {})
            name = _OPERATIONS[action]
            calls[name] = calls.get(name, 0) + int(used * config["processes"] * self.requested)
            self.trees[node] = (used * config["processes"], size * config["processes"])
        self.edit.get((node, config["job"]), lambda document: None)(document)
        rc = self.exits.get((node, config["job"]), 1 if "error" in document else 0)
        return reply(node, command, json.dumps(document) + "\n", rc)

    def _state(self, node: str, command: str, when: str, addresses: tuple[str, ...]) -> str:
        text = super()._state(node, command, when, addresses)
        head, _, files = text.partition("-- files\n")
        count, size = self.trees.get(node, (0, 0))
        if "echo -- tree" in command:
            head = "\n".join(line for line in head.splitlines() if not line.startswith("cached_bytes"))
            cached = "" if self.cached is None else f"cached_bytes {self.cached} {count}\n"
            text = f"{cached}{head}\n-- tree\n{count} {size}\n-- end\n"
        elif files:
            text = f"{head}-- end\n"
        operations = "".join(
            f"\t        {name}: {calls} {calls} 0 44 24 0 0 0 0\n" for name, calls in self.calls.get(node, {}).items()
        )
        text = text.replace("per-op statistics\n", f"per-op statistics\n{operations}")
        if self.architecture.storage[self.name].fstype == "ceph":
            path = f"/sys/kernel/debug/ceph/{FSID}.client4242/metrics/latency"
            row = f"{path}:metadata      {sum(self.calls.get(node, {}).values())}          31  9  2400  11\n"
            text = text.replace("-- counters\n", f"-- counters\n{row}")
        return text
