"""TCP from all clients of a storage at once to the addresses that their mounts use: iperf3, bound to the mount's rail.

Every client has a server of its own at each of these addresses. The mounts and the counters of all ports are read
before and after each run, so that the figure is that of the path which the storage's data takes.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from ipaddress import ip_address, ip_interface
from typing import NamedTuple

from rackproof.bench.firewall import Firewall
from rackproof.bench.links.fan_in_reader import TOOL, check_last, client_command, targets_in, waiting
from rackproof.bench.links.figures import ATTEMPTS, TO_STORAGE
from rackproof.bench.links.reader import read_links
from rackproof.bench.links.steps import READING_S, START_S, TCP_PORT, End, end_of, iperf3_server
from rackproof.bench.moment import moments
from rackproof.bench.port_proof import reading_command
from rackproof.bench.ports import at_port, wait_listening
from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, expected, reading_of, shown, unmeasured
from rackproof.bench.storage.commands import AFTER, folders_of, origin_of, state_after
from rackproof.bench.storage.proof import mount_fault
from rackproof.bench.storage.runs import state_in
from rackproof.bench.user import BenchUsers
from rackproof.core.architecture import Architecture, Fabric, LinkProfile, Storage
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.rack import Node, Rack
from rackproof.core.wording import counted
from rackproof.errors import NodeUnreachable, RemoteError
from rackproof.parse import ParseError, Unreliable
from rackproof.remote.command import CommandResult

STATE_S = 60
"""Time limit of reading the mounts, in seconds."""
NO_RAIL = 1 << 16
"""Above the number of any fabric's rails."""
MARGIN_S = 45
"""Seconds for iperf3 to connect and to exchange results."""


class Stream(NamedTuple):
    """One client's test to one address."""

    server: End
    server_rail: int
    client: End
    client_rail: int
    port: int
    """On which its server listens."""


def plan(architecture: Architecture, profile: LinkProfile, rack: Rack) -> list[Step]:
    """One step per storage of ``to_storage``; none without a fabric or clients."""
    steps = []
    for name in profile.to_storage:
        storage = architecture.storage[name]
        clients = storage.clients(rack)
        if architecture.fabric is not None and clients:
            steps.append(_step(architecture.fabric, name, storage, profile, clients, rack))
    return steps


def _step(fabric: Fabric, name: str, storage: Storage, profile: LinkProfile, clients: list[str], rack: Rack) -> Step:
    id_ = f"links/to-storage/{name}"
    place = expected(TO_STORAGE, Scope.RACK, clients, {"storage": name}, id_)

    def execute(context: BenchContext) -> Iterator[Measurement]:
        yield _FanIn(context, fabric, storage, profile).measure(place)

    def commands() -> Iterator[str]:
        """Commands of the first client to the address that its mount most likely uses: mounts decide."""
        servers, addresses = servers_of(rack, storage, fabric)
        if servers and addresses:
            one = stream_of(rack, fabric, servers, clients[0], addresses[0], TCP_PORT)
            yield iperf3_server(one.server, one.port)
            yield sending(one, fabric, profile)

    title = f"tcp to the servers of {name} from {counted(len(clients), 'client', 'clients at once')}"
    estimate = profile.runs * (profile.tcp_duration_s + START_S)
    return Step(id_, title, estimate, (place,), execute, commands=shown(commands))


def servers_of(rack: Rack, storage: Storage, fabric: Fabric) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    """Nodes that serve a storage, and their addresses that its mounts may use."""
    servers = storage.server_nodes(rack) if storage.managed else ()
    if storage.class_ != "nfs":  # every server has a part of the data, at its first address of each rail
        every = [node.fabric_address(rail) for node in servers for rail in range(fabric.rails)]
        return servers, tuple(address for address in every if address is not None)
    return servers, storage.addresses(rack)


def stream_of(rack: Rack, fabric: Fabric, servers: Sequence[Node], client: str, address: str, port: int) -> Stream:
    """Raises NodeUnreachable where the inventory has no way from the client to the address."""
    server = next((node for node in servers if address in node.server_addresses), None)
    if server is None:
        raise NodeUnreachable(client, f"its data goes to {address}, no server's address in the inventory")
    own, other = rail_to(rack.node(client), address), rail_of(server, address)
    ends = end_of(rack.node(client), fabric, own), end_of(server, fabric, other)
    if ends[0] is None or ends[1] is None:
        raise NodeUnreachable(client, f"no rail of it is in the network of {address}")
    return Stream(replace(ends[1], address=address), other, ends[0], own, port)


def sending(stream: Stream, fabric: Fabric, profile: LinkProfile) -> str:
    """Command of the client."""
    prefix = fabric.interface_prefix
    options = (
        f"-c {shlex.quote(stream.server.address)} {stream.client.bound} -p {stream.port}"
        f" -t {profile.tcp_duration_s} -P {profile.tcp_streams} -J"
    )
    ports = f"{prefix}{stream.client_rail}", stream.server.node, f"{prefix}{stream.server_rail}"
    return client_command(options, *ports)


