"""Bringing data in: a tree of files goes in through one protocol, and every client hashes it over its mounts."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rackproof.bench.ingest.datasets import FOLDER
from rackproof.bench.ingest.reader import read_ingest
from rackproof.bench.ingest.trees import LEG, METRIC, PROGRAM
from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, Writes, expected, reading_or_reason, shown
from rackproof.bench.storage.client_runs import Clients
from rackproof.bench.storage.commands import drop_and_state, mounted, origin_of, own_folders, state_after
from rackproof.bench.user import node_program
from rackproof.configure.ingest.inputs import IngestInputs
from rackproof.configure.settings import read_inputs
from rackproof.core.architecture import Architecture, Storage, Tree
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.rack import Node, Rack
from rackproof.core.wording import counted

STATE_S: Final = 120.0
SLOWEST: Final = 1_000_000.0
"""B/s of the slowest way into a storage, for time limits."""
FILE_S: Final = 1.0
"""One file, for time limits: opened, synchronised and closed."""
_BLOCK: Final = 4096
SEED: Final = "SEED"
"""In the commands of a dry run: the seed is new in each run."""


def step(name: str, tree: Tree, nodes: Sequence[str], architecture: Architecture, rack: Rack) -> Step:
    """The step of one tree."""
    id_ = f"ingest/{tree.storage}/{name}/{LEG}"
    labels = {"storage": tree.storage, "protocol": tree.protocol}
    place = expected(METRIC, Scope.RACK, nodes, labels, id_)
    estimate = 30 + tree.files * (0.1 + tree.max_bytes / 20e6)

    def execute(context: BenchContext) -> Iterator[Measurement]:
        run, why = _TreeRun(context, tree, nodes), ""
        try:
            why = run.execute()
        finally:
            run.remove()
        read = read_ingest(run.answers, context.session.architecture)
        yield reading_or_reason(place, read, outputs_of(run.answers), why)

    def commands() -> Iterator[str]:
        way = _way(architecture, rack.node(nodes[0]), tree, SEED)
        if not isinstance(way, str):
            written, read = _written(tree, way, SEED), _read(tree, architecture.storage[tree.storage], SEED)
            yield from (_program(*words) for words in (("write", written), ("read", read), ("remove", written)))

    what = f"{counted(tree.files, 'file', 'files')} written by {tree.protocol}, hashed by all clients"
    title = f"{name} on {tree.storage}: {what}"
    writes = Writes(most_bytes(tree))
    return Step(id_, title, estimate, (place,), execute, commands=shown(commands), writes=writes)


def most_bytes(tree: Tree) -> int:
    """Bytes of a tree whose files all have the largest size, in whole blocks."""
    return tree.files * max(1, -(-tree.max_bytes // _BLOCK)) * _BLOCK


def _way(architecture: Architecture, first: Node, tree: Tree, seed: str) -> dict[str, Any] | str:
    """How the first node writes, or what the inventory lacks for it. Raises InventoryError."""
    if tree.writer is not None:
        folder = tree_folder(architecture.storage[tree.writer].mountpoints[0], seed)
        return {"by": "mount", "storage": tree.writer, "folder": folder}
    inputs = read_inputs(first, IngestInputs)
    if tree.protocol == "smb" and inputs.smb_share:
        own = {"share": inputs.smb_share, "folder": inputs.smb_folder.lstrip("/")}
        return {"by": "smb", **own, "login": inputs.smb_credentials or ""}
    if tree.protocol == "hdfs" and inputs.hdfs_url:
        return {"by": "hdfs", "url": inputs.hdfs_url.rstrip("/"), "user": inputs.hdfs_user}
    key = {"smb": "smb_share", "hdfs": "hdfs_url"}[tree.protocol]
    return f"the inventory's ingest.{key} of {first.name} does not say how {tree.protocol} reaches {tree.storage}"


def _written(tree: Tree, way: Mapping[str, Any], seed: str) -> dict[str, Any]:
    """Configuration that writes the tree, and removes it."""
    return {
        "seed": seed, "files": tree.files, "max_bytes": tree.max_bytes, "storage": tree.storage,
        "protocol": tree.protocol, "way": way,
    }  # fmt: skip


def _read(tree: Tree, storage: Storage, seed: str) -> dict[str, Any]:
    """Configuration that hashes the tree."""
    folders = [tree_folder(point, seed) for point in storage.mountpoints]
    return {"seed": seed, "files": tree.files, "max_bytes": tree.max_bytes, "folders": folders}


def _program(action: str, spec: Mapping[str, Any]) -> str:
    return node_program(PROGRAM, action, json.dumps(spec, sort_keys=True))


class _TreeRun(Clients):
    def __init__(self, context: BenchContext, tree: Tree, nodes: Sequence[str]) -> None:
        super().__init__(context, tree.storage, context.session.architecture.storage[tree.storage], list(nodes))
        self.tree = tree
        self.seed = secrets.token_hex(8)
        self.limit_s = STATE_S + tree.files * (FILE_S + tree.max_bytes / SLOWEST)
        self.written: dict[str, Any] | None = None

    def execute(self) -> str:
        """Everything. Returns why it could not be started; what happens in it is the reader's."""
        if silent := self.silent:
            return silent
        first = self.session.rack.node(self.clients[0])
        way = _way(self.session.architecture, first, self.tree, self.seed)
        if isinstance(way, str):
            return way
        if lost := self.users.ready(self.clients):
            return "; ".join(lost.values())
        self.users.put(self.clients, "rackproof.bench.ingest", (PROGRAM,))
        return self._write(way) or self._read()

    def _write(self, way: dict[str, Any]) -> str:
        first, storage = self.clients[0], None
        if way["by"] == "mount":
            storage = self.session.architecture.storage[way["storage"]]
            own = own_folders(storage, [way["folder"]], self.users[first], "unused")
            for command in (own, self._state(storage, before=True)):
                if not (answer := self.ask({first: command}, STATE_S)[first]).ok:
                    return f"{first}: {answer.why}"
        spec = self.written = _written(self.tree, way, self.seed)
        self.ask({first: self._command("write", first, spec, storage)}, self.limit_s)
        if storage is not None:
            self.ask({first: self._state(storage, before=False)}, STATE_S)
        return ""

    def _read(self) -> str:
        storage = self.storage
        self.drop(dict.fromkeys(self.clients, self._state(storage, before=True)), STATE_S)
        if self.lost:
            return "; ".join(self.lost.values())
        spec = _read(self.tree, storage, self.seed)
        reads = {node: self._command("read", node, spec, storage) for node in self.clients}
        self.ask(reads, self.limit_s * len(storage.mountpoints))
        self.ask(dict.fromkeys(self.clients, self._state(storage, before=False)), STATE_S)
        return ""

    def remove(self) -> None:
        """Remove the tree; a failure leaves it for people, its name is in the evidence."""
        if self.written is not None:
            way = self.written["way"]
            storage = self.session.architecture.storage[way["storage"]] if way["by"] == "mount" else None
            first = self.clients[0]
            self.ask({first: self._command("remove", first, self.written, storage)}, self.limit_s)

    def _state(self, storage: Storage, *, before: bool) -> str:
        folders = [tree_folder(point, self.seed) for point in storage.mountpoints]
        origin = origin_of(self.session.architecture, self.session.rack, storage)
        return (drop_and_state if before else state_after)(storage, folders, origin)

    def _command(self, action: str, node: str, spec: Mapping[str, Any], storage: Storage | None) -> str:
        program = f"{self.users[node].prefix}{_program(action, spec)}"
        return f"{mounted(storage.mountpoints)}; {program}" if storage is not None else program


def tree_folder(point: str, seed: str) -> str:
    return f"{point}/{FOLDER}/tree-{seed}"
