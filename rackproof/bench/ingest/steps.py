"""Ingest: does the storage keep the accelerators busy? Real input pipelines, emulated or real accelerators.

``ingest_node.py`` runs on all nodes at once, from one moment by each node's own clock, whose offset is measured before.
A job has one step for each number of nodes and each place of the data, so a killed run loses no finished leg. Data sets
are made first, and found complete later. Mounts and counters are read before and after each run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from rackproof.bench import moment
from rackproof.bench.collectives.launch import backend_of, inputs_of
from rackproof.bench.firewall import Firewall
from rackproof.bench.gpu.links import sampled_links
from rackproof.bench.gpu.steps import torch_folder
from rackproof.bench.ingest import dlio_steps, tree_steps
from rackproof.bench.ingest.caches import CACHE_HITS, LOCAL_HITS, renewed
from rackproof.bench.ingest.datasets import DataSets, folder_of, writing
from rackproof.bench.ingest.image import Image, image_of
from rackproof.bench.ingest.reader import LATENCY_LOSS, LOSS, cache_of, read_ingest
from rackproof.bench.ingest.real import METRIC as UTILISATION
from rackproof.bench.ingest.settling import LEG as SETTLING
from rackproof.bench.ingest.settling import METRIC as SETTLED
from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, expected, reading_or_reason
from rackproof.bench.storage.client_runs import Clients
from rackproof.bench.storage.commands import DROP, drop_and_state, mounted, state_after
from rackproof.bench.user import node_program
from rackproof.core.architecture import Architecture, DataSet, IngestData, IngestJob, IngestProfile, Storage
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.rack import Rack
from rackproof.core.throttles import LABEL
from rackproof.core.wording import counted
from rackproof.errors import DataSetError
from rackproof.parse import ParseError
from rackproof.parse.gpu_list import LIST, parse_gpu_list

PROGRAM: Final = "ingest_node.py"
RANKS: Final = "train_node.py"
"""Started by ``real_node.py`` for accelerators that are real."""
LIST_S: Final = 90.0
SWEEP_S: Final = 140.0
MARGIN_S: Final = 120.0
"""Seconds for the end of workers."""
PASS_S: Final = 3600.0
"""Time limit in seconds of one pass over a data set."""
TORCH: Final = "torchrun"
BESIDE: Final = "beside"
"""Leg of a job with another one on the same nodes."""
STATE_S: Final = 120.0
SETUP_S: Final = 10.0
PRELOAD: Final = 64
"""Samples that a worker holds in memory for a leg without storage."""
SHOWN_SHARDS: Final = 16
"""Shards of single files whose pages are looked for in the page cache."""
_NODE: Final = ("cpu_time_per_sample", "cpu_utilisation")

Places = tuple[Measurement, ...]


class Start(NamedTuple):
    """One run of a leg."""

    nodes: int
    jobs: tuple[str, ...]
    """Names of the jobs that run together."""
    drop: bool
    """Whether caches are dropped before."""
    accelerators: int
    """Accelerators of each node."""
    data: IngestData = IngestData.STORAGE
    apart: bool = False
    """Every node reads the whole data set instead of its share."""


Runs = Sequence[Start]


def plan(architecture: Architecture, profile: IngestProfile, rack: Rack) -> list[Step]:
    """The steps of all trees of files, runs of DLIO and jobs."""
    nodes = [node.name for node in rack.group(profile.members)]
    if not nodes:
        return []
    steps = [tree_steps.step(name, tree, nodes, architecture, rack) for name, tree in profile.trees.items()]
    steps += [dlio_steps.step(name, run, nodes, architecture, rack) for name, run in profile.dlio.items()]
    written: set[str] = set()
    for name in profile.jobs:
        steps += _Job(architecture, profile, name, nodes, written).steps()
    return steps


def datasets_of(profile: IngestProfile, jobs: Iterable[str]) -> dict[str, DataSet]:
    """Data sets of jobs, by name."""
    return {name: profile.datasets[name] for name in (profile.jobs[job].dataset for job in jobs)}


class _Job:
    """``written``: names of the data sets that earlier steps write."""

    def __init__(
        self, architecture: Architecture, profile: IngestProfile, name: str, nodes: list[str], written: set[str]
    ) -> None:
        self.architecture, self.profile, self.name, self.nodes = architecture, profile, name, nodes
        self.written = written
        self.job: IngestJob = profile.jobs[name]
        self.dataset: DataSet = profile.datasets[self.job.dataset]
        self.storage: Storage = architecture.storage[self.dataset.storage]
        self.cache = cache_of(architecture, self.dataset.storage)
        self.training = self.job.kind == "training"

    def steps(self) -> Iterator[Step]:
        job, largest = self.job, len(self.nodes)
        counts = [count for count in job.nodes or (largest,) if count <= largest]
        for data in job.data:
            if data is IngestData.STORAGE and job.epochs:
                yield self._epochs()
                continue
            if data is IngestData.STORAGE and job.port_gbps:
                yield from map(self._port, job.port_gbps)
                continue
            for count in counts:
                yield self._leg(data, count, last=count == counts[-1])
        placed = [count for count in job.placement if count <= largest]
        if len(placed) > 1:
            runs = [Start(count, (self.name,), True, job.accelerators // count) for count in placed] * job.runs
            place = self._place("placement", "ingest.placement_spread", self.nodes, {"workload": job.workload})
            yield self._step(
                "placement", f"the same accelerators on {' and '.join(map(str, placed))} nodes", runs, (place,)
            )
        if job.beside is not None:
            yield self._beside(job.beside)
        if job.predict:
            yield from map(self._sizing, job.port_gbps or (None,))
        if job.settle:
            yield self._settling()

    def _leg(self, data: IngestData, count: int, last: bool) -> Step:
        leg, nodes = f"{data.value}-{count}", self.nodes[:count]
        places = [*self._places(leg, data.value, nodes)]
        if data is IngestData.STORAGE and last and self.training:
            own = {"workload": self.job.workload}
            metrics = ["dataset_bytes_per_sample", "bytes_read_over_dataset"]
            if self.cache is not None:  # a number that no run can have would leave the leg unfinished
                metrics.append("dataset_over_caches")
            for metric in metrics:
                places.append(self._place(leg, f"ingest.{metric}", nodes, own))
        if self.job.engine == "torch" and data is IngestData.STORAGE and last:
            gpus = [f"{node}/gpu{number}" for node in nodes for number in range(self.job.accelerators)]
            own = {"workload": self.job.workload}
            places += [self._place(leg, UTILISATION, [gpu], own, Scope.GPU) for gpu in gpus]
        runs = [Start(count, (self.name,), True, self.job.accelerators, data)] * self.job.runs
        return self._step(leg, f"{data.value}, {counted(count, 'node', 'nodes')}", runs, tuple(places))

    def _port(self, gbps: int) -> Step:
        """From the storage, through ports of one of several rates."""
        leg, every = f"port-{gbps}", self.nodes
        labels = {**self._labels(IngestData.STORAGE.value, len(every)), LABEL: str(gbps)}
        runs = [Start(len(every), (self.name,), True, self.job.accelerators)] * self.job.runs
        places = tuple(self._places(leg, IngestData.STORAGE.value, every, labels=labels))
        return self._through(gbps, leg, "storage", runs, places)

    def _through(self, gbps: int | None, leg: str, title: str, runs: Runs, places: Places) -> Step:
        """The step with the ports at this rate; None: as in every other step."""
        title += f", port {gbps} Gb/s in scale" if gbps else ""
        return replace(self._step(leg, title, runs, places), port_gbps=gbps)

    def _epochs(self) -> Step:
        places: list[Measurement] = []
        for epoch in range(1, self.job.epochs + 1):
            places += self._places("epochs", "storage", self.nodes, str(epoch))
            labels = self._labels("storage", len(self.nodes), str(epoch))
            hits = (CACHE_HITS, LOCAL_HITS) if self.storage.local_cache else (CACHE_HITS,)
            places += [self._place("epochs", metric, [node], labels) for metric in hits for node in self.nodes]
        own = (self.name,)
        one = [Start(len(self.nodes), own, not epoch, self.job.accelerators) for epoch in range(self.job.epochs)]
        return self._step("epochs", f"{self.job.epochs} epochs", one * self.job.runs, tuple(places))

    def _beside(self, other: str) -> Step:
        """Alone, then with the other job on the same nodes."""
        count, accelerators = len(self.nodes), self.job.accelerators
        own = Start(count, (self.name,), True, accelerators), Start(count, (self.name, other), True, accelerators)
        if self.training:
            places = [self._place(BESIDE, LOSS, self.nodes, {"workload": self.job.workload})]
        else:
            kinds = ("nothing", self.profile.jobs[other].kind)
            places = [self._latency(BESIDE, kind, self.nodes) for kind in kinds]
            places.append(self._place(BESIDE, LATENCY_LOSS, self.nodes, {"workload": self.job.workload}))
        return self._step(BESIDE, f"alone and beside {other}", own * self.job.runs, tuple(places))

    def _latency(self, leg: str, beside: str, nodes: Sequence[str]) -> Measurement:
        labels = {"workload": self.job.workload, "beside": beside}
        return self._place(leg, "inference.latency_p99", nodes, labels)

    def _sizing(self, gbps: int | None) -> Step:
        """Each stage by itself, then the whole: the sizing model predicts the whole from the stages."""
        leg = f"sizing-{gbps}" if gbps else "sizing"
        count, one = len(self.nodes), (self.name,)
        legs = (IngestData.MEMORY, IngestData.UNDECODED, IngestData.STORAGE)
        runs = [Start(count, one, True, self.job.accelerators, data) for data in legs] * self.job.runs
        labels = {"workload": self.job.workload} | ({LABEL: str(gbps)} if gbps else {})
        places = tuple(
            self._place(leg, f"sizing.{metric}", self.nodes, labels)
            for metric in ("throughput_over_predicted", "bottleneck_agreement")
        )
        return self._through(gbps, leg, "the sizing model's prediction", runs, places)

    def _settling(self) -> Step:
        """Positive control of the cache detection: a data set that fits into memory must be seen to be cached."""
        runs = [Start(len(self.nodes), (self.name,), True, self.job.accelerators, apart=True)] * self.job.runs
        labels = {"workload": self.job.workload}
        places = tuple(self._place(SETTLING, SETTLED, [node], labels, Scope.NODE) for node in self.nodes)
        return self._step(SETTLING, "time until memory holds the data set", runs, places)

    def _labels(self, data: str, count: int, epoch: str = "1") -> dict[str, str]:
        protocol = "/".join(filter(None, (self.storage.fstype, self.storage.transport)))
        return {
            "workload": self.job.workload, "data": data, "storage": self.dataset.storage, "protocol": protocol,
            "epoch": epoch, "gpus": str(count * self.job.accelerators), "nodes": str(count),
            "format": self.dataset.format,
        }  # fmt: skip

    def _places(
        self, leg: str, data: str, nodes: Sequence[str], epoch: str = "1", labels: Mapping[str, str] | None = None
    ) -> Iterator[Measurement]:
        labels = labels or self._labels(data, len(nodes), epoch)
        reads = data in ("storage", "undecoded")
        if not self.training:
            yield self._place(leg, "inference.samples_rate", nodes, labels)
            for node in nodes:
                yield self._place(leg, "inference.samples_rate", [node], labels, Scope.NODE)
            if reads and LABEL not in labels and self.job.beside is None:
                yield self._latency(leg, "nothing", nodes)
            return
        metrics = ["samples_rate", "accelerator_utilisation"]
        metrics += ["storage_bandwidth", "storage_bytes_per_sample"] if reads else []
        for metric in metrics:
            yield self._place(leg, f"ingest.{metric}", nodes, labels)
        per_node = ("samples_rate", *(("storage_bandwidth",) if reads else ()), *(_NODE if data != "synthetic" else ()))
        for metric in per_node:
            for node in nodes:
                yield self._place(leg, f"ingest.{metric}", [node], labels, Scope.NODE)

    def _place(
        self, leg: str, metric: str, nodes: Sequence[str], labels: Mapping[str, str], scope: Scope | None = None
    ) -> Measurement:
        scope = scope or (Scope.NODE if metric in (CACHE_HITS, LOCAL_HITS) else Scope.RACK)
        return expected(metric, scope, nodes, labels, self._id(leg))

    def _id(self, leg: str) -> str:
        return f"ingest/{self.dataset.storage}/{self.name}/{leg}"

    def _step(self, leg: str, title: str, runs: Runs, places: Places) -> Step:
        def execute(context: BenchContext) -> Iterator[Measurement]:
            step = _IngestStep(context, self._id(leg), self.profile, self.dataset.storage, self.storage)
            return step.execute(runs, places)

        run_s = moment.TYPICAL_S + self.job.warmup_s + self.job.seconds + SETUP_S
        title = f"{self.name} from {self.dataset.storage}: {title}"
        commands = tuple(dict.fromkeys(self._commands(runs)))
        real = any(self.profile.jobs[job].engine == "torch" for run in runs for job in run.jobs)
        return Step(self._id(leg), title, run_s * len(runs), places, execute, commands=commands, in_image=real)

    def _commands(self, runs: Runs) -> Iterator[str]:
        """Commands of the first node: data sets that no earlier step writes, then each kind of run."""
        for name, dataset in datasets_of(self.profile, (job for run in runs for job in run.jobs)).items():
            if name not in self.written:
                yield from writing(self.architecture.storage[dataset.storage], name, dataset, len(self.nodes))
            self.written.add(name)
        for run in runs:
            configs = (_config(self.architecture, self.profile, run, job, 0) for job in run.jobs)
            yield node_program(PROGRAM, *map(json.dumps, configs))


def _config(
    architecture: Architecture,
    profile: IngestProfile,
    run: Start,
    name: str,
    node: int,
    ranks: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Configuration of one job of a run, without the common start. ``ranks``: where and with what the ranks of
    real accelerators run, known once the nodes have answered."""
    job = profile.jobs[name]
    dataset = profile.datasets[job.dataset]
    storage = architecture.storage[dataset.storage]
    accelerators = run.accelerators if name == run.jobs[0] else job.accelerators
    torch: dict[str, Any] | None = None
    if job.engine == "torch":
        described = {"model": job.model, "kind": job.kind, "precision": job.precision}
        gpus = {} if ranks is None else {"gpus": ranks["gpus"][:accelerators]}
        torch = {**(ranks or {}), **described, **gpus, "node": node, "nodes": run.nodes}
        torch |= {"nodes": 1, "node": 0} if job.kind == "inference" else {}
    points = storage.mountpoints[: 1 if run.apart else None]  # each mount has a cache of its own
    return {
        "job": name, "folders": [folder_of(storage, job.dataset, dataset, point) for point in points],
        "mountpoints": list(storage.mountpoints), "data": run.data.value,
        "node": 0 if run.apart else node, "nodes": 1 if run.apart else run.nodes,
        "accelerators": accelerators, "workers": max(1, job.workers // (job.accelerators // accelerators)),
        "slots": job.slots, "batch": job.batch, "step_s": job.step_s, "crop": job.crop,
        "warmup_s": job.warmup_s, "seconds": 0 if job.epochs else job.seconds, "preload": PRELOAD,
        "seed": dataset.seed, "arrivals": job.arrivals_per_s, "local": storage.class_ == "local",
    } | ({"torch": torch} if torch else {})  # fmt: skip


class _IngestStep(Clients):
    def __init__(self, context: BenchContext, id_: str, profile: IngestProfile, name: str, storage: Storage) -> None:
        nodes = [node.name for node in context.session.rack.group(profile.members)]
        super().__init__(context, name, storage, nodes)
        self.id, self.profile = id_, profile
        self.torch: dict[str, Any] = {}
        """Parameters of real accelerators, by node; empty where all are emulated."""
        self.image: Image | None = None

    def execute(self, runs: Runs, places: Places) -> Iterator[Measurement]:
        if not (why := self.silent):
            try:
                self._make(sorted({job for run in runs for job in run.jobs}))
                if any(self.profile.jobs[job].engine == "torch" for run in runs for job in run.jobs):
                    self._prepare_ranks()
                for run in runs:
                    if why := self._run(run):
                        break
            except DataSetError as error:
                why = str(error)
            except ParseError as error:
                why = error.reason
        read = read_ingest(self.answers, self.session.architecture)
        for place in places:
            yield reading_or_reason(place, read, outputs_of(self.answers), why)

    def _make(self, jobs: Sequence[str]) -> None:
        """Data sets and programs. Raises DataSetError."""
        sets = DataSets.of(self.context)
        for name, dataset in datasets_of(self.profile, jobs).items():
            made, answers = sets.make(name, dataset, self.clients)
            self.own += answers
            self.context.say(f"{name}: {made.text(dataset.storage)}")
        sets.ready(self.clients, (PROGRAM, RANKS))

    def _prepare_ranks(self) -> None:
        """Where the ranks of PyTorch meet, and on which GPUs. Raises ParseError."""
        inputs = inputs_of(self.session.rack, self.clients)
        backend = backend_of(self.session.architecture, self.session.rack, self.clients)
        first = self.session.rack.node(self.clients[0])
        address = first.fabric_address() if len(self.clients) > 1 else "127.0.0.1"
        if address is None:
            raise ParseError(TORCH, f"{first.name} has no fabric_addresses, where the ranks could meet")
        gpus: dict[str, list[str]] = {node: [] for node in self.clients}
        if backend == "nccl":
            for node, answer in self.ask(dict.fromkeys(self.clients, LIST), LIST_S).items():
                if not answer.ok:
                    raise ParseError("nvidia-smi", f"{node}: {answer.why}")
                gpus[node] = [gpu.uuid for gpu in parse_gpu_list(answer.stdout)]
        Firewall.of(self.context).close(self.clients, [inputs.port], chosen=True)
        fabric = self.session.architecture.fabric
        interface = f"{fabric.interface_prefix}0" if fabric is not None and len(self.clients) > 1 else ""
        self.image = image_of(
            self.session.architecture, self.session.rack, self.clients,
            lambda command: self.ask(dict.fromkeys(self.clients, command), LIST_S),
        )  # fmt: skip
        if self.image is not None:
            self._sweep(self.image)
            self.context.stack.callback(self._sweep, self.image)
        for node in self.clients:
            python, folder = inputs.python or "python3", torch_folder(self.session.rack.node(node))
            if self.image is not None:
                python, folder = "python3", "-"
            self.torch[node] = {
                "backend": backend, "python": python, "folder": "" if folder == "-" else folder,
                "master": f"{address}:{inputs.port}", "interface": interface, "gpus": gpus[node],
            }  # fmt: skip

    def _sweep(self, image: Image) -> None:
        """Remove containers that a killed client has left: of an earlier run, and at the end of this step. The
        evidence does not record this."""
        answering = [node for node in self.clients if node in self.session.answering]
        for node, answer in self.session.fleet.run(dict.fromkeys(answering, image.sweep), SWEEP_S).items():
            if not answer.ok:
                self.context.say(f"{node}: containers of an earlier run stay: {answer.why}")

    def _run(self, run: Start) -> str:
        """One run. Returns why it could not be started; what happens in it is the reader's."""
        nodes, jobs = self.clients[: run.nodes], run.jobs
        folders = self._folders(self.profile.jobs[jobs[0]])
        every = [self.profile.jobs[job] for job in jobs]
        if run.drop and self.storage.local_cache:
            sets = [folder_of(self.storage, job.dataset, self.profile.datasets[job.dataset]) for job in every]
            self.ask({node: renewed(sets, self.users[node]) for node in self.clients}, PASS_S)
        if every[0].only_local_cache and not run.drop:
            answers = self.ask(dict.fromkeys(nodes, DROP), STATE_S)
            if failed := [f"{node}: {answer.why}" for node, answer in answers.items() if not answer.ok]:
                return "; ".join(failed)
        if run.drop:
            self.drop(dict.fromkeys(nodes, drop_and_state(self.storage, folders, self.origin)), STATE_S)
            if self.lost:
                return "; ".join(self.lost.values())
        start = moment.CommonStart(self.session, self.users, jobs, max(job.start_s for job in every))
        limit = MARGIN_S + max((job.seconds if not job.epochs else PASS_S) + job.warmup_s for job in every)
        commands = {}
        for number, node in enumerate(nodes):
            configs = [self._config(run, job, number) | start.config for job in jobs]
            prefix = self.users[node].prefix
            if self.image is not None:  # also where this run has emulated jobs only: it is compared with the others
                gpus = bool(self.torch[node]["gpus"])
                prefix = self.image.prefix(self.users[node], self.storage.mountpoints, gpus, start.limit_s + limit)
            program = node_program(PROGRAM, *map(json.dumps, configs))
            commands[node] = f"{mounted(self.storage.mountpoints)}; {prefix}{program}"
        loaded = [node for node in nodes if self.torch and self.torch[node]["gpus"]]
        with sampled_links(self.session, self.id, loaded, start.limit_s + limit, self.context.say) as samples:
            answers, why = start.run(commands, limit)
        self.own += [*answers.values(), *samples.values()]
        if why:
            return why
        self.ask(dict.fromkeys(nodes, state_after(self.storage, folders, self.origin)), STATE_S)
        return ""

    def _folders(self, job: IngestJob) -> list[str]:
        """Folders whose files are looked for in the page cache."""
        dataset = self.profile.datasets[job.dataset]
        folder = folder_of(self.storage, job.dataset, dataset)
        if dataset.format != "files":
            return [folder]
        shards = min(SHOWN_SHARDS, -(-dataset.samples // dataset.per_shard))
        return [f"{folder}/shard-{shard:06d}" for shard in range(shards)]

    def _config(self, run: Start, name: str, node: int) -> dict[str, Any]:
        """Raises ParseError for a job that asks for more GPUs than the node has."""
        job = self.profile.jobs[name]
        ranks = self.torch[self.clients[node]] if job.engine == "torch" else None
        config = _config(self.session.architecture, self.profile, run, name, node, ranks)
        if ranks and 0 < len(ranks["gpus"]) < config["accelerators"]:
            there = len(ranks["gpus"])
            raise ParseError(TORCH, f"{self.clients[node]} has {there} GPUs, {name} asks for {config['accelerators']}")
        return config | ({"image": self.image.config} if self.image else {})
