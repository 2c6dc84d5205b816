"""Storage: fio on every client at once, of several in fio's client/server mode; small files by the kit's own program.

The launcher (the first client that answers) runs ``fio --client=… job --client=… job``; fio starts all clients
together and returns one JSON document with an entry per client. A single client runs ``fio job``. Numbers are fio's,
to the last digit. The first step of a storage writes the files completely. Caches are dropped before every run, and
mounts are read before and after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from rackproof.bench.step import BenchContext, Step, Writes, expected, reading_or_reason
from rackproof.bench.storage import beside, checkpoint, connections, gds, integrity, join, knee, small_files
from rackproof.bench.storage.client_runs import SETUP_S, StorageClients, fio_step
from rackproof.bench.storage.commands import folders_of
from rackproof.bench.storage.fio_launch import SHARED, SYNCED, suffix_of
from rackproof.bench.storage.knee_reader import UTILISATION
from rackproof.bench.storage.layout import FIRST_S, SUFFIX
from rackproof.bench.storage.reader import CLIENTS, read_storage
from rackproof.core.architecture import Architecture, FioJob, Storage, StorageProfile
from rackproof.core.architecture.coverage import asks_for
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.fiojob import Layout, command_line, layout_of, render, render_layout
from rackproof.core.metrics import JOB_METRICS
from rackproof.core.rack import Rack
from rackproof.core.wording import counted

ORDER = ("write", "read", "randread")


def plan(architecture: Architecture, profile: StorageProfile, rack: Rack) -> list[Step]:
    """One step per storage and workload, per number of clients, and per knee."""
    steps: list[Step] = []
    arrivals = asks_for(architecture, UTILISATION)
    for name in profile.storages or tuple(architecture.storage):
        storage = architecture.storage[name]
        clients = storage.clients(rack)
        steps += connections.steps(architecture, name, profile, clients, storage.addresses(rack))
        if profile.every_job:
            steps += _after_writing(name, storage, profile, clients, arrivals)
        if profile.beside_collectives and len(clients) > 1:
            layout = layout_of(profile.every_job)
            steps.append(beside.step(name, storage, profile.beside_collectives, layout, clients, architecture, rack))
        if profile.gds and profile.gds.reads(name):
            steps.append(gds.step(name, storage, profile.gds, clients))
        steps += small_files.steps(name, storage, profile, clients)
        if profile.join and storage.mounts_again and clients:
            steps.append(join.step(name, storage, profile.join, clients))
    return steps


def _after_writing(
    name: str, storage: Storage, profile: StorageProfile, clients: list[str], arrivals: bool
) -> Iterator[Step]:
    """The steps of fio; a dry run shows that the first one writes the files of all."""
    for number, step in enumerate(_of_fio(name, storage, profile, clients, arrivals)):
        if number or not clients:
            yield step
        else:
            folders = ":".join(folders_of(storage, clients[0]))
            job_file = render_layout(f"{name}{SUFFIX}", layout_of(profile.every_job), folders, limit_s=FIRST_S)
            yield replace(step, commands=(command_line(job_file), *step.commands))


def _of_fio(name: str, storage: Storage, profile: StorageProfile, clients: list[str], arrivals: bool) -> Iterator[Step]:
    layout = layout_of(profile.every_job)
    for rw in ORDER:
        if rw in profile.jobs:
            job, scaled = profile.jobs[rw], rw in profile.scale_out
            places = _places(name, job, JOB_METRICS[rw], clients, f"storage/{name}/{rw}", scaled=scaled)
            yield _step(storage, job, layout, clients, places)
            for count in scale_points(len(clients)) if scaled else ():
                id_ = f"storage/{name}/{rw}-{count}-of-{len(clients)}-clients"
                places = _places(name, job, JOB_METRICS[rw], clients[:count], id_, scaled=True)
                of_rack = {key: place for key, place in places.items() if place.scope is Scope.RACK}
                yield _step(storage, job, layout, clients[:count], of_rack)
    for job in profile.random_reads:
        id_ = f"storage/{name}/randread-{job.block_bytes}"
        places = _places(name, job, ("storage.random_read_bandwidth",), clients, id_, scaled=False)
        yield _step(storage, job, layout, clients, places)
    if profile.shared_file and storage.class_ != "local":
        places = _places(name, profile.shared_file, (SHARED,), clients, f"storage/{name}/shared", scaled=False)
        yield _step(storage, profile.shared_file, layout, clients, places)
    if profile.synced_writes:
        places = _places(name, profile.synced_writes, (SYNCED,), clients, f"storage/{name}/synced", scaled=False)
        yield _step(storage, profile.synced_writes, layout, clients, places)
    if profile.checkpoint:
        yield checkpoint.step(name, storage, profile.checkpoint, layout, clients)
    if profile.integrity:
        yield integrity.step(name, storage, profile.integrity, layout, clients)
    if profile.knee:
        yield knee.step(name, storage, profile.knee, layout, clients, arrivals)


def scale_points(clients: int) -> tuple[int, ...]:
    """1, 2, 4 … below the number of clients."""
    return tuple(1 << power for power in range((clients - 1).bit_length()))


def _places(
    name: str, job: FioJob, metrics: Iterable[str], clients: list[str], step: str, *, scaled: bool
) -> dict[tuple[str, str], Measurement]:
    """Measurements of one job by (metric, node); node ``""`` is the rack's sum.

    With ``scaled`` the sum has the label ``clients``: there is one for each number of them.
    """
    labels = {"storage": name, "block_bytes": str(job.block_bytes)}
    of_rack = labels | ({CLIENTS: str(len(clients))} if scaled else {})
    places = {}
    for metric in metrics:
        for node in clients:
            places[metric, node] = expected(metric, Scope.NODE, [node], labels, step)
        if metric != "storage.random_read_latency":
            places[metric, ""] = expected(metric, Scope.RACK, clients, of_rack, step)
    return places


def _step(
    storage: Storage, job: FioJob, layout: Layout, names: list[str], places: dict[tuple[str, str], Measurement]
) -> Step:
    first = next(iter(places.values()))
    name = first.labels["storage"]
    shared, synced = first.metric == SHARED, first.metric == SYNCED
    job_file = partial(render, f"{name}-{suffix_of(first.metric)}", job, synced=synced)

    def execute(context: BenchContext) -> Iterator[Measurement]:
        owners = dict.fromkeys(names, names[0]) if shared else None
        clients = StorageClients(context, name, storage, layout, names, owners)
        clients.write_files()
        nodes = clients.ready
        for _ in range(job.runs):
            nodes = clients.run(nodes, job_file, job.runtime_s + job.ramp_s)
            if not nodes:
                break
        yield from _results(clients, places)

    seconds = job.runs * (job.runtime_s + job.ramp_s + SETUP_S)
    who = counted(len(names), "client", "clients at once")
    kind = "shared read" if shared else "write and fsync" if synced else job.rw
    title = f"{name}: {kind} of {job.block_bytes} B from {who}"
    timed_s = len(names) * job.runs * (job.runtime_s + job.ramp_s) if job.rw == "write" else 0
    writes = Writes(timed_s=timed_s)
    return fio_step(storage, names, list(places.values()), title, seconds, execute, job_file, writes=writes)


def _results(clients: StorageClients, places: dict[tuple[str, str], Measurement]) -> Iterator[Measurement]:
    lost = clients.lost
    why = "; ".join(lost[node] for node in sorted(lost))
    answers = clients.answers
    read = read_storage(answers, clients.session.architecture)
    raw = clients.outputs
    for (_, node), place in places.items():
        gone = lost.get(node, "" if node else why)
        yield reading_or_reason(place, read, raw, gone, f"{node}: " if node else "")
