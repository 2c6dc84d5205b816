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
from rackproof.bench.readers import READERS
from rackproof.bench.step import BenchContext, Step, expected, reading_of, unmeasured
from rackproof.core.architecture import Architecture, CollectiveProfile
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.rack import Rack
from rackproof.parse import ParseError

METRICS = (BUSBW, ALGBW, WRONG)
PER_SIZE_S = 2.0
START_S = 15.0
MARGIN_S = 120.0


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
    sizes, size = [], profile.min_bytes
    while size <= profile.max_bytes:
        sizes.append(size)
        size *= profile.factor
    return sizes


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
        answer = session.run_on(nodes[0], engine.command(op, profile, nodes, folder, interface), seconds * 2 + MARGIN_S)
        outputs = session.outputs(answer)
        if not answer.ok:
            for place in places.values():
                yield unmeasured(place, f"{nodes[0]}: mpirun: {answer.why}", outputs)
            return
        read = READERS["collectives"]([answer], session.architecture)
        for place in places.values():
            try:
                yield reading_of(place, read, "collectives")
            except ParseError as error:
                yield unmeasured(place, f"unreadable output: {error}", outputs)

    return Step(id_, f"{op} over {len(nodes)} nodes ({engine.name})", seconds, tuple(places.values()), execute)
