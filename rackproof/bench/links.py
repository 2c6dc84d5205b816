"""Links between nodes: loss and delay, ib_write_bw, ib_write_lat and iperf3 between every pair, over each rail."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import ip_interface

from rackproof.bench.link_figures import (
    ATTEMPTS,
    RDMA_BANDWIDTH,
    RDMA_LATENCY,
    RDMA_RETRIES,
    TCP_BANDWIDTH,
    TCP_RETRANSMITTED,
    figure_of,
)
from rackproof.bench.port_proof import reading_command
from rackproof.bench.ports import wait_listening
from rackproof.bench.proven_links import LOSS, PINGS, ROUND_TRIP, TO
from rackproof.bench.readers import READERS
from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, expected, reading_of, unmeasured
from rackproof.core.architecture import Architecture, Fabric, LinkProfile
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.pairing import rounds
from rackproof.core.rack import Node, Rack
from rackproof.errors import RemoteError
from rackproof.parse import Mismatch, ParseError, Unreliable
from rackproof.remote.command import CommandResult

RDMA_PORT, TCP_PORT = 18515, 15201
START_S = 8.0
"""Time to connect and tear down, for the estimate, in seconds."""
READER = "links-proven"
READING_S = 20
"""Time limit of reading counters, in seconds."""
PING_INTERVAL_S, PING_LIMIT_S = 0.005, 60


@dataclass(frozen=True, slots=True)
class End:
    """One end of a pair: the node's address on the rail. ``device``: what a socket must be bound to beside the address,
    where the route to the peer may leave by another port."""

    node: str
    address: str
    device: str | None
    reading: str
    """Command that reads the port's counters."""

    @property
    def bound(self) -> str:
        """Options of iperf3."""
        device = f" --bind-dev {shlex.quote(self.device)}" if self.device else ""
        return f"-B {shlex.quote(self.address)}{device}"


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of the set: its metrics, the two command lines, and its port."""

    name: str
    metrics: tuple[str, ...]
    port: int
    server: Callable[[End], str]
    client: Callable[[End, End], str]
    """Of the server's end and the client's."""
    seconds: float


def plan(architecture: Architecture, profile: LinkProfile, rack: Rack, group: str = "gpu") -> list[Step]:
    """One step per rail for loss and delay between all nodes, then one per rail, round and tool.

    The pairs of a round run at once; no node is in two of them.
    """
    fabric = architecture.fabric
    if fabric is None:
        return []
    steps: list[Step] = []
    for rail in range(fabric.rails):
        steps += _loss_step(fabric, rail, rack)
        for number, pairs in enumerate(rounds([node.name for node in rack.group(group)]), 1):
            for tool in _tools(fabric, profile, rail):
                steps.append(_step(fabric, tool, rail, number, pairs, profile.runs))
    return steps


def _tools(fabric: Fabric, profile: LinkProfile, rail: int) -> list[Tool]:
    device = f"{fabric.rdma_prefix}{rail}"
    rdma = f"-d {device} -F -p {RDMA_PORT}"
    bandwidth = f"ib_write_bw {rdma} -s {profile.rdma_block_bytes} -D {profile.rdma_duration_s}"
    latency = f"ib_write_lat {rdma} -n {profile.latency_iterations}"
    tcp = f"-p {TCP_PORT} -t {profile.tcp_duration_s} -P {profile.tcp_streams} -J"
    return [
        Tool("rdma-bandwidth", (RDMA_BANDWIDTH, RDMA_RETRIES), RDMA_PORT,
             lambda own: bandwidth, lambda peer, own: f"{bandwidth} {shlex.quote(peer.address)}",
             profile.rdma_duration_s),
        Tool("rdma-latency", (RDMA_LATENCY,), RDMA_PORT,
             lambda own: latency, lambda peer, own: f"{latency} {shlex.quote(peer.address)}", 3.0),
        Tool("tcp-bandwidth", (TCP_BANDWIDTH, TCP_RETRANSMITTED), TCP_PORT,
             lambda own: f"iperf3 -s -1 -p {TCP_PORT} {own.bound}",
             lambda peer, own: f"iperf3 -c {shlex.quote(peer.address)} {own.bound} {tcp}",
             profile.tcp_duration_s),
    ]  # fmt: skip


def end_of(node: Node, fabric: Fabric, rail: int) -> End | None:
    """The node's end of a rail; None where the inventory gives no address for it.

    Where another rail of the node is in the same subnet and no routing table of its own leads out of each, the kernel
    may send from this rail's address by the other port: the socket needs the device too.
    """
    address, port = node.fabric_address(rail), f"{fabric.interface_prefix}{rail}"
    if address is None:
        return None
    networks = [ip_interface(str(entry)).network for entry in node.data.get("fabric_addresses") or ()]
    shared = networks.count(networks[rail]) > 1 and not fabric.rail_tables
    return End(node.name, address, port if shared else None, reading_command(fabric, [rail]))


def _step(fabric: Fabric, tool: Tool, rail: int, number: int, pairs: Sequence[tuple[str, str]], runs: int) -> Step:
    id_ = f"links/rail{rail}/round{number}/{tool.name}"
    places = {
        pair: [expected(metric, Scope.PAIR, pair, {"rail": str(rail)}, id_) for metric in tool.metrics]
        for pair in pairs
    }

    def execute(context: BenchContext) -> Iterator[Measurement]:
        ready, absent = _ready(context, pairs)
        for pair, gone in absent.items():
            yield from (unmeasured(place, f"{gone} does not answer") for place in places[pair])
        ends = {}
        for pair in list(ready):
            server, client = (end_of(context.session.rack.node(name), fabric, rail) for name in pair)
            if server and client:
                ends[pair] = (server, client)
                continue
            ready.remove(pair)
            reason = f"{pair[1] if server else pair[0]}: the inventory gives no fabric address for rail {rail}"
            yield from (unmeasured(place, reason) for place in places[pair])
        if ready:
            with ThreadPoolExecutor(max_workers=len(ready)) as pool:
                for measured in pool.map(lambda pair: _measure(context, tool, ends[pair], places[pair], runs), ready):
                    yield from measured

    title = f"{tool.name.replace('-', ' ')}, rail {rail}, round {number}"
    expects = tuple(place for of_pair in places.values() for place in of_pair)
    return Step(id_, title, runs * (tool.seconds + START_S), expects, execute)


def _ready(
    context: BenchContext, pairs: Sequence[tuple[str, str]]
) -> tuple[list[tuple[str, str]], dict[tuple[str, str], str]]:
    """Pairs whose nodes answer, and by other pair those that do not."""
    alive = set(context.session.alive(sorted({name for pair in pairs for name in pair}), context.say))
    absent = {pair: ", ".join(sorted(set(pair) - alive)) for pair in pairs if not set(pair) <= alive}
    return [pair for pair in pairs if pair not in absent], absent


def _measure(
    context: BenchContext, tool: Tool, ends: tuple[End, End], places: Sequence[Measurement], runs: int
) -> list[Measurement]:
    """All runs of one pair: the first node serves, the second is the client.

    The counters of both ports are read before the first run and after each one. A run whose figures are unreliable is
    repeated; its output stays in the evidence.
    """
    session = context.session
    server, client = ends
    answers: list[CommandResult] = []
    try:
        reading = {end.node: end.reading for end in ends}
        answers += session.run(reading, READING_S).values()
        for _ in range(runs):
            for _ in range(ATTEMPTS):
                result = _once(context, tool, server, client)
                answers += [result, *session.run(reading, READING_S).values()]
                if not _unreliable(result, session.architecture):
                    break
            if not result.ok:
                break
    except RemoteError as error:
        return [unmeasured(place, str(error), outputs_of(answers)) for place in places]
    return [_read(place, answers, session.architecture) for place in places]


def _unreliable(result: CommandResult, architecture: Architecture) -> bool:
    """Whether another attempt may give what this run did not."""
    try:
        figure_of(result, architecture)
    except Unreliable:
        return True
    except ParseError:
        return False
    return False


def _read(place: Measurement, answers: Sequence[CommandResult], architecture: Architecture) -> Measurement:
    """The measurement, or why the answers do not give it. A failed run is the whole reason."""
    client = place.members[-1]
    for answer in answers:
        if answer.node == client and answer.rc != 0 and not answer.command.startswith("ping "):
            return unmeasured(place, f"{client}: {answer.command.split()[0]}: {answer.why}", outputs_of(answers))
    try:
        return reading_of(place, READERS[READER](answers, architecture), READER)
    except (Mismatch, Unreliable) as error:
        return unmeasured(place, f"{client}: {error}", outputs_of(answers))
    except ParseError as error:
        return unmeasured(place, f"{client}: unreadable output: {error}", outputs_of(answers))


def _once(context: BenchContext, tool: Tool, server: End, client: End) -> CommandResult:
    limit = tool.seconds + 45
    session = context.session
    with session.serving(server.node, tool.server(server), limit + 30) as process:
        wait_listening(session.fleet[server.node], process, tool.port)
        return session.run_on(client.node, tool.client(server, client), limit)


def _loss_step(fabric: Fabric, rail: int, rack: Rack) -> Iterator[Step]:
    """Loss and delay between all nodes with an address on the rail, storage servers included."""
    nodes = [node.name for node in rack.nodes if node.fabric_address(rail)]
    schedule = rounds(nodes)
    if not schedule:
        return
    id_ = f"loss/rail{rail}"
    places = {
        pair: [expected(metric, Scope.PAIR, pair, {"rail": str(rail)}, id_) for metric in (LOSS, ROUND_TRIP)]
        for pairs in schedule
        for pair in pairs
    }

    def execute(context: BenchContext) -> Iterator[Measurement]:
        session = context.session
        _, absent = _ready(context, list(places))
        for pair, gone in absent.items():
            yield from (unmeasured(place, f"{gone} does not answer") for place in places[pair])
        for pairs in schedule:
            commands = {
                client: ping(fabric, rail, session.rack.node(server))
                for server, client in pairs
                if (server, client) not in absent
            }
            answers = session.run(commands, PING_LIMIT_S) if commands else {}
            for server, client in pairs:
                for place in places[server, client] if client in answers else ():
                    yield _read(place, [answers[client]], session.architecture)

    title = f"loss and delay between {len(nodes)} nodes, rail {rail}"
    expects = tuple(place for of_pair in places.values() for place in of_pair)
    yield Step(id_, title, len(schedule) * (PINGS * PING_INTERVAL_S + 3.0), expects, execute)


def ping(fabric: Fabric, rail: int, peer: Node) -> str:
    """Command that pings a peer over a rail; its end names the peer."""
    port, address = f"{fabric.interface_prefix}{rail}", peer.fabric_address(rail) or ""
    options = f"-n -q -c {PINGS} -i {PING_INTERVAL_S:g} -W 2 -I {shlex.quote(port)}"
    return f"ping {options} {shlex.quote(address)}{TO}{peer.name}"
