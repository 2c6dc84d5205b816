"""DLIO, the engine of MLPerf Storage, where it is installed: trains on the group's first node from a data set that it
has made itself. It runs as the account that measures, in a folder of that account."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rackproof.bench.ingest.dlio import ENGINE, LEG, PROFILED, PROGRAM, RATE, UTILISATION, folder_of
from rackproof.bench.ingest.reader import NAME, read_ingest
from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, expected, reading_of, unmeasured
from rackproof.bench.storage.commands import DROP, drop_and_state, mounted, own_folders, state_after
from rackproof.bench.user import HOME, BenchUsers
from rackproof.configure.ingest.inputs import IngestInputs
from rackproof.configure.settings import read_inputs
from rackproof.core.architecture import DlioRun, Storage
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.wording import counted
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult

STATE_S: Final = 600.0
"""A data set of many files is listed."""
MAKE_TIMES: Final = 10
"""How many times as long as a run the data set may take to be made."""
MARGIN_S: Final = 120.0


def step(name: str, sizes: DlioRun, storage: Storage, nodes: Sequence[str]) -> Step:
    """The step of one run of the profile."""
    id_ = f"ingest/{sizes.storage}/{name}/{LEG}"
    protocol = "/".join(filter(None, (storage.fstype, storage.transport)))
    labels = {
        "workload": sizes.workload, "engine": ENGINE, "data": "storage", "storage": sizes.storage,
        "protocol": protocol, "gpus": str(sizes.accelerators), "nodes": "1",
    }  # fmt: skip
    places = [expected(metric, Scope.RACK, nodes[:1], labels, id_) for metric in (RATE, UTILISATION)]

    def execute(context: BenchContext) -> Iterator[Measurement]:
        run = _DlioRun(context, name, sizes, storage, nodes[0])
        why = run.execute()
        read = read_ingest(run.answers, context.session.architecture)
        for place in places:
            try:
                yield unmeasured(place, why, outputs_of(run.answers)) if why else reading_of(place, read, NAME)
            except ParseError as error:
                yield unmeasured(place, str(error), outputs_of(run.answers))

    what = f"{sizes.config} with {counted(sizes.accelerators, 'accelerator', 'accelerators')} on {nodes[0]}"
    return Step(id_, f"{name} from {sizes.storage}: DLIO, {what}", sizes.limit_s * sizes.runs, tuple(places), execute)


class _DlioRun:
    def __init__(self, context: BenchContext, name: str, sizes: DlioRun, storage: Storage, node: str) -> None:
        self.context, self.session, self.name, self.sizes = context, context.session, name, sizes
        self.storage, self.node, self.folder = storage, node, folder_of(storage, name)
        self.users, self.answers = BenchUsers.of(context), list[CommandResult]()
        rack = self.session.rack
        self.addresses = rack.storage_addresses(storage.servers, storage.server_role, storage.managed)

    def execute(self) -> str:
        """All runs. Returns why they could not be started; what happens in them is the reader's."""
        if not self.session.alive([self.node], self.context.say):
            return f"{self.node} does not answer"
        if lost := self.users.ready([self.node]):
            return "; ".join(lost.values())
        self.users.put([self.node], "rackproof.bench.ingest", (PROGRAM,))
        folders = own_folders(self.storage, [self.folder], self.users[self.node], "unused")
        if not (answer := self._ask(folders, STATE_S)).ok:
            return f"{self.node}: {answer.why}"
        if not self._call("make", MAKE_TIMES).ok:
            return ""
        role = self.storage.server_role
        for _ in range(self.sizes.runs):
            files = [f"{self.folder}/train"]
            if not (state := self._ask(self._before(files), STATE_S)).ok:
                return f"{self.node}: {state.why}"
            servers = {node.name: DROP for node in (self.session.rack.group(role) if role else ())}
            self.answers += self.session.run(servers, STATE_S).values() if servers else ()
            trained = self._call("train", 1)
            self._ask(state_after(self.storage, (), self.addresses), STATE_S)
            if not trained.ok:
                return ""
        return ""

    def _before(self, files: Sequence[str]) -> str:
        return drop_and_state(self.storage, files, self.addresses, tree=True)

    def _call(self, action: str, times: int) -> CommandResult:
        config = self._config(action) | {"seconds": self.sizes.limit_s * times}
        run = f"{self.users[self.node].prefix}python3 -I {HOME}/{PROGRAM} {shlex.quote(json.dumps(config))}"
        return self._ask(f"{mounted(self.storage.mountpoints)}; {run}", config["seconds"] + MARGIN_S)

    def _config(self, action: str) -> dict[str, Any]:
        inputs = read_inputs(self.session.rack.node(self.node), IngestInputs)
        own: Mapping[str, Any] = self.sizes.model_dump(mode="json", include=set(PROFILED))
        return {
            "job": self.name, "action": action, "bin": inputs.dlio or "", "configs": inputs.dlio_configs or "",
            "folder": self.folder, **own,
        }  # fmt: skip

    def _ask(self, command: str, limit_s: float) -> CommandResult:
        answer = self.session.run({self.node: command}, limit_s)[self.node]
        self.answers.append(answer)
        return answer
