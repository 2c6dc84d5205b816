"""Links between all pairs of nodes, per rail: loss, delay, ib_write_bw, ib_write_lat and iperf3."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from ipaddress import ip_interface
from itertools import chain

from rackproof.bench.firewall import Firewall
from rackproof.bench.links.figures import (
    ATTEMPTS,
    BIND,
    BOTH_WAYS,
    RDMA_BANDWIDTH,
    RDMA_BOTH,
    RDMA_LATENCY,
    RDMA_READ_LATENCY,
    RDMA_RETRIES,
    TCP_BANDWIDTH,
    TCP_RETRANSMITTED,
    TO,
    figure_of,
)
from rackproof.bench.links.placement import LIMIT_S, Placement, placement_command, placements
from rackproof.bench.links.reader import LOSS, PINGS, ROUND_TRIP, read_links
from rackproof.bench.port_proof import protected_priority, reading_command
from rackproof.bench.ports import at_port, wait_ended, wait_listening
from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, expected, reading_or_reason, unmeasured
from rackproof.bench.user import BenchUsers
from rackproof.core.architecture import Architecture, Fabric, LinkProfile
from rackproof.core.architecture.coverage import asks_for
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.pairing import each_once, rounds
from rackproof.core.rack import Node, Rack
from rackproof.errors import RemoteError
from rackproof.evidence.session import Session
from rackproof.parse import ParseError, Unreliable
from rackproof.remote.command import CommandResult, program
from rackproof.remote.redaction import redacted

RDMA_PORT, TCP_PORT = 18515, 15201
LATENCY_S = 3.0
"""Estimate of one test of latency, in seconds."""
START_S = 8.0
"""Time to connect and tear down, for the estimate, in seconds."""
END_S = 5.0
"""Seconds for a server to end after its client."""
READING_S = 20
"""Time limit of reading counters, in seconds."""
PING_INTERVAL_S, PING_LIMIT_S = 0.005, 60
UNBOUND = Placement("", -1)


@dataclass(frozen=True, slots=True)
class End:
    """One end of a pair: the node's address on the rail. ``device``: interface that sockets are bound to if the route
    to the peer may use another port."""

    node: str
    address: str
    device: str | None
    reading: str
    """Command that reads the port's counters."""
    placement: Placement = UNBOUND
    """Processors and memory that tests of RDMA are bound to."""
    placed: CommandResult | None = None
    """The node's answer about it."""

    @property
    def bound(self) -> str:
        """iperf3's options that bind to this end."""
        device = f" --bind-dev {shlex.quote(self.device)}" if self.device else ""
        return f"-B {shlex.quote(self.address)}{device}"


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: its metrics, the command lines of both ends, and its port."""

    name: str
    metrics: tuple[str, ...]
    port: int
    server: Callable[[End], str]
    client: Callable[[End, End], str]
    """Command of the client, from the server's end and the client's."""
    seconds: float
    of_both: bool = False
    """Whether the server's output counts as well; it is then given time to end by itself."""


def plan(architecture: Architecture, profile: LinkProfile, rack: Rack) -> list[Step]:
    """One step per rail for loss and delay between all nodes, then one per rail, round and tool.

    The pairs of a round run at once; each node is in one of them. Unless the profile asks for all pairs, each node is
    measured with one other of the group.
    """
    fabric = architecture.fabric
    if fabric is None:
        return []
    steps: list[Step] = []
    names = [node.name for node in rack.group(profile.members)]
    all_pairs = profile.all_pairs(len(names))
    schedule = rounds(names) if all_pairs else each_once(names)
    chosen = {pair for pairs in schedule for pair in pairs}
    for rail in range(fabric.rails):
        steps += _loss_step(fabric, rail, rack, set() if all_pairs else set(names), chosen)
        for number, pairs in enumerate(schedule, 1):
            for tool in _tools(architecture, fabric, profile, rail):
                step = _step(fabric, tool, rail, number, pairs, profile.runs)
                steps.append(replace(step, commands=commands_of(fabric, tool, rail, [rack.node(n) for n in pairs[0]])))
    return steps


