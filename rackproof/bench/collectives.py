"""Collectives with two engines: nccl-tests on GPUs, MPI on processors.

``mpirun`` starts both, on the first node that answers. They print rows of size, time, bandwidths and wrong values;
bandwidths are defined as in nccl-tests (rackproof.core.collective). NCCL uses all rails at once; MPI runs over one rail
after the other, and the slowest rail counts.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Protocol

from rackproof.bench.collective_reader import ALGBW, BUSBW, NAME, WRONG, read_collectives
from rackproof.bench.collective_reader import sizes as stepped
from rackproof.bench.gpu_links import sampled_links
from rackproof.bench.port_proof import reading_command
from rackproof.bench.reading import Read, outputs_of
from rackproof.bench.relay import AGENT, Relay
from rackproof.bench.step import BenchContext, Step, expected, reading_of, unmeasured
from rackproof.bench.user import HOME, BenchUsers
from rackproof.core.architecture import Architecture, CollectiveProfile
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.rack import Rack
from rackproof.parse import Mismatch, ParseError
from rackproof.remote.command import CommandResult

METRICS = (BUSBW, ALGBW, WRONG)
PER_SIZE_S = 2.0
START_S = 15.0
MARGIN_S = 120.0
READING_S = 20
"""Time limit of reading counters, in seconds."""
PROGRAM = f"{HOME}/collectives.py"


class Engine(Protocol):
    """Commands and parser of one implementation of collectives."""

    name: str
    loads_gpus: bool
    one_rail: bool
    """Whether a run uses one rail only."""

    def payload(self) -> bytes | None:
        """Program that is copied to all nodes first; None for an installed tool."""

    def command(self, op: str, profile: CollectiveProfile, nodes: Sequence[str], interface: str) -> str: ...


class MpiEngine:
    """mpi4py and numpy on the processors."""

    name = "mpi"
    loads_gpus = False
    one_rail = True

    def payload(self) -> bytes | None:
        return files("rackproof.bench").joinpath("mpi_collectives.py").read_bytes()

    def command(self, op: str, profile: CollectiveProfile, nodes: Sequence[str], interface: str) -> str:
        program = (
            f"python3 -I {PROGRAM} {op} {profile.min_bytes} {profile.max_bytes} "
            f"{profile.factor} {profile.iterations} {profile.warmup}"
        )
        return f"{mpirun(nodes, profile.ranks_per_node, interface)} {program}"


class NcclEngine:
    """NVIDIA's nccl-tests, one process per GPU."""

    name = "nccl-tests"
    loads_gpus = True
    one_rail = False

    def payload(self) -> bytes | None:
        return None

    def command(self, op: str, profile: CollectiveProfile, nodes: Sequence[str], interface: str) -> str:
        program = (
            f"{op}_perf -b {profile.min_bytes} -e {profile.max_bytes} -f {profile.factor} -g 1 "
            f"-n {profile.iterations} -w {profile.warmup} -c 1"
        )
        launch = mpirun(nodes, profile.ranks_per_node, interface)
        return f"{launch} -x NCCL_SOCKET_IFNAME={shlex.quote(interface)} {program}"


ENGINES: dict[str, Engine] = {engine.name: engine for engine in (MpiEngine(), NcclEngine())}


def mpirun(nodes: Sequence[str], ranks_per_node: int, interface: str) -> str:
    """Command line of Open MPI. Its daemons start and end with the relay; control and data use one interface.

    Open MPI 4 and 5 have other names for the same parameters and ignore those of the other in the environment; on the
    command line 5 complains (tried with 4.1.4 and 5.0.7).
    """
    hosts = ",".join(f"{node}:{ranks_per_node}" for node in nodes)
    agent, interface = shlex.quote(AGENT), shlex.quote(interface)
    return (
        f"env OMPI_MCA_plm_rsh_agent={agent} PRTE_MCA_plm_ssh_agent={agent} "
        "OMPI_MCA_plm_rsh_no_tree_spawn=1 PRTE_MCA_plm_ssh_no_tree_spawn=1 "
        "OMPI_MCA_orte_leave_session_attached=1 PRTE_MCA_prte_leave_session_attached=1 "
        f"OMPI_MCA_oob_tcp_if_include={interface} PRTE_MCA_prte_if_include={interface} "
        f"mpirun -n {len(nodes) * ranks_per_node} --host {shlex.quote(hosts)} "
        f"--map-by ppr:{ranks_per_node}:node:OVERSUBSCRIBE --bind-to none "
        f"--mca btl tcp,self --mca pml ob1 --mca btl_tcp_if_include {interface}"
    )


def sizes(profile: CollectiveProfile) -> list[int]:
    """Message sizes of both engines, bytes."""
    return list(stepped(profile.min_bytes, profile.max_bytes, profile.factor))


def plan(architecture: Architecture, profile: CollectiveProfile, rack: Rack, group: str = "gpu") -> list[Step]:
    """One step per operation, with all nodes of the group."""
    nodes = [node.name for node in rack.group(group)]
    interfaces, engine = ["lo"], ENGINES[profile.engine]
    if architecture.fabric:
        rails = range(architecture.fabric.rails if engine.one_rail else 1)
        interfaces = [f"{architecture.fabric.interface_prefix}{rail}" for rail in rails]
    return [_step(op, profile, nodes, interfaces) for op in profile.ops] if nodes else []


def _step(op: str, profile: CollectiveProfile, nodes: list[str], interfaces: Sequence[str]) -> Step:
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
        users = BenchUsers.of(context)
        if lost := users.ready(nodes):
            yield from (unmeasured(place, next(iter(lost.values()))) for place in places.values())
            return
        relay = Relay.of(context)
        session.fleet.each(nodes[1:], lambda connection: relay.serve(connection.node.name), "the relay")
        relay.listen(nodes[0], nodes[1:])
        if payload := engine.payload():
            session.fleet.each(
                nodes,
                lambda connection: connection.put(payload, PROGRAM, users[connection.node.name].prefix),
                "the program of collectives",
            )
        fabric = session.architecture.fabric
        reading = dict.fromkeys(nodes, reading_command(fabric, range(fabric.rails))) if fabric else {}
        answers = list(session.run(reading, READING_S).values())
        limit = seconds * 2 + MARGIN_S
        with sampled_links(session, id_, nodes if engine.loads_gpus else (), limit, context.say):
            for interface in interfaces:
                command = engine.command(op, profile, nodes, interface)
                answers.append(session.run_on(nodes[0], command, limit, user=users[nodes[0]].prefix))
                answers += session.run(reading, READING_S).values()
        read = read_collectives(answers, session.architecture)
        for place in places.values():
            yield _reading(place, read, answers, nodes[0])

    return Step(
        id_, f"{op} over {len(nodes)} nodes ({engine.name})", seconds * len(interfaces), tuple(places.values()), execute
    )


def _reading(place: Measurement, read: Read, answers: Sequence[CommandResult], launcher: str) -> Measurement:
    """The measurement with its number, or with the reason why there is none."""
    failed = any(not answer.ok for answer in answers)
    try:
        return reading_of(place, read, NAME)
    except Mismatch as error:
        reason = f"{launcher}: {error}"
    except ParseError as error:
        reason = f"{launcher}: {error}" if failed else f"unreadable output: {error}"
    return unmeasured(place, reason, outputs_of(answers))
