"""RDMA over all adapters of a node at once: every node sends on all rails to one other node, one way or both ways, in
host or GPU memory, or reads from it on all rails.

What an adapter reaches alone it may lose when its neighbours on the same PCIe switch, socket or leaf switch work, too.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

from rackproof.bench.firewall import Firewall
from rackproof.bench.links.all_rails_reader import FROM, check_last, timed
from rackproof.bench.links.figures import (
    ALL_RAILS,
    ATTEMPTS,
    BOTH_ALL_RAILS,
    GPU_ALL_RAILS,
    GPU_BOTH_ALL_RAILS,
    GPU_READ_LATENCY_ALL_RAILS,
    OF_GPU,
    READ_LATENCY_ALL_RAILS,
    TO,
    duration_of,
)
from rackproof.bench.links.gpu_memory import ANY_GPU, command_of, sends
from rackproof.bench.links.placement import LIMIT_S, Placement, placement_command, placements
from rackproof.bench.links.reader import read_links
from rackproof.bench.links.steps import END_S, RDMA_PORT, READING_S, START_S, End, end_of, from_address, ready_pairs
from rackproof.bench.port_proof import protected_priority, reading_command
from rackproof.bench.ports import at_port, wait_ended, wait_listening
from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, expected, reading_of, unmeasured
from rackproof.bench.user import BenchUsers
from rackproof.core.architecture import Architecture, Fabric, LinkProfile
from rackproof.core.architecture.coverage import measures
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.rack import Node, Rack
from rackproof.errors import RemoteError
from rackproof.parse import ParseError, Unreliable
from rackproof.remote.channel import Server
from rackproof.remote.command import CommandResult
from rackproof.remote.redaction import redacted

MARGIN_S: Final = 45
"""Seconds for perftest to connect, to register memory and to exchange results."""
_WHAT: Final = {
    ALL_RAILS: "host-memory",
    GPU_ALL_RAILS: "gpu-memory",
    BOTH_ALL_RAILS: "host-memory-both-ways",
    GPU_BOTH_ALL_RAILS: "gpu-memory-both-ways",
    READ_LATENCY_ALL_RAILS: "host-memory-read-latency",
    GPU_READ_LATENCY_ALL_RAILS: "gpu-memory-read-latency",
}
"""Words of a step, by metric."""


def plan(architecture: Architecture, profile: LinkProfile, rack: Rack) -> list[Step]:
    """Steps where a criterion asks: one per memory and round; every node is a client once."""
    fabric = architecture.fabric
    if fabric is None:
        return []
    names = [node.name for node in rack.group(profile.members)]
    return [
        _step(architecture, fabric, profile, metric, number, pairs, rack)
        for metric in _WHAT
        if measures(architecture, metric)
        for number, pairs in enumerate(sends(names), 1)
    ]


def _step(
    architecture: Architecture,
    fabric: Fabric,
    profile: LinkProfile,
    metric: str,
    number: int,
    pairs: Sequence[tuple[str, str]],
    rack: Rack,
) -> Step:
    what = _WHAT[metric]
    id_ = f"links/all-rails/{what}{number}"
    places = {
        pair: [expected(metric, Scope.NIC, [f"{pair[1]}/nic{rail}"], {}, id_) for rail in range(fabric.rails)]
        for pair in pairs
    }

    def execute(context: BenchContext) -> Iterator[Measurement]:
        ready, absent = ready_pairs(context, pairs)
        for pair, gone in absent.items():
            yield from (unmeasured(place, f"{gone} does not answer") for place in places[pair])
        volley = _Volley(context, architecture, fabric, profile, metric)
        lost = volley.users.ready([name for pair in ready for name in pair])
        for pair in [pair for pair in ready if set(pair) & set(lost)]:
            ready.remove(pair)
            reason = "; ".join(lost[name] for name in pair if name in lost)
            yield from (unmeasured(place, reason) for place in places[pair])
        ports = [RDMA_PORT + rail for rail in range(fabric.rails)]
        Firewall.of(context).close([name for pair in ready for name in pair], ports)
        if ready:
            with ThreadPoolExecutor(max_workers=len(ready)) as pool:
                for measured in pool.map(lambda pair: volley.measure(pair, places[pair]), ready):
                    yield from measured

    title = f"rdma from {what.replace('-', ' ')}, all rails at once, round {number}"
    seconds = profile.runs * (duration_of(metric, profile) + START_S)
    expects = tuple(place for of_pair in places.values() for place in of_pair)
    commands = tuple(_commands(architecture, fabric, profile, metric, [rack.node(name) for name in pairs[0]]))
    return Step(id_, title, seconds, expects, execute, commands=commands)


def _commands(
    architecture: Architecture, fabric: Fabric, profile: LinkProfile, metric: str, pair: Sequence[Node]
) -> Iterator[str]:
    """Commands of server and client on every rail, for a dry run; none without their addresses."""
    for rail in range(fabric.rails):
        own, other = (end_of(node, fabric, rail) for node in pair)
        if own is not None and other is not None:
            near = Placement(own.placement.port, 0, ANY_GPU)
            command = command_of(architecture, fabric, profile, metric, rail, near, RDMA_PORT + rail)
            yield from (_serving(command, own, other), _sending(command, own))


def _serving(command: str, own: End, peer: End) -> str:
    return timed(from_address(command, own), f"{FROM}{peer.node}")


def _sending(command: str, server: End) -> str:
    return timed(f"{command} {shlex.quote(server.address)}", f"{TO}{server.node}")


class _Volley:
    def __init__(
        self, context: BenchContext, architecture: Architecture, fabric: Fabric, profile: LinkProfile, metric: str
    ) -> None:
        self.session, self.users = context.session, BenchUsers.of(context)
        self.architecture, self.fabric, self.profile, self.metric = architecture, fabric, profile, metric
        self.ports = [f"{fabric.interface_prefix}{rail}" for rail in range(fabric.rails)]

    def measure(self, pair: tuple[str, str], places: Sequence[Measurement]) -> list[Measurement]:
        """All runs of one pair, each repeated while its figures are unreliable: (server, client)."""
        answers: list[CommandResult] = []
        try:
            self._runs(pair, places[0], answers)
            read = read_links(answers, self.architecture)
            return [reading_of(place, read) for place in places]
        except (RemoteError, ParseError) as error:
            return [unmeasured(place, str(error), outputs_of(answers)) for place in places]

    def _runs(self, pair: tuple[str, str], place: Measurement, answers: list[CommandResult]) -> None:
        session, fabric = self.session, self.fabric
        ends = [self._ends(name) for name in pair]
        gpus = self.metric in OF_GPU
        asked = session.run(dict.fromkeys(pair, placement_command(self.ports)), LIMIT_S)
        placed = [placements(asked[name], self.ports, gpus) for name in pair]
        answers += asked.values()
        rails, priorities = range(fabric.rails), protected_priority(fabric) is not None
        reading = dict.fromkeys(pair, reading_command(fabric, rails, priorities))
        answers += session.run(reading, READING_S).values()
        for _ in range(self.profile.runs):
            for _ in range(ATTEMPTS):
                answers += self._once(ends, placed)
                answers += session.run(reading, READING_S).values()
                try:
                    check_last(place, answers, self.architecture)
                except Unreliable:
                    continue
                break

    def _ends(self, name: str) -> list[End]:
        """Raises ParseError without an address on a rail."""
        ends = []
        for rail in range(self.fabric.rails):
            end = end_of(self.session.rack.node(name), self.fabric, rail)
            if end is None:
                raise ParseError("inventory", f"{name}: the inventory gives no fabric address for rail {rail}")
            ends.append(end)
        return ends

    def _once(self, ends: Sequence[Sequence[End]], placed: Sequence[Sequence[Placement]]) -> list[CommandResult]:
        """Start all servers, then all clients at once; the answers of clients and servers."""
        limit = duration_of(self.metric, self.profile) + MARGIN_S
        servers, clients = ends
        name, peer = servers[0].node, clients[0].node
        account = self.users[name]
        processes: list[Server] = []
        with ExitStack() as stack, ThreadPoolExecutor(max_workers=len(servers)) as pool:
            for rail, end in enumerate(servers):
                command = _serving(self._command(rail, placed[0][rail]), end, clients[rail])
                served = self.session.serving(name, command, limit, account.prefix)
                processes.append(stack.enter_context(served))
            for rail, process in enumerate(processes):
                wait_listening(self.session.fleet[name], process, at_port(RDMA_PORT + rail, account))

            def send(rail: int) -> CommandResult:
                command = _sending(self._command(rail, placed[1][rail]), servers[rail])
                return self.session.run_on(peer, command, limit, user=self.users[peer].prefix, hold=True)

            answers = list(pool.map(send, range(len(clients))))
            wait_ended(processes, END_S)
        return [*answers, *(redacted(process.stop()) for process in processes)]

    def _command(self, rail: int, placement: Placement) -> str:
        port = RDMA_PORT + rail
        return command_of(self.architecture, self.fabric, self.profile, self.metric, rail, placement, port)