def commands_of(fabric: Fabric, tool: Tool, rail: int, pair: Sequence[Node], gpu: str | None = None) -> tuple[str, ...]:
    """Commands of server and client, for a dry run; none without their addresses. ``gpu``: see ``Placement``."""
    server, client = (end_of(node, fabric, rail) for node in pair)
    if server is None or client is None:
        return ()
    near = Placement(server.placement.port, 0, gpu)
    server, client = replace(server, placement=near), replace(client, placement=near)
    return (tool.server(server), tool.client(server, client))


def _tools(architecture: Architecture, fabric: Fabric, profile: LinkProfile, rail: int) -> list[Tool]:
    """Tools for every rail, then those whose metric an entry asks for."""
    device = f"{fabric.rdma_prefix}{rail}"
    rdma = f"-d {shlex.quote(device)} -F -p {RDMA_PORT}{traffic_class(fabric)}"
    bandwidth = f"ib_write_bw {rdma} -s {profile.rdma_block_bytes} -D {profile.rdma_duration_s}"
    tcp = f"-p {TCP_PORT} -t {profile.tcp_duration_s} -P {profile.tcp_streams} -J"

    def perftest(name: str, metrics: tuple[str, ...], command: str, seconds: float) -> Tool:
        def client(peer: End, own: End) -> str:
            return f"{own.placement.bound(command)} {shlex.quote(peer.address)}"

        def server(own: End) -> str:
            return from_address(own.placement.bound(command), own, "exec ")

        return Tool(name, metrics, RDMA_PORT, server, client, seconds)

    def latency(program: str) -> str:
        return f"{program} {rdma} -n {profile.latency_iterations}"

    on_demand = [
        perftest("rdma-both-ways", (RDMA_BOTH,), f"{bandwidth} {BOTH_WAYS}", profile.rdma_duration_s),
        perftest("rdma-read-latency", (RDMA_READ_LATENCY,), latency("ib_read_lat"), LATENCY_S),
    ]
    return [
        perftest("rdma-bandwidth", (RDMA_BANDWIDTH, RDMA_RETRIES), bandwidth, profile.rdma_duration_s),
        perftest("rdma-latency", (RDMA_LATENCY,), latency("ib_write_lat"), LATENCY_S),
        *(tool for tool in on_demand if asks_for(architecture, tool.metrics[0])),
        Tool("tcp-bandwidth", (TCP_BANDWIDTH, TCP_RETRANSMITTED), TCP_PORT,
             lambda own: iperf3_server(own, TCP_PORT),
             lambda peer, own: f"iperf3 -c {shlex.quote(peer.address)} {own.bound} {tcp}",
             profile.tcp_duration_s),
    ]  # fmt: skip


def iperf3_server(own: End, port: int) -> str:
    """Command of iperf3's server for one test, bound to this end."""
    return f"iperf3 -s -1 -p {port} {own.bound}"


def traffic_class(fabric: Fabric) -> str:
    """perftest's options that put its traffic into the priority with PFC, as the architecture's applications do.

    Its queue pairs take their own traffic class, and not the node's default, which is the connection manager's.
    """
    priority, lossless = protected_priority(fabric), fabric.lossless
    if priority is None or lossless is None:
        return ""
    if lossless.trust != "dscp":
        return f" --sl={priority}"
    class_ = lossless.traffic_class if lossless.traffic_class is not None else lossless.tos
    return f" --tclass={class_}" if class_ is not None else ""


def from_address(command: str, own: End, how: str = "") -> str:
    """perftest's server, bound to this end for the exchange of parameters where its version can be (since 4.5)."""
    bind = f"bind=--bind_source_ip={shlex.quote(own.address)}"
    return f"{BIND}; ! {program(command)} --help 2>&1 | grep -q -e --bind_source_ip || {bind}; {how}{command} $bind"


