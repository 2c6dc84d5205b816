"""DLIO, the engine of MLPerf Storage, where it is installed: trains on the group's first nodes from a data set that it
has made itself. It runs as the account that measures, in a folder of that account; over several clients its ranks are
started as those of collectives are."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rackproof.bench.collectives.launch import connect, one_account
from rackproof.bench.collectives.launchers import mpirun
from rackproof.bench.firewall import Firewall
from rackproof.bench.ingest.dlio import ENGINE, LEG, PROFILED, PROGRAM, RATE, UTILISATION, folder_of
from rackproof.bench.ingest.reader import NAME, read_ingest
from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, expected, reading_or_reason, shown
from rackproof.bench.storage.commands import DROP, drop_and_state, mounted, own_folders, state_after
from rackproof.bench.user import HOME, BenchUsers
from rackproof.configure.ingest.inputs import IngestInputs
from rackproof.configure.settings import read_inputs
from rackproof.core.architecture import Architecture, DlioRun, Storage
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.rack import Node, Rack, fold
from rackproof.core.wording import counted
from rackproof.parse import ParseError
from rackproof.parse.dlio import TOOL
from rackproof.remote.command import CommandResult

STATE_S: Final = 600.0
"""A data set of many files is listed."""
MAKE_TIMES: Final = 10
"""How many times as long as a run the data set may take to be made."""
MARGIN_S: Final = 120.0


def step(name: str, sizes: DlioRun, nodes: Sequence[str], architecture: Architecture, rack: Rack) -> Step:
    """The step of one run of the profile."""
    id_, storage = f"ingest/{sizes.storage}/{name}/{LEG}", architecture.storage[sizes.storage]
    protocol = "/".join(filter(None, (storage.fstype, storage.transport)))
    labels = {
        "workload": sizes.workload, "engine": ENGINE, "data": "storage", "storage": sizes.storage,
        "protocol": protocol, "gpus": str(sizes.accelerators), "nodes": str(sizes.clients),
    }  # fmt: skip
    clients = tuple(nodes[: sizes.clients])
    places = [expected(metric, Scope.RACK, clients, labels, id_) for metric in (RATE, UTILISATION)]

    def execute(context: BenchContext) -> Iterator[Measurement]:
        run = _DlioRun(context, name, sizes, storage, clients)
        try:
            why = run.execute()
        except ParseError as error:
            why = error.reason
        read = read_ingest(run.answers, context.session.architecture)
        for place in places:
            yield reading_or_reason(place, read, NAME, outputs_of(run.answers), why)

    what = f"{sizes.config} with {counted(sizes.accelerators, 'accelerator', 'accelerators')} on {fold(clients)}"
    title = f"{name} from {sizes.storage}: DLIO, {what}"

    def commands() -> Iterator[str]:
        folder, first = folder_of(storage, name), rack.node(clients[0])
        launcher = _launcher(first, clients, sizes, architecture)
        for action, times in (("make", MAKE_TIMES), ("train", 1)):
            yield _program(_config(name, sizes, folder, first, launcher, action, times))

    return Step(id_, title, sizes.limit_s * sizes.runs, tuple(places), execute, commands=shown(commands))


def _launcher(first: Node, clients: Sequence[str], sizes: DlioRun, architecture: Architecture) -> list[str]:
    """Words that start the ranks of several clients; none for one. Raises ParseError, InventoryError."""
    if len(clients) == 1:
        return []
    if architecture.fabric is None:
        raise ParseError(TOOL, "several clients meet on the fabric, and the architecture has none")
    folder = read_inputs(first, IngestInputs).dlio
    path, ranks = f"{folder}/mpirun" if folder else "mpirun", sizes.accelerators // len(clients)
    return shlex.split(mpirun(clients, ranks, f"{architecture.fabric.interface_prefix}0", path))


def _config(
    name: str, sizes: DlioRun, folder: str, first: Node, launcher: Sequence[str], action: str, times: int
) -> dict[str, Any]:
    """What the program reads. Raises InventoryError."""
    inputs = read_inputs(first, IngestInputs)
    own: Mapping[str, Any] = sizes.model_dump(mode="json", include=set(PROFILED))
    return {
        "job": name, "action": action, "bin": inputs.dlio or "", "configs": inputs.dlio_configs or "",
        "folder": folder, **({"launcher": list(launcher)} if launcher else {}), **own, "seconds": sizes.limit_s * times,
    }  # fmt: skip


def _program(config: Mapping[str, Any]) -> str:
    return f"python3 -I {HOME}/{PROGRAM} {shlex.quote(json.dumps(config))}"


class _DlioRun:
    def __init__(
        self, context: BenchContext, name: str, sizes: DlioRun, storage: Storage, clients: tuple[str, ...]
    ) -> None:
        self.context, self.session, self.name, self.sizes = context, context.session, name, sizes
        self.storage, self.clients, self.folder = storage, clients, folder_of(storage, name)
        self.node = clients[0]
        self.launcher: list[str] = []
        self.users, self.answers = BenchUsers.of(context), list[CommandResult]()
        rack = self.session.rack
        self.addresses = rack.storage_addresses(storage.servers, storage.server_role, storage.managed)

    def execute(self) -> str:
        """All runs. Returns why they could not be started; what happens in them is the reader's. Raises ParseError,
        RemoteError."""
        if len(self.clients) < self.sizes.clients:
            return f"it needs {self.sizes.clients} clients, the group has {len(self.clients)}"
        if silent := set(self.clients) - set(self.session.alive(list(self.clients), self.context.say)):
            return f"{fold(sorted(silent))} does not answer"
        if lost := self.users.ready(self.clients):
            return "; ".join(lost.values())
        self.users.put([self.node], "rackproof.bench.ingest", (PROGRAM,))
        self._between_clients()
        folders = own_folders(self.storage, [self.folder], self.users[self.node], "unused")
        if not (answer := self._ask(folders, STATE_S)).ok:
            return f"{self.node}: {answer.why}"
        if not self._call("make", MAKE_TIMES).ok:
            return ""
        role = self.storage.server_role
        for _ in range(self.sizes.runs):
            before = self._before([f"{self.folder}/train"])
            for node, state in self._ask_all(before).items():
                if not state.ok:
                    return f"{node}: {state.why}"
            servers = {node.name: DROP for node in (self.session.rack.group(role) if role else ())}
            self.answers += self.session.run(servers, STATE_S).values() if servers else ()
            trained = self._call("train", 1)
            self._ask_all(state_after(self.storage, (), self.addresses))
            if not trained.ok:
                return ""
        return ""

    def _between_clients(self) -> None:
        """Connect several clients, and choose the words that start their ranks. Raises ParseError, RemoteError."""
        if len(self.clients) == 1:
            return
        first = self.session.rack.node(self.node)
        self.launcher = _launcher(first, self.clients, self.sizes, self.session.architecture)
        one_account(self.users, self.clients, TOOL)
        connect(self.context, self.clients)
        Firewall.of(self.context).close(self.clients, (), chosen=True)

    def _before(self, files: Sequence[str]) -> str:
        return drop_and_state(self.storage, files, self.addresses, tree=True)

    def _call(self, action: str, times: int) -> CommandResult:
        first = self.session.rack.node(self.node)
        config = _config(self.name, self.sizes, self.folder, first, self.launcher, action, times)
        run = f"{mounted(self.storage.mountpoints)}; {self.users[self.node].prefix}{_program(config)}"
        return self._ask(run, config["seconds"] + MARGIN_S)

    def _ask_all(self, command: str) -> Mapping[str, CommandResult]:
        answers = self.session.run(dict.fromkeys(self.clients, command), STATE_S)
        self.answers += answers.values()
        return answers

    def _ask(self, command: str, limit_s: float) -> CommandResult:
        answer = self.session.run_on(self.node, command, limit_s, hold=True)
        self.answers.append(answer)
        return answer
