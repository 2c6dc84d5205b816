"""Containers: the same fio job on the node, then inside an unprivileged container, as the same user.

All clients run at once, so that both sides see the same load. The ratio is computed per pair of runs, not from two
averages.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rackproof.bench.container_reader import HOST, INSIDE, PROGRAM, RATIO, bandwidth
from rackproof.bench.readers import READERS
from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, expected, reading_of, unmeasured
from rackproof.core.architecture import Architecture, ContainerProfile, Containers, FioJob, Storage
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.fiojob import render
from rackproof.core.rack import Node, Rack
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult

FOLDER = "rackproof-user"
ENGINE = "posixaio"
"""fio's engine on both sides. libaio waits with io_pgetevents, which the runtimes' default seccomp profile forbids, so
that fio 3.39 fails. Source: ``seccomp.json`` of containers-common."""
START_S = 15.0
"""Time for fio and a container to start on a slow node, in seconds."""
SLOWEST_MB_S = 1.0
MARGIN_S = 90.0


def plan(architecture: Architecture, profile: ContainerProfile, rack: Rack) -> list[Step]:
    """One step per storage of ``containers.bridge``; none without that key."""
    declared = architecture.containers
    if declared is None:
        return []
    names = profile.storages or declared.bridge
    steps = []
    for name in names:
        storage = architecture.storage[name]
        nodes = [
            node
            for node in rack.nodes
            if set(node.groups) & set(declared.roles) and set(node.groups) & set(storage.client_roles)
        ]
        if nodes:
            steps.append(_step(name, storage, declared, profile.job, nodes))
    return steps


def _step(name: str, storage: Storage, declared: Containers, job: FioJob, nodes: list[Node]) -> Step:
    id_ = f"container/{name}/{job.rw}"
    labels = {"storage": name, "block_bytes": str(job.block_bytes)}
    places = {
        (metric, node.name): expected(metric, Scope.NODE, [node.name], labels, id_)
        for metric in (HOST, INSIDE, RATIO)
        for node in nodes
    }

    def execute(context: BenchContext) -> Iterator[Measurement]:
        return _execute(context, storage, job, nodes, places)

    title = f"{name}: {job.rw} on the node and inside {declared.runtime}, {len(nodes)} nodes at once"
    return Step(id_, title, 2 * job.runs * (job.runtime_s + job.ramp_s + START_S), tuple(places.values()), execute)


def commands(storage: Storage, job: FioJob, node: Node) -> tuple[str, str]:
    """Commands on the node and inside a container: the same fio arguments, user and file."""
    data = node.data.get("containers") or {}
    user, image = shlex.quote(str(data.get("user", "rackproof"))), data.get("image")
    folder = f"{storage.mountpoint}/{FOLDER}/{node.name}"
    lines = render("rackproof", job, folder, ENGINE).splitlines()[1:]
    options = " ".join(shlex.quote(f"--{line}") for line in lines)
    run = f"fio --output-format=json --eta=never --name=rackproof {options}"
    root = f"--image {shlex.quote(str(image))}" if image else "--host-root"
    host = f"runuser -u {user} -- mkdir -p -- {shlex.quote(folder)} && cd / && runuser -u {user} -- {run}"
    return host, f"cd / && runuser -u {user} -- {PROGRAM} {root} -- {run}"


def _execute(
    context: BenchContext, storage: Storage, job: FioJob, nodes: list[Node],
    places: dict[tuple[str, str], Measurement],
) -> Iterator[Measurement]:  # fmt: skip
    session = context.session
    answers: list[CommandResult] = []
    lost: dict[str, str] = {}
    limit = job.runtime_s + job.ramp_s + job.file_bytes * job.numjobs / (SLOWEST_MB_S * 1e6) + MARGIN_S
    for _ in range(job.runs):
        for side in (0, 1):
            asked = {node.name: commands(storage, job, node)[side] for node in nodes if node.name not in lost}
            for name, answer in session.run(asked, limit).items():
                answers.append(answer)
                try:
                    bandwidth(answer)
                except ParseError as error:
                    where = "inside a container" if side else "on the node"
                    lost[name] = f"{name}: fio {where}: {answer.why if not answer.ok else error}"
    read = READERS["containers"](answers, session.architecture)
    for (_, name), place in places.items():
        raw = outputs_of(answer for answer in answers if answer.node == name)
        try:
            yield unmeasured(place, lost[name], raw) if name in lost else reading_of(place, read, "containers")
        except ParseError as error:
            yield unmeasured(place, f"{name}: {error}", raw)