def end_of(node: Node, fabric: Fabric, rail: int) -> End | None:
    """The node's end of a rail; None without an address in the inventory.

    With two rails in one subnet and without a routing table per rail, the kernel may send from this rail's address
    through the other port: sockets are then bound to the device as well.
    """
    address, port = node.fabric_address(rail), f"{fabric.interface_prefix}{rail}"
    if address is None:
        return None
    networks = [ip_interface(str(entry)).network for entry in node.data.get("fabric_addresses") or ()]
    shared = networks.count(networks[rail]) > 1 and not fabric.rail_tables
    reading = reading_command(fabric, [rail], protected_priority(fabric) is not None)
    return End(node.name, address, port if shared else None, reading, Placement(port, -1))


def placed(session: Session, ends: Iterable[End], gpus: bool = False) -> dict[str, End | str]:
    """The ends with where their adapters are, or the reason why that is unknown, by node."""
    by_node = {end.node: end for end in ends}
    asked = session.run({name: placement_command([end.placement.port]) for name, end in by_node.items()}, LIMIT_S)
    answers: dict[str, End | str] = {}
    for name, end in by_node.items():
        try:
            (placement,) = placements(asked[name], [end.placement.port], gpus)
            answers[name] = replace(end, placement=placement, placed=asked[name])
        except ParseError as error:
            answers[name] = str(error)
    return answers


def _step(fabric: Fabric, tool: Tool, rail: int, number: int, pairs: Sequence[tuple[str, str]], runs: int) -> Step:
    id_ = f"links/rail{rail}/round{number}/{tool.name}"
    places = {
        pair: [expected(metric, Scope.PAIR, pair, {"rail": str(rail)}, id_) for metric in tool.metrics]
        for pair in pairs
    }

    def execute(context: BenchContext) -> Iterator[Measurement]:
        return measure_pairs(context, fabric, rail, tool, places, runs)

    title = f"{tool.name.replace('-', ' ')}, rail {rail}, round {number}"
    expects = tuple(place for of_pair in places.values() for place in of_pair)
    return Step(id_, title, runs * (tool.seconds + START_S), expects, execute)


def measure_pairs(
    context: BenchContext,
    fabric: Fabric,
    rail: int,
    tool: Tool,
    places: Mapping[tuple[str, str], Sequence[Measurement]],
    runs: int,
    gpus: bool = False,
) -> Iterator[Measurement]:
    """Measure disjoint pairs (server, client) at once; perftest is bound to the node of its adapter, ``gpus``: and uses
    the nearest GPU. A pair that is not ready has no number, and the reasons of both ends."""
    session = context.session
    ready, absent = ready_pairs(context, list(places))
    reasons = {pair: f"{gone} does not answer" for pair, gone in absent.items()}
    lost = BenchUsers.of(context).ready([name for pair in ready for name in pair])
    ends: dict[str, End | str] = dict(lost)
    for name in (name for pair in ready for name in pair if name not in lost):
        missing = f"{name}: the inventory gives no fabric address for rail {rail}"
        ends[name] = end_of(session.rack.node(name), fabric, rail) or missing
    if tool.port == RDMA_PORT:
        usable = [pair for pair in ready if all(isinstance(ends[name], End) for name in pair)]
        ends |= placed(session, (end for pair in usable for name in pair if isinstance(end := ends[name], End)), gpus)
    pairs: dict[tuple[str, str], tuple[End, End]] = {}
    for pair in ready:
        server, client = (ends[name] for name in pair)
        if isinstance(server, End) and isinstance(client, End):
            pairs[pair] = (server, client)
        else:
            reasons[pair] = "; ".join(end for end in (server, client) if isinstance(end, str))
    for pair, reason in reasons.items():
        yield from (unmeasured(place, reason) for place in places[pair])
    Firewall.of(context).close([name for pair in pairs for name in pair], [tool.port])
    if pairs:
        with ThreadPoolExecutor(max_workers=len(pairs)) as pool:
            measured = pool.map(lambda pair: measure_pair(context, tool, pairs[pair], places[pair], runs), pairs)
            yield from chain.from_iterable(measured)


