"""Reads of all clients beside a collective of the same nodes: each alone, then both at once.

The collective runs for a time instead of a number of calls. It starts before the reads and ends after them, by what
both took alone; the reader proves that it did.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Final

from rackproof.bench.collectives.engines import ENGINES, Sweep
from rackproof.bench.collectives.launch import Launch, Way, launch_of, way_of
from rackproof.bench.gpu.links import sampled_links
from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, count_or_reason, expected, shown
from rackproof.bench.storage.beside_reader import ALONE, BESIDE, calls_of, job_name
from rackproof.bench.storage.client_runs import MARGIN_S, SETUP_S, StorageClients, fio_step
from rackproof.bench.storage.reader import read_storage
from rackproof.core.architecture import Architecture, BesideProfile, CollectiveProfile, Storage
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.fiojob import Layout, render
from rackproof.core.metrics import BESIDE_METRICS
from rackproof.core.rack import Rack
from rackproof.core.wording import counted
from rackproof.errors import RemoteError
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult
from rackproof.remote.interrupt import STOPPING

START_S: Final = 15.0
LEAST_LEAD_S: Final = 3.0
SLACK_S: Final = 10.0
"""Seconds that the collective runs on beyond what both take alone."""


def step(
    name: str,
    storage: Storage,
    profile: BesideProfile,
    layout: Layout,
    names: list[str],
    architecture: Architecture,
    rack: Rack,
) -> Step:
    """The step of one storage, whose clients are the collective's nodes."""
    labels = {"storage": name, "op": profile.op, "bytes": str(profile.message_bytes)}
    id_ = f"storage/{name}/beside-collectives"
    places = [expected(metric, Scope.RACK, names, labels, id_) for metric in BESIDE_METRICS]

    def execute(context: BenchContext) -> Iterator[Measurement]:
        both = _Both(context, StorageClients(context, name, storage, layout, names), profile)
        try:
            with sampled_links(context.session, id_, both.gpus, both.limit_s, context.say):
                both.execute()
            why = "; ".join(both.clients.lost.values())
        except (ParseError, RemoteError) as error:
            why = str(error)
        read = read_storage(both.clients.answers, context.session.architecture)
        raw = outputs_of(both.clients.own)
        for place in places:
            yield count_or_reason(place, read, raw, why)

    seconds = profile.runs * (3 * (profile.runtime_s + profile.ramp_s + SETUP_S) + 3 * START_S)
    who = counted(len(names), "client", "clients at once")
    title = f"{name}: reads of {profile.block_bytes} B from {who} beside {profile.op} ({profile.engine})"

    def commands() -> Iterator[str]:
        sizes, nodes = _sizes(profile), tuple(names)
        way = way_of(architecture, rack, ENGINES[profile.engine], nodes, sizes, 0.0, alone=False)
        words = _words(way, profile, sizes, profile.runtime_s + profile.ramp_s, _interface(architecture))
        yield way.commands(*words)[names[0]]

    job_file = partial(render, job_name(name, ALONE), profile)
    of_fio = fio_step(storage, names, places, title, seconds, execute, job_file)
    return replace(of_fio, commands=(*of_fio.commands, *shown(commands)))


def _sizes(profile: BesideProfile) -> CollectiveProfile:
    """The collective's own profile."""
    return CollectiveProfile(
        engine=profile.engine, ops=(profile.op,), min_bytes=profile.message_bytes, max_bytes=profile.message_bytes,
        iterations=1, warmup=profile.warmup, ranks_per_node=profile.ranks_per_node,
    )  # fmt: skip


def _interface(architecture: Architecture) -> str:
    return f"{architecture.fabric.interface_prefix}0" if architecture.fabric else "lo"


def _words(
    way: Way, profile: BesideProfile, sizes: CollectiveProfile, seconds: int, interface: str
) -> tuple[str, dict[str, str], str]:
    """Program, environment and interface of a collective that runs for so many seconds."""
    sweep = Sweep(profile.message_bytes, profile.message_bytes)
    program = way.engine.program(profile.op, sizes, sweep, way.python, seconds)
    return program, way.engine.environment(interface), interface


class _Both:
    def __init__(self, context: BenchContext, clients: StorageClients, profile: BesideProfile) -> None:
        self.context, self.clients, self.profile = context, clients, profile
        self.engine = ENGINES[profile.engine]
        self.sizes, self.interface = _sizes(profile), _interface(context.session.architecture)
        self.read_s = profile.runtime_s + profile.ramp_s

    @property
    def gpus(self) -> list[str]:
        """Nodes whose GPUs the collective loads."""
        return self.clients.clients if self.engine.loads_gpus else []

    @property
    def limit_s(self) -> float:
        """Time limit of the whole step."""
        return self.profile.runs * 3 * (self.read_s + 2 * MARGIN_S)

    def execute(self) -> None:
        """All runs, until one is lost. Raises ParseError and RemoteError."""
        clients = self.clients
        clients.write_files()
        if clients.lost:
            return
        nodes = tuple(clients.clients)
        launch = launch_of(self.context, self.engine, nodes, self.sizes, 0.0, alone=False)
        for _ in range(self.profile.runs):
            began = time.monotonic()
            if not self._read(ALONE):
                return
            around_s = max(0.0, time.monotonic() - began - self.read_s)
            clients.own += launch.read()
            ran = self._collective(launch, self.read_s)
            clients.own += [*ran, *launch.read()]
            calls = calls_of(ran[0])
            lead_s = max(LEAST_LEAD_S, 2 * (ran[0].elapsed_s - (calls[-1].end_s - calls[0].begin_s)))
            clients.own += launch.read()
            with ThreadPoolExecutor(max_workers=1) as pool:
                seconds = ceil(lead_s + 3 * around_s + self.read_s + SLACK_S)
                running = pool.submit(self._collective, launch, seconds)
                done = not STOPPING.wait(lead_s) and self._read(BESIDE)
                clients.own += running.result()
            clients.own += launch.read()
            if not done:
                return

    def _read(self, when: str) -> bool:
        """One run of fio on all clients. Returns whether none was lost."""
        clients = self.clients
        job = partial(render, job_name(clients.name, when), self.profile)
        return bool(clients.run(clients.clients, job, self.read_s, again=False))

    def _collective(self, launch: Launch, seconds: int) -> list[CommandResult]:
        """The collective for so many seconds; the answer with its figures first."""
        limit = 2 * START_S + seconds + MARGIN_S
        words = _words(launch, self.profile, self.sizes, seconds, self.interface)
        return replace(launch, limit_s=limit).run(*words)
