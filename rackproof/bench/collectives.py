"""Collectives behind one interface with two engines: nccl-tests on GPUs, MPI on processors.

Both are started by ``mpirun`` from the first node that answers and give rows of size, time, bandwidths and wrong
values. Bandwidths are nccl-tests' (rackproof.core.collective).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Protocol

from rackproof.bench.collective_reader import ALGBW, BUSBW, WRONG
from rackproof.bench.port_proof import reading_command
from rackproof.bench.proven_collectives import sizes as stepped
from rackproof.bench.readers import READERS
from rackproof.bench.reading import Read, outputs_of
from rackproof.bench.step import BenchContext, Step, expected, reading_of, unmeasured
from rackproof.core.architecture import Architecture, CollectiveProfile
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.rack import Rack
from rackproof.parse import Mismatch, ParseError
from rackproof.remote.command import CommandResult

METRICS = (BUSBW, ALGBW, WRONG)
PER_SIZE_S = 2.0
START_S = 15.0
MARGIN_S = 120.0
READER = "collectives-proven"
READING_S = 20
"""Time limit of reading counters, in seconds."""


class Engine(Protocol):
    """Commands and parser of one implementation of collectives."""

    name: str

    def payload(self) -> bytes | None:
        """Program to copy to every node first; None when the tool is installed there."""

    def command(
        self, op: str, profile: CollectiveProfile, nodes: Sequence[str], folder: str, interface: str
    ) -> str: ...


class MpiEngine:
    """mpi4py and numpy on the processors."""

    name = "mpi"

    def payload(self) -> bytes | None:
        return files("rackproof.bench").joinpath("mpi_collectives.py").read_bytes()

    def command(self, op: str, profile: CollectiveProfile, nodes: Sequence[str], folder: str, interface: str) -> str:
        program = (
            f"python3 {folder}/collectives.py {op} {profile.min_bytes} {profile.max_bytes} "
            f"{profile.factor} {profile.iterations} {profile.warmup}"
        )
        return f"{mpirun(nodes, profile.ranks_per_node, interface)} {program}"


class NcclEngine:
    """NVIDIA's nccl-tests, one process a GPU."""

    name = "nccl-tests"

    def payload(self) -> bytes | None:
        return None

    def command(self, op: str, profile: CollectiveProfile, nodes: Sequence[str], folder: str, interface: str) -> str:
        program = (
            f"{op}_perf -b {profile.min_bytes} -e {profile.max_bytes} -f {profile.factor} -g 1 "
            f"-n {profile.iterations} -w {profile.warmup} -c 1"
        )
        return f"{mpirun(nodes, profile.ranks_per_node, interface)} -x NCCL_SOCKET_IFNAME={interface} {program}"


ENGINES: dict[str, Engine] = {engine.name: engine for engine in (MpiEngine(), NcclEngine())}


def mpirun(nodes: Sequence[str], ranks_per_node: int, interface: str) -> str:
    """Command line of Open MPI 5 over ssh; control and data use the fabric's interface."""
    hosts = ",".join(f"{node}:{ranks_per_node}" for node in nodes)
    return (
        f"mpirun --allow-run-as-root -n {len(nodes) * ranks_per_node} --host {hosts} "
        f"--map-by ppr:{ranks_per_node}:node:OVERSUBSCRIBE --bind-to none "
        "--prtemca plm_ssh_args '-o BatchMode=yes -o StrictHostKeyChecking=yes' "
        f"--prtemca prte_if_include {interface} --mca btl tcp,self --mca pml ob1 --mca btl_tcp_if_include {interface}"
    )


def sizes(profile: CollectiveProfile) -> list[int]:
    """Message sizes in bytes, as both engines step through them."""
    return list(stepped(profile.min_bytes, profile.max_bytes, profile.factor))


def plan(architecture: Architecture, profile: CollectiveProfile, rack: Rack, group: str = "gpu") -> list[Step]:
    """One step an operation, over all nodes of the group."""
    nodes = [node.name for node in rack.group(group)]
    interface = f"{architecture.fabric.interface_prefix}0" if architecture.fabric else "lo"
    return [_step(op, profile, nodes, interface) for op in profile.ops] if nodes else []


def _step(op: str, profile: CollectiveProfile, nodes: list[str], interface: str) -> Step:
    id_ = f"collectives/{profile.engine}/{op}"
    engine = ENGINES[profile.engine]
    places = {
        (metric, size): expected(
            metric, Scope.RACK, nodes, {"op": op, "bytes": str(size), "engine": engine.name}, id_
        )
        for size in sizes(profile)
        for metric in METRICS
    }  # fmt: skip
    seconds = START_S + PER_SIZE_S * len(sizes(profile))

    def execute(context: BenchContext) -> Iterator[Measurement]:
        session = context.session
        alive = session.alive(nodes, context.say)
        if len(alive) < len(nodes):
            gone = ", ".join(sorted(set(nodes) - set(alive)))
            for place in places.values():
                yield unmeasured(place, f"{gone} does not answer")
            return
        folder = context.folder
        if payload := engine.payload():
            session.run({node: f"mkdir -p {shlex.quote(folder)}" for node in nodes}, 20)
            session.fleet.each(nodes, lambda connection: connection.put(payload, f"{folder}/collectives.py"))
        fabric = session.architecture.fabric
        reading = dict.fromkeys(nodes, reading_command(fabric, range(fabric.rails))) if fabric else {}
        answers = list(session.run(reading, READING_S).values())
        command = engine.command(op, profile, nodes, folder, interface)
        answers.append(session.run_on(nodes[0], command, seconds * 2 + MARGIN_S))
        answers += session.run(reading, READING_S).values()
        read = READERS[READER](answers, session.architecture)
        for place in places.values():
            yield _reading(place, read, answers, nodes[0])

    return Step(id_, f"{op} over {len(nodes)} nodes ({engine.name})", seconds, tuple(places.values()), execute)


def _reading(place: Measurement, read: Read, answers: Sequence[CommandResult], launcher: str) -> Measurement:
    """The measurement, or why the answers do not give it."""
    failed = any(not answer.ok for answer in answers)
    try:
        return reading_of(place, read, READER)
    except Mismatch as error:
        reason = f"{launcher}: {error}"
    except ParseError as error:
        reason = f"{launcher}: {error}" if failed else f"unreadable output: {error}"
    return unmeasured(place, reason, outputs_of(answers))
