"""Storage: fio on every client at once, in fio's own client/server mode.

The launcher (the first client that answers) runs ``fio --client=… job --client=… job``; fio starts all clients
together and returns one JSON document with an entry per client. Numbers are fio's, to the last digit.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rackproof.bench.fio_reader import DROP, launches
from rackproof.bench.fio_servers import PORT, FioServers
from rackproof.bench.readers import READERS
from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, expected, reading_of, unmeasured
from rackproof.core.architecture import Architecture, FioJob, Storage, StorageProfile
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.fiojob import render
from rackproof.core.rack import Rack
from rackproof.parse import ParseError, fio
from rackproof.remote.command import CommandResult

SLOWEST_MB_S = 1.0
"""Time limits allow for laying out the files at this rate."""
SETUP_S = 10.0
MARGIN_S = 60.0
MEMORY = "awk '/^MemTotal:/ {printf \"client_ram_bytes %.0f\\n\", $2 * 1024}' /proc/meminfo"
CACHED = (
    "{{ command -v fincore >/dev/null"
    " && found=$(find {folder} -type f -exec fincore --bytes --noheadings --output RES {{}} +)"
    ' && echo "$found" | awk \'{{s += $1}} END {{printf "cached_bytes_start %.0f\\n", s}}\'; true; }}'
)
"""Bytes of the data set that are still in this client's page cache after it was dropped; no line where it cannot be
told, which is not the same as none."""
ORDER = ("write", "read", "randread")
"""Writing comes first: it lays out the files to read."""


def plan(architecture: Architecture, profile: StorageProfile, rack: Rack) -> list[Step]:
    """One step per storage and workload."""
    steps = []
    for name in profile.storages or tuple(architecture.storage):
        storage = architecture.storage[name]
        clients = [n.name for role in storage.client_roles for n in rack.group(role)]
        steps += [_step(name, storage, profile.jobs[rw], clients) for rw in ORDER if rw in profile.jobs]
    return steps


def _places(name: str, job: FioJob, clients: list[str], step: str) -> dict[tuple[str, str], Measurement]:
    """Measurements of one job by (metric, node); the node of the rack's sum is ``""``."""
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


def _step(name: str, storage: Storage, job: FioJob, clients: list[str]) -> Step:
    id_ = f"storage/{name}/{job.rw}"
    places = _places(name, job, clients, id_)

    def execute(context: BenchContext) -> Iterator[Measurement]:
        return _StorageStep(context, name, storage, job, clients, places).execute()

    seconds = job.runs * (job.runtime_s + job.ramp_s + SETUP_S)
    title = f"{name}: {job.rw} of {job.block_bytes} B from {len(clients)} clients at once"
    return Step(id_, title, seconds, tuple(places.values()), execute)


