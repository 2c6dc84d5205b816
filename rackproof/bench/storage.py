"""Storage: fio on every client at once, in fio's own client/server mode.

The launcher (the first client that answers) runs ``fio --client=… job --client=… job``; fio starts all clients
together and returns one JSON document with an entry per client. Numbers are fio's, to the last digit. The first step of
a storage writes the files completely. Caches are dropped before every run, and mounts are read before and after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rackproof.bench.fio_clients import FioClients
from rackproof.bench.layout import Layouts
from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, expected, reading_of, unmeasured
from rackproof.bench.storage_commands import DROP, drop_and_state, state_after
from rackproof.bench.storage_proof import mount_fault
from rackproof.bench.storage_reader import NAME, read_storage
from rackproof.bench.storage_runs import runs_of
from rackproof.core.architecture import Architecture, FioJob, Storage, StorageProfile
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.fiojob import Layout, layout_of, render
from rackproof.core.rack import Rack
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult

SETUP_S = 10.0
MARGIN_S = 120.0
"""Seconds for requests in flight at the end, and for the last fsync."""
ORDER = ("write", "read", "randread")


def plan(architecture: Architecture, profile: StorageProfile, rack: Rack) -> list[Step]:
    """One step per storage and workload."""
    steps = []
    layout = layout_of(profile.jobs.values()) if profile.jobs else None
    for name in profile.storages or tuple(architecture.storage):
        storage = architecture.storage[name]
        clients = [n.name for role in storage.client_roles for n in rack.group(role)]
        for rw in ORDER:
            if rw in profile.jobs and layout is not None:
                steps.append(_step(name, storage, profile.jobs[rw], layout, clients))
    return steps


def _places(name: str, job: FioJob, clients: list[str], step: str) -> dict[tuple[str, str], Measurement]:
    """Measurements of one job by (metric, node); node ``""`` is the rack's sum."""
    labels = {"storage": name, "block_bytes": str(job.block_bytes)}
    metrics = {
        "read": ["storage.read_bandwidth"],
        "write": ["storage.write_bandwidth"],
        "randread": ["storage.random_read_iops", "storage.random_read_latency"],
    }[job.rw]
    places = {}
    for metric in metrics:
        for node in clients:
            places[metric, node] = expected(metric, Scope.NODE, [node], labels, step)
        if metric != "storage.random_read_latency":
            places[metric, ""] = expected(metric, Scope.RACK, clients, labels, step)
    return places


def _step(name: str, storage: Storage, job: FioJob, layout: Layout, clients: list[str]) -> Step:
    id_ = f"storage/{name}/{job.rw}"
    places = _places(name, job, clients, id_)

    def execute(context: BenchContext) -> Iterator[Measurement]:
        return _StorageStep(context, name, storage, job, layout, clients, places).execute()

    seconds = job.runs * (job.runtime_s + job.ramp_s + SETUP_S)
    title = f"{name}: {job.rw} of {job.block_bytes} B from {len(clients)} clients at once"
    return Step(id_, title, seconds, tuple(places.values()), execute)


class _StorageStep:
    def __init__(
        self, context: BenchContext, name: str, storage: Storage, job: FioJob, layout: Layout, clients: list[str],
        places: dict[tuple[str, str], Measurement],
    ) -> None:  # fmt: skip
        self.session = context.session
        self.name, self.storage, self.job, self.layout = name, storage, job, layout
        self.clients, self.places = clients, places
        self.fio, self.layouts = FioClients(context), Layouts.of(context)
        rack = self.session.rack
        self.addresses = rack.storage_addresses(storage.servers, storage.server_role, storage.managed)
        self.answers: list[CommandResult] = []
        """Answers of this step for the reader, in order."""
        self.lost: dict[str, str] = {}

    def execute(self) -> Iterator[Measurement]:
        self._write_files()
        nodes = [node for node in self.clients if node not in self.lost]
        for _ in range(self.job.runs):
            nodes = self._run(nodes)
            if not nodes:
                break
        yield from self._results()

    def _write_files(self) -> None:
        """Write missing files, only on mounts that are the architecture's."""
        missing = self.layouts.missing(self.name, self.clients)
        ask = partial(state_after, self.storage, addresses=self.addresses)
        for node, answer in self._ask({node: ask(self._directories(node)) for node in missing}).items():
            if (why := mount_fault(self.storage, answer)) is not None:
                self.lost[node] = f"{node}: {why}"
        missing = [node for node in missing if node not in self.lost]
        self.lost |= self.layouts.write(self.name, self.storage, self.layout, missing, self._directories)

    def _run(self, nodes: list[str]) -> list[str]:
        """One run, repeated without clients that failed and may have disturbed the others. Returns its clients."""
        while nodes := self._prepare(nodes):
            limit = self.job.runtime_s + self.job.ramp_s + MARGIN_S
            answer = self.fio.launch(nodes, self._job_file, limit)
            self.answers.append(answer)
            lost = self.fio.lost(answer, nodes)
            lost = self._read_state(nodes) | lost
            if not lost:
                return nodes
            self.lost |= lost
            nodes = [node for node in nodes if node not in lost]
        return []

    def _prepare(self, nodes: list[str]) -> list[str]:
        """Start fio's servers, drop caches on clients and servers, read the clients' state. Returns ready clients."""
        for node, why in self.fio.servers.ensure(nodes).items():
            if why is not None:
                self.lost[node] = why
        ask = partial(drop_and_state, self.storage, addresses=self.addresses)
        commands = {node: ask(self._directories(node)) for node in nodes if node not in self.lost}
        for node, answer in self._ask(commands).items():
            if not answer.ok:
                self.lost[node] = f"{node}: {answer.why}"
        role = self.storage.server_role
        self._ask({node.name: DROP for node in (self.session.rack.group(role) if role else ())})
        return [node for node in nodes if node not in self.lost]

    def _read_state(self, nodes: list[str]) -> dict[str, str]:
        """Read the clients' state after a run. Returns the reasons of silent clients."""
        ask = partial(state_after, self.storage, addresses=self.addresses)
        answers = self._ask({node: ask(self._directories(node)) for node in nodes})
        return {
            node: f"{node}: lost during the measurement: {answer.why}"
            for node, answer in answers.items()
            if answer.rc is None
        }

    def _ask(self, commands: dict[str, str]) -> dict[str, CommandResult]:
        answers = self.session.run(commands, 60)
        self.answers += answers.values()
        return answers

    def _directories(self, node: str) -> tuple[str, ...]:
        """One directory per mount of the storage; fio distributes its processes over them."""
        return tuple(f"{point}/rackproof-bench/{node}" for point in self.storage.mountpoints)

    def _job_file(self, node: str) -> str:
        return render(f"{self.name}-{self.job.rw}", self.job, ":".join(self._directories(node)))

    def _results(self) -> Iterator[Measurement]:
        why = "; ".join(self.lost[node] for node in sorted(self.lost)) or "fio gave no number"
        answers = [*self.layouts.answers(self.name), *self.answers]
        read = read_storage(answers, self.session.architecture)
        raw = outputs_of(run.launch.answer for run in runs_of(answers))
        for (_, node), place in self.places.items():
            if node in self.lost or (not node and self.lost):
                yield unmeasured(place, self.lost.get(node) or why, raw)
                continue
            try:
                yield reading_of(place, read, NAME)
            except ParseError as error:
                yield unmeasured(place, f"{node}: {error}" if node else str(error), raw)
