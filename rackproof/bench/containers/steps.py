"""Containers: the same fio job on the node, then inside an unprivileged container, as the same user.

All clients run at once, so that both sides have the same load. The ratio is computed per pair of runs.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator
from functools import partial

from rackproof.bench.containers.reader import (
    HOST,
    INSIDE,
    JOB,
    LAYOUT,
    RATIO,
    read_containers,
    result_of,
)
from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, expected, reading_or_reason
from rackproof.bench.storage.client_runs import Clients
from rackproof.bench.storage.commands import drop_and_state, empty_folders, state_after
from rackproof.bench.storage.layout import FIRST_S, LIMIT_S, SLACK, too_slow
from rackproof.configure.containers.bridge import PROGRAM
from rackproof.configure.containers.inputs import FOLDER, user_and_image
from rackproof.core.architecture import Architecture, ContainerProfile, Containers, FioJob, Storage
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.fiojob import Layout, command_line, layout_of, render, render_layout
from rackproof.core.rack import Node, Rack
from rackproof.core.wording import counted
from rackproof.parse import ParseError
from rackproof.parse.fio import JobResult, complaints

ENGINE = "posixaio"
"""fio's engine on both sides. libaio waits with io_pgetevents, which the runtimes' default seccomp profile forbids, so
that fio 3.39 fails. Source: ``seccomp.json`` of containers-common."""
START_S = 15.0
"""Time for fio and a container to start on a slow node, in seconds."""
MARGIN_S = 120.0
"""Seconds for requests in flight at the end, and for the start of a container on a busy node."""


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
        return _ContainerStep(context, name, storage, job, nodes).execute(places)

    title = f"{name}: {job.rw} on the node and inside {declared.runtime}, {counted(len(nodes), 'node')} at once"
    seconds = 2 * job.runs * (job.runtime_s + job.ramp_s + START_S)
    written = layout_command(storage, layout_of([job]), nodes[0], FIRST_S)
    shown = (written, *commands(storage, job, nodes[0]))
    return Step(id_, title, seconds, tuple(places.values()), execute, commands=shown)


def commands(storage: Storage, job: FioJob, node: Node) -> tuple[str, str]:
    """Commands on the node and inside a container: the same fio arguments, user and file."""
    image = user_and_image(node)[1]
    run = _fio(render(JOB, job, folder_of(storage, node), ENGINE))
    root = f"--image {shlex.quote(image)}" if image else "--host-root"
    return f"cd / && {_as_user(node)}{run}", f"cd / && {_as_user(node)}{PROGRAM} {root} -- {run}"


def layout_command(storage: Storage, layout: Layout, node: Node, limit_s: int | None = None) -> str:
    """Command that writes the files completely, as the same user."""
    folder = folder_of(storage, node)
    run = _fio(render_layout(LAYOUT, layout, folder, ENGINE, limit_s))
    return f"{empty_folders(storage, [folder], _as_user(node))} && cd / && {_as_user(node)}{run}"


def folder_of(storage: Storage, node: Node) -> str:
    return f"{storage.mountpoints[0]}/{FOLDER}/{node.name}"


def user_of(node: Node) -> str:
    """The user of containers, who also has the files."""
    return user_and_image(node)[0]


def _as_user(node: Node) -> str:
    return f"runuser -u {shlex.quote(user_of(node))} -- "


def _fio(job_file: str) -> str:
    return f"fio --output-format=json --eta=never {command_line(job_file).removeprefix('fio ')}"


class _ContainerStep(Clients):
    def __init__(self, context: BenchContext, name: str, storage: Storage, job: FioJob, nodes: list[Node]) -> None:
        super().__init__(context, name, storage, [node.name for node in nodes])
        self.job, self.nodes = job, nodes

    def execute(self, places: dict[tuple[str, str], Measurement]) -> Iterator[Measurement]:
        folders = {node.name: (folder_of(self.storage, node),) for node in self.nodes}
        self.check_mounts(self.clients, folders.__getitem__)
        self._write()
        limit = self.job.runtime_s + self.job.ramp_s + MARGIN_S
        for _ in range(self.job.runs):
            for number, where in enumerate(("on the node", "inside a container")):
                self.drop({name: drop_and_state(self.storage, folders[name], self.origin) for name in self.ready})
                self._run(partial(self._command, number), limit, where)
                self.ask({name: state_after(self.storage, folders[name], self.origin) for name in self.ready})
        read = read_containers(self.answers, self.session.architecture)
        for (_, name), place in places.items():
            raw = outputs_of(
                answer for answer in self.answers if answer.node == name and "fio --output" in answer.command
            )
            yield reading_or_reason(place, read, raw, self.lost.get(name, ""), f"{name}: ")

    def _command(self, number: int, node: Node) -> str:
        return commands(self.storage, self.job, node)[number]

    def _write(self) -> None:
        """Write the files. If the first attempt does not complete them, its rate determines the second's time limit."""
        layout = layout_of([self.job])
        pending = {node.name for node in self.nodes} - set(self.lost)
        limit: int | None = FIRST_S
        seconds = FIRST_S + MARGIN_S
        while pending:
            ask = partial(layout_command, self.storage, layout, limit_s=limit)
            results = self._run(ask, seconds, "that writes the files", pending)
            slowest = 0.0
            for name in list(pending):
                entry = results.get(name)
                written = entry.write if entry is not None else None
                if written is None or written.io_bytes == layout.bytes:
                    pending.discard(name)
                    continue
                needed = layout.bytes / max(written.io_bytes / max(written.runtime_ms / 1000, 1.0), 1.0)
                if limit is None or needed > LIMIT_S:
                    pending.discard(name)
                    self.lost[name] = f"{name}: {too_slow(layout, layout.bytes / needed)}"
                slowest = max(slowest, needed)
            limit, seconds = None, SLACK * slowest + MARGIN_S

    def _run(
        self, command: Callable[[Node], str], limit_s: float, where: str, only: Collection[str] | None = None
    ) -> dict[str, JobResult]:
        """Run fio on all nodes at once. Returns results by node; nodes without one are in ``lost``."""
        results = {}
        ready = set(self.ready) if only is None else set(self.ready) & set(only)
        asked = {node.name: command(node) for node in self.nodes if node.name in ready}
        answers = self.session.run(asked, limit_s, hold=True, parallel=len(asked))
        self.own += answers.values()
        for name, answer in answers.items():
            try:
                results[name] = result_of(answer)
            except ParseError as error:
                lines = [message.text for message in complaints(answer.text)] if answer.ok else []
                self.lost[name] = "; ".join([f"{name}: fio {where}: {str(error).removeprefix('fio: ')}", *lines[:3]])
        return results
