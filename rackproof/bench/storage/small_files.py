"""Small files of every client at once, by ``files_node.py``: read and compared with shards, and rates of their names.

fio looks at every file before it measures, which fills the client's caches of names and attributes. Here caches are
dropped between the creation of files and each use, on clients and servers, and a file is used once in a run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from rackproof.bench import moment
from rackproof.bench.step import BenchContext, Step, Writes, expected
from rackproof.bench.storage.client_runs import MARGIN_S, SETUP_S, SLOWEST, STATE_S, TYPICAL, Clients
from rackproof.bench.storage.commands import AFTER, BEFORE, drop_and_state, server_state
from rackproof.bench.storage.small_files_reader import (
    METADATA,
    PROGRAM,
    SHARDS,
    SMALL,
    folders_of_small_files,
    newest_fault,
    trees_of,
)
from rackproof.bench.user import node_program
from rackproof.core.architecture import FilesProfile, Storage, StorageProfile
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.metrics import OPERATIONS
from rackproof.core.wording import counted

_SLOWEST_FILES: Final = 5.0
"""Files a second of the slowest client that is waited for."""
_TYPICAL_FILES: Final = 300.0
"""Files a second of a client for the estimate."""


class _Part(NamedTuple):
    """One pass over the files. A pass that is not ``timed`` prepares the next one, or removes the files."""

    job: str
    action: str
    shards: bool = False
    timed: bool = True


_SMALL: Final = (
    _Part("small-prepare", "prepare", timed=False), _Part("small-create", "create", timed=False),
    _Part("small-read", "read"),
    _Part("shards-prepare", "prepare", shards=True, timed=False),
    _Part("shards-create", "create", shards=True, timed=False), _Part("shards-read", "read", shards=True),
)  # fmt: skip
_METADATA: Final = (
    _Part("metadata-prepare", "prepare", timed=False), *(_Part(f"metadata-{name}", name) for name in OPERATIONS)
)  # fmt: skip
_CLEAR: Final = _Part("clear", "clear", timed=False)


def steps(name: str, storage: Storage, profile: StorageProfile, clients: list[str]) -> Iterator[Step]:
    """The steps of one storage."""
    if sizes := profile.small_files:
        id_, labels = f"storage/{name}/small-files", {"storage": name, "block_bytes": str(sizes.file_bytes)}
        places = [place for metric in (SMALL, SHARDS) for place in _places(metric, labels, clients, id_)]
        title = f"{name}: files of {sizes.file_bytes} B, and the same bytes in shards"
        yield _step(name, storage, sizes, clients, places, _SMALL, title)
    if sizes := profile.metadata:
        id_ = f"storage/{name}/metadata"
        every = [{"storage": name, "op": op} for op in OPERATIONS]
        places = [place for labels in every for place in _places(METADATA, labels, clients, id_)]
        title = f"{name}: files of {sizes.file_bytes} B created, looked at, read and removed"
        yield _step(name, storage, sizes, clients, places, _METADATA, title)


def _places(metric: str, labels: dict[str, str], clients: list[str], step: str) -> Iterator[Measurement]:
    for node in clients:
        yield expected(metric, Scope.NODE, [node], labels, step)
    yield expected(metric, Scope.RACK, clients, labels, step)


def _step(
    name: str,
    storage: Storage,
    sizes: FilesProfile,
    clients: list[str],
    places: list[Measurement],
    parts: tuple[_Part, ...],
    title: str,
) -> Step:
    def execute(context: BenchContext) -> Iterator[Measurement]:
        run = _Files(context, name, storage, clients, sizes)
        run.execute(parts)
        yield from run.results(places)

    creates = sum(part.action == "create" for part in parts)
    uses = sum(part.action != "prepare" for part in parts)
    each_s = SETUP_S + moment.TYPICAL_S + sizes.bytes / TYPICAL + sizes.files * sizes.processes / _TYPICAL_FILES
    who = counted(len(clients), "client", "clients at once")
    commands = [
        node_program(PROGRAM, json.dumps(_config(storage, clients[0], sizes, part)))
        for part in (*parts, _CLEAR)
        if clients
    ]
    return Step(
        places[0].step, f"{title}, by {who}", sizes.runs * uses * each_s, tuple(places), execute,
        commands=tuple(commands), writes=Writes(sizes.runs * creates * sizes.bytes * len(clients)),
    )  # fmt: skip


def _config(storage: Storage, node: str, sizes: FilesProfile, part: _Part) -> dict[str, Any]:
    return {
        "job": part.job, "action": part.action, "folders": list(trees_of(storage, node)), "files": sizes.files,
        "file_bytes": sizes.file_bytes, "shards": part.shards, "processes": sizes.processes,
    }  # fmt: skip


class _Files(Clients):
    def __init__(
        self, context: BenchContext, name: str, storage: Storage, clients: list[str], sizes: FilesProfile
    ) -> None:
        super().__init__(context, name, storage, clients)
        self.sizes = sizes
        count = sizes.files * sizes.processes
        self.count_s = STATE_S + count / _SLOWEST_FILES
        self.limit_s = MARGIN_S + count / _SLOWEST_FILES + sizes.bytes / SLOWEST

    def execute(self, parts: tuple[_Part, ...]) -> None:
        """All runs, up to the first part that loses a client; then the files are removed."""
        self.prepare(PROGRAM, lambda node: folders_of_small_files(self.storage, node), "unused")
        made = self.ready
        for _ in range(self.sizes.runs):
            for part in parts:
                if self.lost:
                    break
                self._use(part)
        self.ask({node: self._command(node, _CLEAR, {}) for node in made}, self.count_s)

    def _use(self, part: _Part) -> None:
        if part.timed:
            of_tree = part.action == "read"
            self.drop(
                {
                    node: drop_and_state(
                        self.storage, trees_of(self.storage, node) if of_tree else (), self.origin, tree=of_tree
                    )
                    for node in self.clients
                },
                self.count_s,
            )
            # Not beside the clients: those that count their files let the servers read names from their drives.
            self.ask(self.of_servers(server_state(BEFORE)))
        if self.lost:
            return
        if part.action == "prepare":
            answers = self.ask({node: self._command(node, part, {}) for node in self.clients}, self.limit_s)
        else:
            start = moment.CommonStart(self.session, self.users, [part.job], self.sizes.start_s)
            commands = {node: self._command(node, part, start.config) for node in self.clients}
            answers, unready = start.run(commands, self.limit_s)
            self.own += answers.values()
            if unready:
                self.lost |= dict.fromkeys(self.clients, unready)
                return
        for node, answer in answers.items():
            if (why := newest_fault(answer, part.job)) is not None:
                self.lost[node] = why
        if part.timed and not self.lost:
            self.lost |= self.read_state(self.clients, lambda node: (), self.of_servers(server_state(AFTER)))

    def _command(self, node: str, part: _Part, start: Mapping[str, Any]) -> str:
        config = {**_config(self.storage, node, self.sizes, part), **start}
        return self.on_mounts(node, node_program(PROGRAM, json.dumps(config)))
