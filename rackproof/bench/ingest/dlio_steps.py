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
from rackproof.bench.ingest.reader import read_ingest
from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, expected, reading_or_reason, shown
from rackproof.bench.storage.client_runs import Clients
from rackproof.bench.storage.commands import drop_and_state, own_folders, state_after
from rackproof.bench.user import node_program
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
            yield reading_or_reason(place, read, outputs_of(run.answers), why)

    what = f"{sizes.config} with {counted(sizes.accelerators, 'accelerator', 'accelerators')} on {fold(clients)}"
    title = f"{name} from {sizes.storage}: DLIO, {what}"

    def commands() -> Iterator[str]:
        folder, first = folder_of(storage, name), rack.node(clients[0])
        launcher = _launcher(first, clients, sizes, architecture)
        for action, times in (("make", MAKE_TIMES), ("train", 1)):
            yield node_program(PROGRAM, json.dumps(_config(name, sizes, folder, first, launcher, action, times)))

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
    """Configuration of the program. Raises InventoryError."""
    inputs = read_inputs(first, IngestInputs)
    own: Mapping[str, Any] = sizes.model_dump(mode="json", include=set(PROFILED))
    return {
        "job": name, "action": action, "bin": inputs.dlio or "", "configs": inputs.dlio_configs or "",
        "folder": folder, **({"launcher": list(launcher)} if launcher else {}), **own, "seconds": sizes.limit_s * times,
    }  # fmt: skip


class _DlioRun(Clients):
    def __init__(
        self, context: BenchContext, job: str, sizes: DlioRun, storage: Storage, clients: tuple[str, ...]
    ) -> None:
        super().__init__(context, sizes.storage, storage, list(clients))
        self.job, self.sizes, self.folder, self.node = job, sizes, folder_of(storage, job), clients[0]
        self.launcher: list[str] = []

    def execute(self) -> str:
        """All runs. Returns why they could not be started; what happens in them is the reader's. Raises ParseError,
        RemoteError."""
        if len(self.clients) < self.sizes.clients:
            return f"it needs {self.sizes.clients} clients, the group has {len(self.clients)}"
        if silent := self.silent:
            return silent
        if lost := self.users.ready(self.clients):
            return "; ".join(lost.values())
        self.users.put([self.node], "rackproof.bench.ingest", (PROGRAM,))
        self._between_clients()
        folders = own_folders(self.storage, [self.folder], self.users[self.node], "unused")
        if not (answer := self.ask({self.node: folders}, STATE_S)[self.node]).ok:
            return f"{self.node}: {answer.why}"
        if not self._call("make", MAKE_TIMES).ok:
            return ""
        drop = drop_and_state(self.storage, [f"{self.folder}/train"], self.origin, tree=True)
        for _ in range(self.sizes.runs):
            self.drop(dict.fromkeys(self.clients, drop), STATE_S)
            if self.lost:
                return "; ".join(self.lost.values())
            trained = self._call("train", 1)
            self.ask(dict.fromkeys(self.clients, state_after(self.storage, (), self.origin)), STATE_S)
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

    def _call(self, action: str, times: int) -> CommandResult:
        first = self.session.rack.node(self.node)
        config = _config(self.job, self.sizes, self.folder, first, self.launcher, action, times)
        command = self.on_mounts(self.node, node_program(PROGRAM, json.dumps(config)))
        return self.ask({self.node: command}, config["seconds"] + MARGIN_S)[self.node]