class _StorageStep:
    def __init__(
        self, context: BenchContext, name: str, storage: Storage, job: FioJob, clients: list[str],
        places: dict[tuple[str, str], Measurement],
    ) -> None:  # fmt: skip
        self.context, self.session = context, context.session
        self.name, self.storage, self.job, self.clients, self.places = name, storage, job, clients, places
        self.servers = FioServers.of(context)
        self.answers: list[CommandResult] = []
        """All that the reader needs, in their order."""
        self.lost: dict[str, str] = {}

    def execute(self) -> Iterator[Measurement]:
        nodes = list(self.clients)
        for _ in range(self.job.runs):
            nodes = self._prepare(nodes)
            if not nodes:
                break
            answer = self._launch(nodes)
            survivors = [n for n, why in self.session.fleet.reachable(nodes).items() if why is None]
            if survivors and len(survivors) < len(nodes):
                # A client failed, which may have disturbed the others: repeat without it.
                for node in set(nodes) - set(survivors):
                    self.lost[node] = f"{node}: lost during the measurement"
                nodes = self._prepare(survivors)
                if not nodes:
                    break
                answer = self._launch(nodes)
            if not self._collect(answer, nodes):
                break
        yield from self._results()

    def _prepare(self, nodes: list[str]) -> list[str]:
        """Prepare the clients: check mounts, create directories, drop caches, start servers. Returns those ready."""
        points = " ".join(map(shlex.quote, self.storage.mountpoints))
        check = f'for m in {points}; do mountpoint -q "$m" || {{ echo "$m is not mounted" >&2; exit 1; }}; done'
        commands = {}
        for node in nodes:
            folder = " ".join(map(shlex.quote, self._directories(node)))
            commands[node] = (
                f"{check}; mkdir -p {folder} && {{ {DROP}; }} && {MEMORY} && {CACHED.format(folder=folder)}"
            )
        answers = self.session.run(commands, 60)
        self.answers += answers.values()
        self._drop_server_caches()
        for node, answer in answers.items():
            if not answer.ok:
                self.lost[node] = f"{node}: {answer.why}"
        ready = [node for node in nodes if answers[node].ok]
        for node, why in self.servers.ensure(ready).items():
            if why is not None:
                self.lost[node] = why
        return [node for node in ready if node not in self.lost]

    def _drop_server_caches(self) -> None:
        role = self.storage.server_role
        servers = [node.name for node in self.session.rack.group(role)] if role else []
        self.answers += self.session.run(dict.fromkeys(servers, DROP), 60).values()

    def _directories(self, node: str) -> tuple[str, ...]:
        """One directory on every mount of the storage."""
        return tuple(f"{point}/rackproof-bench/{node}" for point in self.storage.mountpoints)

    def _launch(self, nodes: list[str]) -> CommandResult:
        """Run fio on the launcher; the command removes its temporary job files."""
        parts, arguments = [], []
        for node in nodes:
            folders = ":".join(self._directories(node))  # fio spreads its jobs over them
            text = render(f"{self.name}-{self.job.rw}", self.job, folders)
            parts.append(f'printf %s {shlex.quote(text)} > "$d/{node}.fio"')
            arguments.append(f'--client={self.servers.address(node)},{PORT} "$d/{node}.fio"')
        run = f"fio --eta=never --output-format=json {' '.join(arguments)}"
        command = f"d=$(mktemp -d) && trap 'rm -rf \"$d\"' EXIT && {' && '.join(parts)} && {run}"
        layout = self.job.file_bytes * self.job.numjobs * len(nodes) / (SLOWEST_MB_S * 1e6)
        answer = self.session.run_on(nodes[0], command, self.job.runtime_s + self.job.ramp_s + layout + MARGIN_S)
        self.answers.append(answer)
        return answer

    def _collect(self, answer: CommandResult, nodes: list[str]) -> bool:
        """Name the clients without a result; False when there is none."""
        try:
            result = fio.parse_fio(answer.stdout)
        except ParseError as error:
            reason = answer.why if not answer.ok else f"unreadable output: {error}"
            self.lost |= dict.fromkeys(nodes, f"fio on {nodes[0]}: {reason}")
            return False
        by_address = {self.servers.address(node): node for node in nodes}
        reported = set()
        for entry in result.jobs:
            node = by_address.get(entry.client or "")
            if node is None:
                continue
            reported.add(node)
            if entry.error:
                self.lost[node] = f"{node}: fio error {entry.error}"
        for node in nodes:
            if node not in reported and node not in self.lost:
                self.lost[node] = f"{node}: fio returned no result for it"
        return True

    def _results(self) -> Iterator[Measurement]:
        why = "; ".join(self.lost[node] for node in sorted(self.lost)) or "fio gave no number"
        read = READERS["fio"](self.answers, self.session.architecture)
        raw = outputs_of(launch.answer for launch in launches(self.answers))
        for (_, node), place in self.places.items():
            if node in self.lost or (not node and self.lost):
                yield unmeasured(place, self.lost.get(node) or why, raw)
                continue
            try:
                yield reading_of(place, read, "fio")
            except ParseError as error:
                yield unmeasured(place, f"{node}: {error}" if node else str(error), raw)
