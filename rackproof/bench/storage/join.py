"""A node joins: what it gets on its own drives before it can read from a storage."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Final

from rackproof.bench.step import BenchContext, Step, expected
from rackproof.bench.storage.client_runs import MARGIN_S, SETUP_S, STATE_S, Clients
from rackproof.bench.storage.commands import drop_and_state, folders_of, mounted
from rackproof.bench.storage.join_reader import COPIED, PROGRAM
from rackproof.bench.user import JOIN_HOME, OWN_MOUNT, node_program
from rackproof.core.architecture import JoinProfile, Storage
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.fiojob import TEST_FILE
from rackproof.core.wording import counted
from rackproof.errors import NodeUnreachable, RemoteError
from rackproof.remote.ssh import Connection

JOB: Final = "join"
STEM: Final = f"{TEST_FILE}.{JOB}"
"""The planted file is in the folder of fio's files, which other steps need again, and begins with this."""


def step(name: str, storage: Storage, sizes: JoinProfile, clients: list[str]) -> Step:
    """The step of one storage; all clients join at once."""
    id_ = f"storage/{name}/join"
    places = [expected(COPIED, Scope.NODE, [node], {"storage": name}, id_) for node in clients]

    def execute(context: BenchContext) -> Iterator[Measurement]:
        run = _Joins(context, name, storage, clients)
        run.execute(sizes)
        yield from run.results(places)

    seconds = 2 * SETUP_S + sizes.quiet_s
    title = f"{name}: {counted(len(clients), 'client mounts', 'clients mount')} it once more and read"
    plant, join = (json.dumps(_config(storage, clients[0], action, sizes)) for action in ("plant", JOB))
    commands = (node_program(PROGRAM, plant), node_program(PROGRAM, join, home=JOIN_HOME))
    return Step(id_, title, seconds, tuple(places), execute, commands=commands)


class _Joins(Clients):
    def __init__(self, context: BenchContext, name: str, storage: Storage, clients: list[str]) -> None:
        super().__init__(context, name, storage, clients)
        self.seeds = {node: secrets.token_hex(8) for node in clients}

    def execute(self, sizes: JoinProfile) -> None:
        """Plant a file, drop caches, join, and remove the file."""
        folders = self.prepare(PROGRAM, lambda node: folders_of(self.storage, node)[:1], STEM)
        try:
            self.session.fleet.each(self.ready, self._put, "the program that joins")
        except RemoteError as error:
            self.lost |= dict.fromkeys(self.ready, str(error))
        planted = self.ask({node: self._command(node, "plant", sizes) for node in self.ready}, MARGIN_S)
        joining = [node for node, answer in planted.items() if answer.ok]  # the reader says what the others lack
        # The servers are not asked for their counters: one small file is read, and nothing is claimed of its speed.
        self.drop({node: drop_and_state(self.storage, (), self.origin) for node in joining})
        joining = [node for node in joining if node not in self.lost]
        self.ask({node: self._command(node, JOB, sizes) for node in joining}, sizes.quiet_s + 2 * MARGIN_S)
        self.lost |= self.read_state(joining, lambda node: ())
        self.ask({node: f"rm -rf -- {JOIN_HOME}; {own}" for node, own in folders.items()}, STATE_S)

    def _put(self, connection: Connection) -> None:
        """Copy the program to a folder that only root can change: root runs it."""
        made = connection.run(f"mkdir -m 700 -p -- {JOIN_HOME}", STATE_S)
        if not made.ok:
            raise NodeUnreachable(connection.node.name, f"{JOIN_HOME}: {made.why}")
        connection.put(files("rackproof.bench.storage").joinpath(PROGRAM).read_bytes(), f"{JOIN_HOME}/{PROGRAM}")

    def _command(self, node: str, action: str, sizes: JoinProfile) -> str:
        config = json.dumps(_config(self.storage, node, action, sizes) | {"seed": self.seeds[node]})
        if action == "plant":
            return self.on_mounts(node, node_program(PROGRAM, config))
        return f"{mounted(self.storage.mountpoints)}; {node_program(PROGRAM, config, home=JOIN_HOME)}"


def _config(storage: Storage, node: str, action: str, sizes: JoinProfile) -> dict[str, Any]:
    """Configuration of the program, without the seed of the file."""
    return {
        "job": JOB, "action": action, "file": f"rackproof-bench/{node}/{STEM}.0", "own": OWN_MOUNT,
        "point": storage.mountpoints[0], **sizes.model_dump(mode="json"),
    }  # fmt: skip
