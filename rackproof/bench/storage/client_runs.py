"""Clients of one storage in one step: their files, runs of fio with the state before and after, and who was lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from rackproof.bench.reading import outputs_of
from rackproof.bench.step import NOTHING, BenchContext, Step, Writes, count_or_reason
from rackproof.bench.storage.commands import (
    AFTER,
    BEFORE,
    DROP,
    counters_in_ramp,
    drop_and_state,
    folders_of,
    mounted,
    origin_of,
    own_folders,
    server_in_ramp,
    server_state,
    state_after,
)
from rackproof.bench.storage.fio_clients import FioClients
from rackproof.bench.storage.layout import Layouts
from rackproof.bench.storage.proof import mount_fault
from rackproof.bench.storage.reader import read_storage
from rackproof.bench.storage.runs import runs_of
from rackproof.bench.user import BenchUsers
from rackproof.core.architecture import Storage
from rackproof.core.evidence import Measurement
from rackproof.core.fiojob import Layout, command_line, ramp_of
from rackproof.core.rack import Rack, fold
from rackproof.errors import RemoteError
from rackproof.remote.command import CommandResult
from rackproof.remote.ssh import Connection

SETUP_S = 10.0
STATE_S = 60.0
MARGIN_S = 120.0
"""Seconds for requests in flight at the end, and for the last fsync."""
SLOWEST = 1e6
"""B/s of the slowest client that is waited for where whole files are moved, beside the margin of every run."""
TYPICAL = 20e6
"""B/s of a client for the estimate of such a step."""

JobFile = Callable[[str], str]
"""Job file of a client, from its directories (fio's ``directory``)."""


def fio_step(
    storage: Storage,
    names: Sequence[str],
    places: Sequence[Measurement],
    title: str,
    seconds: float,
    execute: Callable[[BenchContext], Iterable[Measurement]],
    *job_files: JobFile,
    writes: Writes = NOTHING,
) -> Step:
    """A step whose dry run shows its first client's runs."""
    folders = ":".join(folders_of(storage, names[0])) if names else ""
    commands = tuple(command_line(job_file(folders)) for job_file in job_files)
    return Step(places[0].step, title, seconds, tuple(places), execute, commands=commands, writes=writes)


def _with_own_servers(storage: Storage, rack: Rack) -> Storage:
    """The storage; where a node serves and reads, because groups overlap, its servers are clients."""
    serving = {node.name for node in storage.server_nodes(rack)}
    if serving.isdisjoint(storage.clients(rack)):
        return storage
    return storage.model_copy(update={"client_roles": (*storage.client_roles, storage.server_role)})


class Clients:
    """``lost``: why clients have no result, by node. ``own``: answers of this step, in order."""

    def __init__(self, context: BenchContext, name: str, storage: Storage, clients: list[str]) -> None:
        self.context, self.session = context, context.session
        self.name, self.storage, self.clients = name, _with_own_servers(storage, self.session.rack), clients
        self.addresses = storage.addresses(self.session.rack)
        self.origin = origin_of(self.session.architecture, self.session.rack, storage)
        self.users = BenchUsers.of(context)
        self.own: list[CommandResult] = []
        self.lost: dict[str, str] = {}

    @property
    def answers(self) -> list[CommandResult]:
        """For the reader, in order."""
        return self.own

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs that a step without a number refers to."""
        return outputs_of(self.own)

    @property
    def silent(self) -> str:
        """Which clients do not answer; empty where all do."""
        gone = set(self.clients) - set(self.session.alive(self.clients, self.context.say))
        return f"{fold(sorted(gone))} does not answer" if gone else ""

    @property
    def ready(self) -> list[str]:
        return [node for node in self.clients if node not in self.lost]

    def check_mounts(self, nodes: Iterable[str], folders: Callable[[str], tuple[str, ...]]) -> None:
        """Clients whose mounts are not the architecture's are lost."""
        ask = partial(state_after, self.storage, origin=self.origin)
        for node, answer in self.ask({node: ask(folders(node)) for node in nodes}).items():
            if (why := mount_fault(self.storage, answer)) is not None:
                self.lost[node] = f"{node}: {why}"

    def prepare(self, program: str, folders: Callable[[str], Sequence[str]], stem: str) -> dict[str, str]:
        """Account, ``folders`` and a program of storage benchmarks on every client whose mounts are the architecture's;
        the others are lost. ``stem``: of its own files, so that those of fio's steps stay. Returns the commands that
        made the folders."""
        self.check_mounts(self.clients, lambda node: ())
        self.lost |= self.users.ready(self.ready)
        made = {node: own_folders(self.storage, folders(node), self.users[node], stem) for node in self.ready}
        self.lost |= {node: f"{node}: {answer.why}" for node, answer in self.ask(made).items() if not answer.ok}
        try:
            self.users.put(self.ready, "rackproof.bench.storage", (program,))
        except RemoteError as error:
            self.lost |= dict.fromkeys(self.ready, str(error))
        return made

    def on_mounts(self, node: str, program: str) -> str:
        """Command of a program that runs as the node's account, and only where the storage is mounted."""
        return f"{mounted(self.storage.mountpoints)}; {self.users[node].prefix}{program}"

    def drop(
        self, commands: Mapping[str, str], limit_s: float = STATE_S, *, beside: Mapping[str, str] = {}
    ) -> list[str]:
        """Drop caches on clients, by commands that also read their state, then on servers. Returns ready clients.

        Other nodes carry out the commands ``beside`` while the clients drop theirs.
        """
        answers = self.ask({**beside, **commands}, limit_s)
        for node in commands:
            if not answers[node].ok:
                self.lost[node] = f"{node}: {answers[node].why}"
        self.ask({node.name: DROP for node in self.storage.server_nodes(self.session.rack)}, limit_s)
        return [node for node in commands if node not in self.lost]

    def read_state(
        self, nodes: Iterable[str], folders: Callable[[str], tuple[str, ...]], beside: Mapping[str, str] = {}
    ) -> dict[str, str]:
        """Read the clients' state after a run, while other nodes carry out the commands ``beside``. Returns the reasons
        of silent clients."""
        ask = partial(state_after, self.storage, origin=self.origin)
        commands = {node: ask(folders(node)) for node in nodes}
        answers = self.ask(dict(beside) | commands)
        return {
            node: f"{node}: lost during the measurement: {answers[node].why}"
            for node in commands
            if answers[node].rc is None
        }

    def of_servers(self, command: str) -> dict[str, str]:
        """A command for the servers' counters, where no client runs on a server: its own bytes would be among them."""
        if self.storage.server_role in self.storage.client_roles:
            return {}
        return {node.name: command for node in self.storage.server_nodes(self.session.rack)}

    def results(self, places: Iterable[Measurement]) -> Iterator[Measurement]:
        """The step's measurements; once a client is lost, only wrong content that another one has read counts."""
        lost, raw = self.lost, self.outputs
        why = f"{fold(lost)} missing: {'; '.join(lost[node] for node in sorted(lost))}" if lost else ""
        read = read_storage(self.answers, self.session.architecture)
        for place in places:
            yield count_or_reason(place, read, raw, why)

    def ask(self, commands: Mapping[str, str], limit_s: float = STATE_S) -> dict[str, CommandResult]:
        answers = self.session.run(commands, limit_s, hold=True)
        self.own += answers.values()
        return answers


class StorageClients(Clients):
    """Clients that run fio. ``owners``: whose files a client uses in a run, where they are not its own."""

    def __init__(
        self,
        context: BenchContext,
        name: str,
        storage: Storage,
        layout: Layout,
        clients: list[str],
        owners: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(context, name, storage, clients)
        self.layout, self.fio, self.layouts = layout, FioClients(context), Layouts.of(context)
        self.owners = owners or {}

    @property
    def answers(self) -> list[CommandResult]:
        """Answers of the runs that wrote the files, then of this step."""
        return [*self.layouts.answers(self.name), *self.own]

    @property
    def outputs(self) -> tuple[str, ...]:
        return outputs_of(run.launch.answer for run in runs_of(self.answers))

    def write_files(self) -> None:
        """Write missing files, only on mounts that are the architecture's."""
        missing = self.layouts.missing(self.clients, self._directories)
        self.check_mounts(missing, self._directories)
        missing = [node for node in missing if node not in self.lost]
        self.lost |= self.layouts.write(self.name, self.storage, self.layout, missing, self._directories)

    def spend_files(self) -> None:
        """Note that a run has overwritten the files: the next step that needs them writes them again."""
        self.layouts.spend(self.clients, self._directories)

    def run(self, nodes: list[str], job_file: JobFile, seconds: float, *, again: bool = True) -> list[str]:
        """One run, repeated without clients that failed and may have disturbed the others. Returns its clients.

        Without ``again`` a run that loses clients is the last one: the load would not be the same. A client that read
        other bytes than were written has a result.
        """
        asked = len(nodes)
        while nodes := self._prepare(nodes):
            if len(nodes) < asked and not again:
                break
            answer = self._launch(nodes, {node: job_file(":".join(self._used(node))) for node in nodes}, seconds)
            lost = self.fio.lost(answer, nodes)
            lost = self.read_state(nodes, self._used, self.of_servers(server_state(AFTER))) | lost
            if not lost:
                return nodes
            self.lost |= lost
            if not again:
                break
            nodes = [node for node in nodes if node not in lost]
        return []

    def _launch(self, nodes: list[str], texts: Mapping[str, str], seconds: float) -> CommandResult:
        """fio's answer. Clients and servers tell their counters around the end of a ramp, which fio does not count."""
        limit_s, ramp_s = seconds + MARGIN_S, ramp_of(texts[nodes[0]])
        if not ramp_s:
            self.own.append(self.fio.launch(nodes, texts.__getitem__, limit_s))
            return self.own[-1]
        of_client = counters_in_ramp(self.storage, self.origin, ramp_s, len(nodes))
        commands = self.of_servers(server_in_ramp(ramp_s, len(nodes))) | dict.fromkeys(nodes, of_client)

        def ask(connection: Connection) -> CommandResult:
            return connection.run(commands[connection.node.name], ramp_s + STATE_S, hold=True)

        with ThreadPoolExecutor(max_workers=1) as pool:
            asked = pool.submit(self.session.fleet.each, commands, ask, "counters in the ramp", len(commands))
            answer = self.fio.launch(nodes, texts.__getitem__, limit_s)
            self.own += [answer, *(self.session.record(counters) for counters in asked.result().values())]
        return answer

    def _prepare(self, nodes: list[str]) -> list[str]:
        """Prepare fio, drop caches on clients and servers, read their states. Returns ready clients.

        The servers' counters are read first: dropping caches reads nothing from a drive and sends next to nothing.
        """
        self.lost |= self.fio.unready(nodes)
        ask = partial(drop_and_state, self.storage, origin=self.origin)
        commands = {node: ask(self._used(node)) for node in nodes if node not in self.lost}
        return self.drop(commands, beside=self.of_servers(server_state(BEFORE)))

    def _used(self, node: str) -> tuple[str, ...]:
        """Directories of the files that a run reads and writes."""
        return self._directories(self.owners.get(node, node))

    def _directories(self, node: str) -> tuple[str, ...]:
        """One directory per mount of the storage; fio distributes its processes over them."""
        return folders_of(self.storage, node)
