"""Reads into GPU memory with GPUDirect Storage: gdsio on every GPU of one client after another.

Written to the documented output of gdsio and tested on a stand-in; never run on a GPU by us.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from rackproof.bench.step import BenchContext, Step, expected, reading_or_reason
from rackproof.bench.storage.client_runs import MARGIN_S, SETUP_S, SLOWEST, Clients
from rackproof.bench.storage.commands import AFTER, BEFORE, drop_and_state, server_state
from rackproof.bench.storage.gds_reader import MARK, PROGRAM, folder_of, results_of, simulated
from rackproof.bench.storage.program_runs import ProgramRun
from rackproof.bench.storage.reader import CLIENTS, read_storage
from rackproof.bench.user import node_program
from rackproof.core.architecture import GdsProfile, Storage
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.metrics import GDS
from rackproof.core.wording import counted
from rackproof.parse import ParseError


def step(name: str, storage: Storage, profile: GdsProfile, names: list[str]) -> Step:
    """The step of one storage."""
    labels = {"storage": name, "block_bytes": str(profile.block_bytes), CLIENTS: "1"}
    places = [expected(GDS, Scope.NODE, [node], labels, f"storage/{name}/gds") for node in names]

    def execute(context: BenchContext) -> Iterator[Measurement]:
        for place in places:
            client = _Client(context, name, storage, profile, place.members[0])
            why = client.execute()
            read = read_storage(client.answers, context.session.architecture)
            yield reading_or_reason(place, read, client.outputs, why)

    seconds = len(names) * profile.runs * (profile.runtime_s + SETUP_S)
    who = counted(len(names), "client", "clients one after another")
    title = f"{name}: reads of {profile.block_bytes} B into the memory of all GPUs, by {who}"
    commands = [_program(storage, names[0], profile, action) for action in ("write", "read") if names]
    return Step(places[0].step, title, seconds, tuple(places), execute, commands=tuple(commands))


def _program(storage: Storage, node: str, profile: GdsProfile, action: str) -> str:
    config = {
        "job": action, "action": action, "folder": folder_of(storage, node), "threads": profile.threads,
        "file_bytes": profile.file_bytes, "block_bytes": profile.block_bytes, "seconds": profile.runtime_s,
    }  # fmt: skip
    return node_program(PROGRAM, json.dumps(config))


class _Client(Clients):
    def __init__(self, context: BenchContext, name: str, storage: Storage, profile: GdsProfile, node: str) -> None:
        super().__init__(context, name, storage, [node])
        self.node, self.profile = node, profile

    def execute(self) -> str:
        """All runs. Returns why there is no number."""
        self.prepare(PROGRAM, lambda node: [folder_of(self.storage, node)], "unused")
        try:
            if not self.lost:
                self._run("write", 16 * self.profile.threads * self.profile.file_bytes / SLOWEST)
            for _ in range(self.profile.runs):
                if self.lost:
                    break
                state = drop_and_state(self.storage, (), self.origin)
                self.drop({self.node: state}, beside=self.of_servers(server_state(BEFORE)))
                if not self.lost:
                    self._run("read", float(self.profile.runtime_s))
                    after = self.of_servers(server_state(AFTER))
                    self.lost |= self.read_state([self.node], lambda node: (), after)
        except ParseError as error:
            return str(error)
        return self.lost.get(self.node, "")

    def _run(self, action: str, seconds: float) -> None:
        """Raises ParseError without a result."""
        command = self.on_mounts(self.node, _program(self.storage, self.node, self.profile, action))
        answers = self.ask({self.node: command}, min(seconds, 7200.0) + MARGIN_S)
        run = ProgramRun(PROGRAM, MARK, {}, True, None, answers)
        results_of(run, self.node, action)
        if simulated(run, self.node) and not self.session.rack.node(self.node).simulated_gpus:
            raise ParseError("gdsio", f"{self.node}: a stand-in, but the inventory does not say simulated_gpus")