def ready_pairs(
    context: BenchContext, pairs: Sequence[tuple[str, str]]
) -> tuple[list[tuple[str, str]], dict[tuple[str, str], str]]:
    """Pairs whose nodes answer, and the silent nodes of the other pairs."""
    alive = set(context.session.alive(sorted({name for pair in pairs for name in pair}), context.say))
    absent = {pair: ", ".join(sorted(set(pair) - alive)) for pair in pairs if not set(pair) <= alive}
    return [pair for pair in pairs if pair not in absent], absent


def measure_pair(
    context: BenchContext, tool: Tool, ends: tuple[End, End], places: Sequence[Measurement], runs: int
) -> list[Measurement]:
    """All runs of one pair: the first node is the server, the second the client.

    The counters of both ports are read before the first run and after each run. A run with unreliable figures is
    repeated, and its output stays in the evidence.
    """
    session = context.session
    server, client = ends
    answers: list[CommandResult] = []
    try:
        reading = {end.node: end.reading for end in ends}
        answers += [end.placed for end in ends if end.placed is not None]
        answers += session.run(reading, READING_S).values()
        for _ in range(runs):
            for _ in range(ATTEMPTS):
                result, *others = _once(context, tool, server, client)
                answers += [result, *others, *session.run(reading, READING_S).values()]
                if not _unreliable(result, session.architecture):
                    break
            if not result.ok:
                break
    except RemoteError as error:
        return [unmeasured(place, str(error), outputs_of(answers)) for place in places]
    return [_read(place, answers, session.architecture) for place in places]


def _unreliable(result: CommandResult, architecture: Architecture) -> bool:
    """Whether a run is worth another attempt."""
    try:
        figure_of(result, architecture)
    except Unreliable:
        return True
    except ParseError:
        return False
    return False


def _read(place: Measurement, answers: Sequence[CommandResult], architecture: Architecture) -> Measurement:
    """The measurement with its number, or with the reason why there is none, a failed run first."""
    client = place.members[-1].partition("/")[0]
    failed = (a for a in answers if a.node == client and a.rc != 0 and not a.command.startswith("ping "))
    why = next((f"{client}: {program(answer.command)}: {answer.why}" for answer in failed), "")
    return reading_or_reason(place, read_links(answers, architecture), outputs_of(answers), why, f"{client}: ")


def _once(context: BenchContext, tool: Tool, server: End, client: End) -> list[CommandResult]:
    """The client's answer, and the server's where it counts."""
    limit = tool.seconds + 45
    session, users = context.session, BenchUsers.of(context)
    account = users[server.node]
    with session.serving(server.node, tool.server(server), limit + 30, account.prefix) as process:
        wait_listening(session.fleet[server.node], process, at_port(tool.port, account))
        user = users[client.node].prefix
        answers = [session.run_on(client.node, tool.client(server, client), limit, user=user, hold=True)]
        if not tool.of_both:
            return answers
        wait_ended([process], END_S)
    return [*answers, redacted(process.stop())]


def _loss_step(fabric: Fabric, rail: int, rack: Rack, group: set[str], chosen: set[tuple[str, str]]) -> Iterator[Step]:
    """Loss and delay between all nodes with an address on the rail, including storage servers.

    Of pairs within ``group`` only those in ``chosen``, as (a, b) or (b, a).
    """
    nodes = [node.name for node in rack.nodes if node.fabric_address(rail)]
    every = [
        [pair for pair in pairs if not group.issuperset(pair) or pair in chosen or pair[::-1] in chosen]
        for pairs in rounds(nodes)
    ]
    schedule = [pairs for pairs in every if pairs]
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
        _, absent = ready_pairs(context, list(places))
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
    command = ping(fabric, rail, rack.node(schedule[0][0][0]))
    yield Step(id_, title, len(schedule) * (PINGS * PING_INTERVAL_S + 3.0), expects, execute, commands=(command,))


def ping(fabric: Fabric, rail: int, peer: Node) -> str:
    """Command that pings a peer over a rail; a comment names the peer."""
    port, address = f"{fabric.interface_prefix}{rail}", peer.fabric_address(rail) or ""
    options = f"-n -q -c {PINGS} -i {PING_INTERVAL_S:g} -W 2 -I {shlex.quote(port)}"
    return f"ping {options} {shlex.quote(address)}{TO}{peer.name}"
