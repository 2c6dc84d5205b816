"""Links between nodes: ib_write_bw, ib_write_lat and iperf3 between every pair, over the fabric's addresses."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rackproof.bench.ports import wait_listening
from rackproof.bench.readers import READERS
from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, expected, reading_of, unmeasured
from rackproof.core.architecture import Architecture, Fabric, LinkProfile
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.pairing import rounds
from rackproof.core.rack import Rack
from rackproof.errors import RemoteError
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult

RDMA_PORT, TCP_PORT = 18515, 15201
START_S = 8.0
"""Time to connect and tear down, for the estimate, in seconds."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of the set: the two command lines, and its port."""

    name: str
    metric: str
    port: int
    server: Callable[[str], str]
    client: Callable[[str], str]
    seconds: float


def plan(architecture: Architecture, profile: LinkProfile, rack: Rack, group: str = "gpu") -> list[Step]:
    """One step per rail, round and tool. The pairs of a round run at once; no node is in two of them."""
    fabric = architecture.fabric
    if fabric is None:
        return []
    steps = []
    for rail in range(fabric.rails):
        for number, pairs in enumerate(rounds([node.name for node in rack.group(group)]), 1):
            for tool in _tools(fabric, profile, rail):
                steps.append(_step(tool, rail, number, pairs, profile.runs))
    return steps


def _tools(fabric: Fabric, profile: LinkProfile, rail: int) -> list[Tool]:
    device = f"{fabric.rdma_prefix}{rail}"
    rdma = f"-d {device} -F -p {RDMA_PORT}"
    bandwidth = f"ib_write_bw {rdma} -s {profile.rdma_block_bytes} -D {profile.rdma_duration_s}"
    latency = f"ib_write_lat {rdma} -n {profile.latency_iterations}"
    return [
        Tool("rdma-bandwidth", "link.rdma_write_bandwidth", RDMA_PORT,
             lambda own: bandwidth, lambda peer: f"{bandwidth} {peer}", profile.rdma_duration_s),
        Tool("rdma-latency", "link.rdma_write_latency", RDMA_PORT,
             lambda own: latency, lambda peer: f"{latency} {peer}", 3.0),
        Tool("tcp-bandwidth", "link.tcp_bandwidth", TCP_PORT,
             lambda own: f"iperf3 -s -1 -p {TCP_PORT} -B {own}",
             lambda peer: f"iperf3 -c {peer} -p {TCP_PORT} -t {profile.tcp_duration_s} -P {profile.tcp_streams} -J",
             profile.tcp_duration_s),
    ]  # fmt: skip


def _step(tool: Tool, rail: int, number: int, pairs: Sequence[tuple[str, str]], runs: int) -> Step:
    id_ = f"links/rail{rail}/round{number}/{tool.name}"
    places = {pair: expected(tool.metric, Scope.PAIR, pair, {"rail": str(rail)}, id_) for pair in pairs}

    def execute(context: BenchContext) -> Iterator[Measurement]:
        names = sorted({name for pair in pairs for name in pair})
        alive = set(context.session.alive(names, context.say))
        ready = [pair for pair in pairs if set(pair) <= alive]
        for pair in pairs:
            if pair not in ready:
                gone = ", ".join(sorted(set(pair) - alive))
                yield unmeasured(places[pair], f"{gone} does not answer")
        if ready:
            with ThreadPoolExecutor(max_workers=len(ready)) as pool:
                yield from pool.map(lambda pair: _measure(context, tool, rail, pair, places[pair], runs), ready)

    title = f"{tool.name.replace('-', ' ')}, rail {rail}, round {number}"
    return Step(id_, title, runs * (tool.seconds + START_S), tuple(places.values()), execute)


def _measure(
    context: BenchContext, tool: Tool, rail: int, pair: tuple[str, str], place: Measurement, runs: int
) -> Measurement:
    """All runs of one pair: the first node serves, the second is the client."""
    server, client = pair
    address = context.session.rack.node(server).fabric_address(rail)
    if address is None:
        return unmeasured(place, f"{server}: the inventory gives no fabric address for rail {rail}")
    answers: list[CommandResult] = []
    command = tool.client(shlex.quote(address))
    try:
        for _ in range(runs):
            answers.append(_once(context, tool, server, client, address, command))
            if not answers[-1].ok:
                return unmeasured(place, f"{client}: {command.split()[0]}: {answers[-1].why}", outputs_of(answers))
        return reading_of(place, READERS["links"](answers, context.session.architecture), "links")
    except RemoteError as error:
        return unmeasured(place, str(error), outputs_of(answers))
    except ParseError as error:
        return unmeasured(place, f"{client}: unreadable output: {error}", outputs_of(answers))


def _once(context: BenchContext, tool: Tool, server: str, client: str, address: str, command: str) -> CommandResult:
    limit = tool.seconds + 45
    session = context.session
    with session.serving(server, tool.server(shlex.quote(address)), limit + 30) as process:
        wait_listening(session.fleet[server], process, tool.port)
        return session.run_on(client, command, limit)
