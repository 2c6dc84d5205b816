"""Containers: the same fio job on the node, then inside an unprivileged container, as the same user.

All clients run at once, so that both sides see the same load. The ratio is computed per pair of runs, not from two
averages.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rackproof.bench.step import BenchContext, Step, expected, measured, unmeasured
from rackproof.core.architecture import Architecture, ContainerProfile, Containers, FioJob, Storage
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.fiojob import render
from rackproof.core.rack import Node, Rack
from rackproof.parse import ParseError, fio
from rackproof.remote.command import CommandResult

PROGRAM = "/usr/local/bin/rackproof-container"
FOLDER = "rackproof-user"
HOST, INSIDE, RATIO = "container.host_read_bandwidth", "container.read_bandwidth", "container.read_over_host"
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
        return _execute(context, storage, declared, job, nodes, places)

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
    context: BenchContext, storage: Storage, declared: Containers, job: FioJob, nodes: list[Node],
    places: dict[tuple[str, str], Measurement],
) -> Iterator[Measurement]:  # fmt: skip
    session = context.session
    samples: dict[tuple[str, str], list[float]] = {}
    lost: dict[str, str] = {}
    raw: dict[str, list[str]] = {}
    limit = job.runtime_s + job.ramp_s + job.file_bytes * job.numjobs / (SLOWEST_MB_S * 1e6) + MARGIN_S
    for _ in range(job.runs):
        pairs: dict[str, list[float]] = {}
        for side in (0, 1):
            commands_by_node = {
                node.name: commands(storage, job, node)[side] for node in nodes if node.name not in lost
            }
            for name, answer in session.run(commands_by_node, limit).items():
                raw.setdefault(name, []).extend(session.outputs(answer))
                try:
                    pairs.setdefault(name, []).append(_bandwidth(answer))
                except ParseError as error:
                    where = "inside a container" if side else "on the node"
                    lost[name] = f"{name}: fio {where}: {answer.why if not answer.ok else error}"
        for name, values in pairs.items():
            if len(values) == 2 and values[0] > 0:
                for metric, value in zip((HOST, INSIDE, RATIO), (*values, values[1] / values[0]), strict=True):
                    samples.setdefault((metric, name), []).append(value)
    conditions = {
        "io": "O_DIRECT", "engine": ENGINE, "runtime": declared.runtime, "privileges": "none", "nodes": len(nodes),
        "workload": job.model_dump(mode="json"),
    }  # fmt: skip
    for (metric, name), place in places.items():
        values = samples.get((metric, name), [])
        if name in lost or not values:
            yield unmeasured(place, lost.get(name) or f"{name}: fio gave no number", raw.get(name, []))
        else:
            yield measured(place, values, raw.get(name, []), conditions)


def _bandwidth(answer: CommandResult) -> float:
    """Read bandwidth in MB/s. Raises ParseError, also when fio reports an error."""
    if not answer.ok:
        raise ParseError("fio", answer.why)
    result = fio.parse_fio(answer.stdout)
    if len(result.jobs) != 1 or result.jobs[0].error or result.jobs[0].read is None:
        raise ParseError("fio", "expected one job with a read result")
    return result.jobs[0].read.bandwidth_bytes_per_s / 1e6
