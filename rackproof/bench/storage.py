"""Storage: fio on every client at once, in fio's own client/server mode.

The launcher (the first client that answers) runs ``fio --client=… job --client=… job``; fio starts all clients
together and returns one JSON document with an entry per client. Numbers are fio's, to the last digit.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rackproof.bench.fio_servers import PORT, FioServers
from rackproof.bench.step import BenchContext, Step, expected, measured, unmeasured
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
"""Bytes of the data set in this client's page cache after it was dropped. Without fincore it prints no line: unknown,
not 0."""
ADD_UP = ("application_bytes", "cached_bytes_start", "client_ram_bytes", "dataset_bytes", "iops", "outstanding")
"""Companions of clients that add up to the rack's."""
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
        self.samples: dict[tuple[str, str], list[float]] = {}
        self.companions: dict[str, dict[str, list[float]]] = {}
        """By node: companions of each run."""
        self.memory: dict[str, dict[str, float]] = {}
        """By node: ``client_ram_bytes`` and ``cached_bytes_start`` before the current run."""
        self.outputs: list[str] = []
        self.conditions: dict[str, object] = {}
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
                self.samples.clear()
                self.companions.clear()
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
        drop = "sync; echo 3 > /proc/sys/vm/drop_caches"
        commands = {}
        for node in nodes:
            folder = " ".join(map(shlex.quote, self._directories(node)))
            commands[node] = (
                f"{check}; mkdir -p {folder} && {{ {drop}; }} && {MEMORY} && {CACHED.format(folder=folder)}"
            )
        answers = self.session.run(commands, 60)
        self._drop_server_caches()
        for node, answer in answers.items():
            if not answer.ok:
                self.lost[node] = f"{node}: {answer.why}"
        ready = [node for node in nodes if answers[node].ok]
        self.memory = {node: _memory(answers[node].text) for node in ready}
        for node, why in self.servers.ensure(ready).items():
            if why is not None:
                self.lost[node] = why
        return [node for node in ready if node not in self.lost]

    def _drop_server_caches(self) -> None:
        role = self.storage.server_role
        servers = [node.name for node in self.session.rack.group(role)] if role else []
        answers = self.session.run(dict.fromkeys(servers, "sync; echo 3 > /proc/sys/vm/drop_caches"), 60)
        local = self.storage.class_ == "local"  # the kit cannot drop the cache of an appliance
        dropped = bool(answers) and all(answer.ok for answer in answers.values())
        self.conditions = {
            "io": "O_DIRECT",
            "cache": "cold" if dropped or local else "cold on clients, unknown on servers",
            "client_cache": "dropped before, bypassed",
            "server_cache": "none" if local else "dropped before" if dropped else "unknown",
        }

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
        self.outputs += self.session.outputs(answer)
        self.conditions |= {"clients": len(nodes), "clients_asked": len(self.clients)}
        return answer

    def _collect(self, answer: CommandResult, nodes: list[str]) -> bool:
        """Add one sample per client; False when fio gave none."""
        try:
            result = fio.parse_fio(answer.stdout)
        except ParseError as error:
            reason = answer.why if not answer.ok else f"unreadable output: {error}"
            self.lost |= dict.fromkeys(nodes, f"fio on {nodes[0]}: {reason}")
            return False
        self.conditions["fio"] = result.version
        by_address = {self.servers.address(node): node for node in nodes}
        totals: dict[str, float] = {}
        for entry in result.jobs:
            node = by_address.get(entry.client or "")
            if node is None:
                continue
            if entry.error:
                self.lost[node] = f"{node}: fio error {entry.error}"
                continue
            for metric, value in self._values(entry).items():
                self.samples.setdefault((metric, node), []).append(value)
                totals[metric] = totals.get(metric, 0.0) + value
            for name, number in self._beside(entry, node).items():
                self.companions.setdefault(node, {}).setdefault(name, []).append(number)
        for node in nodes:
            if not any(n == node for _, n in self.samples) and node not in self.lost:
                self.lost[node] = f"{node}: fio returned no result for it"
        if not self.lost:
            for metric, total in totals.items():
                self.samples.setdefault((metric, ""), []).append(total)
        return True

    def _values(self, entry: fio.JobResult) -> dict[str, float]:
        if self.job.rw == "write":
            return {"storage.write_bandwidth": entry.write.bandwidth_bytes_per_s / 1e6} if entry.write else {}
        if entry.read is None:
            return {}
        if self.job.rw == "read":
            return {"storage.read_bandwidth": entry.read.bandwidth_bytes_per_s / 1e6}
        values = {"storage.random_read_iops": entry.read.iops}
        if entry.read.clat is not None:
            values["storage.random_read_latency"] = entry.read.clat.mean_ns / 1e3
        return values

    def _beside(self, entry: fio.JobResult, node: str) -> dict[str, float]:
        """Companions of one run. The latency is total, from submission on, as Little's law needs it."""
        direction = entry.write if self.job.rw == "write" else entry.read
        conditions = dict(self.memory.get(node, {}))
        conditions["dataset_bytes"] = float(self.job.file_bytes * self.job.numjobs)
        conditions["outstanding"] = float(self.job.iodepth * self.job.numjobs)
        if direction is not None:
            conditions["application_bytes"] = float(direction.io_bytes)
            conditions["iops"] = direction.iops
            if direction.lat is not None:
                conditions["latency_s"] = direction.lat.mean_ns / 1e9
        return conditions

    def _companions(self, node: str) -> dict[str, list[float]]:
        """Companions of one client; of the rack (``""``), those that add up."""
        if node:
            return self.companions.get(node, {})
        whole: dict[str, list[float]] = {}
        for name in ADD_UP:
            parts = [self.companions.get(client, {}).get(name, []) for client in self.clients]
            if all(parts) and len({len(part) for part in parts}) == 1:
                whole[name] = [sum(numbers) for numbers in zip(*parts, strict=True)]
        return whole

    def _results(self) -> Iterator[Measurement]:
        conditions = {**self.conditions, "workload": self.job.model_dump(mode="json")}
        why = "; ".join(self.lost[node] for node in sorted(self.lost)) or "fio gave no number"
        for (metric, node), place in self.places.items():
            samples = self.samples.get((metric, node), [])
            if node in self.lost or not samples or (not node and self.lost):
                yield unmeasured(place, self.lost.get(node) or why, self.outputs)
            else:
                yield measured(place, samples, self.outputs, conditions, companions=self._companions(node))


def _memory(text: str) -> dict[str, float]:
    """Values of lines such as ``client_ram_bytes 1026392064``; other lines are ignored."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if name in ("client_ram_bytes", "cached_bytes_start") and number.strip().isdecimal():
            values[name] = float(number)
    return values