class _FanIn:
    """One step; ``answers`` are those for the reader, in the order of the evidence."""

    def __init__(self, context: BenchContext, fabric: Fabric, storage: Storage, profile: LinkProfile) -> None:
        self.context, self.session = context, context.session
        self.fabric, self.storage, self.profile = fabric, storage, profile
        self.users = BenchUsers.of(context)
        self.servers, addresses = servers_of(self.session.rack, storage, fabric)
        self.origin = origin_of(self.session.architecture, self.session.rack, storage, addresses)
        self.answers: list[CommandResult] = []

    def measure(self, place: Measurement) -> Measurement:
        """The measurement with its number, or with the reason why there is none."""
        if not self.servers:
            return unmeasured(place, "the kit starts no iperf3 on servers that it does not set up")
        clients = list(place.members)
        nodes = [*clients, *(node.name for node in self.servers)]
        if silent := sorted(set(nodes) - set(self.session.alive(nodes, self.context.say))):
            return unmeasured(place, f"{', '.join(silent)} does not answer")
        if lost := self.users.ready(nodes):
            return unmeasured(place, "; ".join(lost.values()))
        try:
            self._runs(clients)
            return reading_of(place, read_links(self.answers, self.session.architecture))
        except (RemoteError, ParseError) as error:
            return unmeasured(place, str(error), outputs_of(self.answers))

    def _runs(self, clients: Sequence[str]) -> None:
        """All runs, each repeated while its figures are unreliable."""
        streams = self._streams(self._mounts(clients))
        nodes = [*clients, *(node.name for node in self.servers)]
        Firewall.of(self.context).close(nodes, {stream.port for stream in streams})
        rails: dict[str, set[int]] = {}
        for stream in streams:
            rails.setdefault(stream.server.node, set()).add(stream.server_rail)
            rails.setdefault(stream.client.node, set()).add(stream.client_rail)
        reading = {node: reading_command(self.fabric, sorted(of_node)) for node, of_node in rails.items()}
        self._ask(reading, READING_S)
        for _ in range(self.profile.runs):
            for _ in range(ATTEMPTS):
                self._once(streams)
                self._ask(reading, READING_S)
                self._mounts(clients)
                try:
                    check_last(self.answers, clients, self.storage, self.session.architecture)
                except Unreliable:
                    continue
                break

    def _mounts(self, clients: Sequence[str]) -> Mapping[str, CommandResult]:
        ask = {node: state_after(self.storage, folders_of(self.storage, node), self.origin) for node in clients}
        return self._ask(ask, STATE_S)

    def _ask(self, commands: Mapping[str, str], limit_s: float) -> Mapping[str, CommandResult]:
        answers = self.session.run(commands, limit_s)
        self.answers += answers.values()
        return answers

    def _streams(self, states: Mapping[str, CommandResult]) -> list[Stream]:
        """One for each client and address; the port is the client's number. Raises NodeUnreachable without a way,
        ParseError where no client has an address to send to."""
        streams = [
            stream_of(self.session.rack, self.fabric, self.servers, name, address, TCP_PORT + number)
            for number, (name, answer) in enumerate(states.items())
            for address in targets_in(self.storage, state_in(answer, AFTER))
        ]
        if not streams:
            faults = (mount_fault(self.storage, answer) for answer in states.values())
            raise ParseError(TOOL, next(filter(None, faults), "its servers have no address of the fabric"))
        return streams

    def _once(self, streams: Sequence[Stream]) -> None:
        """Start all servers, then all clients, which begin at one moment."""
        profile, limit = self.profile, self.profile.tcp_duration_s + MARGIN_S
        with ExitStack() as stack, ThreadPoolExecutor(max_workers=len(streams)) as pool:
            listening = []
            for stream in streams:
                account, node = self.users[stream.server.node], stream.server.node
                command = iperf3_server(stream.server, stream.port)
                process = stack.enter_context(self.session.serving(node, command, limit + MARGIN_S, account.prefix))
                at = at_port(stream.port, account, stream.server.address)
                listening.append((self.session.fleet[node], process, at))
            list(pool.map(lambda one: wait_listening(*one), listening))

            # A client whose clock is not read begins at once; its own report of the start tells the lag.
            begin, _ = moments(self.session, sorted({stream.client.node for stream in streams}))

            def send(stream: Stream) -> CommandResult:
                node = stream.client.node
                command = waiting(sending(stream, self.fabric, profile), begin.get(node))
                return self.session.run_on(node, command, limit, user=self.users[node].prefix, hold=True)

            self.answers += pool.map(send, streams)


def rail_to(client: Node, address: str) -> int:
    """The client's rail in whose network the address is; NO_RAIL without one."""
    networks = [ip_interface(str(own)).network for own in client.data.get("fabric_addresses") or ()]
    return next((rail for rail, network in enumerate(networks) if ip_address(address) in network), NO_RAIL)


def rail_of(server: Node, address: str) -> int:
    """The rail of one of the server's addresses, which are in the order of rails; NO_RAIL for another address."""
    for key in ("fabric_addresses", "fabric_second_addresses"):
        own = [str(entry).split("/")[0] for entry in server.data.get(key) or ()]
        if address in own:
            return own.index(address)
    return NO_RAIL
