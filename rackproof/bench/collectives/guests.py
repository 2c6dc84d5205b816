"""Collectives on a node's GPUs, and then in the virtual machine that gets them from it.

All nodes at once: runs on the node while its domain is shut off; the start of the domain, which takes the GPUs from the
node; the same runs in the guest; the domain's end. Whatever ends the step, the domain is shut off after it: a keeper on
the node sees to that (``guest_keeper.sh``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.resources import files
from typing import TypeVar

from rackproof.bench.collectives.command import sizes
from rackproof.bench.collectives.engines import ENGINES, Engine, Sweep
from rackproof.bench.collectives.guest_commands import (
    STARTED,
    inside,
    keeper_command,
    off_command,
    side_command,
    start_command,
    wait_command,
)
from rackproof.bench.collectives.guest_reader import (
    SIDES,
    check_guest,
    check_host,
    how_off,
    read_guests,
    side_of,
)
from rackproof.bench.collectives.launch import READING_S, Launch, Way, launch_of, way_of
from rackproof.bench.collectives.nccl_used import READING
from rackproof.bench.collectives.steps import MARGIN_S, PER_SIZE_S, START_S, Part, program_of
from rackproof.bench.gpu.links import sampled_links
from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, count_or_reason, expected, shown
from rackproof.bench.user import HOME, SETUP, USER, Account, BenchUsers, account_of
from rackproof.configure.collectives.inputs import GuestInputs
from rackproof.configure.settings import read_inputs
from rackproof.core.architecture import Architecture, CollectiveProfile
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.rack import Rack
from rackproof.core.wording import counted
from rackproof.errors import RemoteError
from rackproof.parse import ParseError
from rackproof.parse.guest import Side
from rackproof.remote.channel import Pipe
from rackproof.remote.command import CommandResult
from rackproof.remote.interrupt import STOPPING
from rackproof.remote.ssh import Connection

BOOT_S = 300.0
"""For the duration that a dry run shows: two starts and ends of a machine with GPUs."""
ASKING_S = 180.0
LIFE_S = 24 * 3600.0
"""Time limit of a connection to a keeper."""
BACK_S = 400.0
"""Seconds for the node to get its GPUs back, and for their services to start, after the domain has ended."""
INTERFACE = "lo"
"""Where the ranks of a node meet: the guest has no port of the fabric."""


def plan(architecture: Architecture, profile: CollectiveProfile, rack: Rack) -> list[Step]:
    """One step per operation; none without ``guest`` in the profile. Raises InventoryError for an invalid guest."""
    part, nodes = profile.guest, rack.group(profile.members)
    if part is None or not nodes:
        return []
    guests = {node.name: read_inputs(node, GuestInputs) for node in nodes}
    sweep = Sweep(part.min_bytes, part.max_bytes)
    parts = [Part(op, Scope.NODE, tuple(guests), sweep, (INTERFACE,)) for op in part.ops]
    return [_step(architecture, rack, one, profile, guests) for one in parts]


def _step(
    architecture: Architecture, rack: Rack, part: Part, profile: CollectiveProfile, guests: Mapping[str, GuestInputs]
) -> Step:
    engine = ENGINES[profile.engine]
    id_ = f"collectives/{engine.name}/guest/{part.op}"
    steps = list(sizes(part.sweep.low, part.sweep.high, profile.factor))
    places = tuple(
        expected(metric, Scope.NODE, (node,), {"op": part.op, "bytes": str(size), "engine": engine.name}, id_)
        for node in part.nodes
        for size in steps
        for metric in SIDES
    )
    seconds = START_S + PER_SIZE_S * len(steps)

    def execute(context: BenchContext) -> Iterator[Measurement]:
        return _GuestStep(context, id_, engine, part, profile, guests, seconds * 2 + MARGIN_S).execute(places)

    def commands() -> Iterator[str]:
        """Commands of the first node with a guest: the same program before and after the start of its domain."""
        node = next((name for name, guest in guests.items() if guest.domain), None)
        if node is not None and architecture.gpu is not None:
            way = way_of(architecture, rack, engine, part.nodes, profile, seconds * 2 + MARGIN_S, alone=True)
            yield _program(_on_gpus(way), part, profile, node, architecture.gpu.count)
            yield start_command(guests[node])

    title = f"{part.op} on each of {counted(len(part.nodes), 'node')} and in its guest ({engine.name})"
    return Step(
        id_, title, 2 * (seconds * profile.runs + BOOT_S), places, execute, commands=shown(commands)
    )  # fmt: skip


AnyWay = TypeVar("AnyWay", bound=Way)


def _on_gpus(way: AnyWay) -> AnyWay:
    """A guest has GPUs whatever the architecture says of its node."""
    return replace(way, backend="nccl" if way.engine.name == "torch" else "")


def _program(way: Way, part: Part, profile: CollectiveProfile, node: str, gpus: int) -> str:
    """Command that starts one rank for each GPU of the node; the same in its guest. Raises ParseError."""
    own = replace(way, nodes=(node,), ranks_per_node=gpus)
    environment = part.environment(own.engine, INTERFACE, gpus)
    return own.of_node(program_of(own, own.engine, part, profile), environment, node)


class _GuestStep:
    def __init__(
        self,
        context: BenchContext,
        id_: str,
        engine: Engine,
        part: Part,
        profile: CollectiveProfile,
        guests: Mapping[str, GuestInputs],
        limit_s: float,
    ) -> None:
        self.context, self.session = context, context.session
        self.id, self.engine, self.part, self.profile, self.limit_s = id_, engine, part, profile, limit_s
        self.answers: list[CommandResult] = []
        self.lost: dict[str, str] = {}
        self.guests = guests
        self.hosts: dict[str, Side] = {}
        self.accounts: dict[str, Account] = {}
        self.keepers: dict[str, Pipe] = {}

    def execute(self, places: tuple[Measurement, ...]) -> Iterator[Measurement]:
        self._declared()
        try:
            self._measure()
        except ParseError as error:
            self.lost |= dict.fromkeys(self._left, error.reason)
        finally:
            self._end()
        read = read_guests(self.answers, self.session.architecture)
        for place in places:
            (node,) = place.members
            raw = outputs_of(answer for answer in self.answers if answer.node == node)
            why = self.lost.get(node, "")
            yield count_or_reason(place, read, raw, why, f"{node}: ")

    @property
    def _left(self) -> tuple[str, ...]:
        return tuple(node for node in self.part.nodes if node not in self.lost)

    def _declared(self) -> None:
        """Nodes without a guest are lost."""
        for name, guest in self.guests.items():
            if guest.domain is None:
                self.lost[name] = f"{name} has no guest: give it guest: {{domain: …, address: …}} in the inventory"
            elif self.session.rack.node(name).simulated_gpus:
                self.lost[name] = f"{name}: its GPUs are simulated, and no guest can get them"
        silent = set(self._left) - set(self.session.alive(list(self._left), self.context.say))
        self.lost |= dict.fromkeys(silent, "it does not answer")

    def _measure(self) -> None:
        """Run the collective on all nodes, then in their guests. Raises ParseError, RemoteError."""
        if not self._left:
            return
        launch = launch_of(self.context, self.engine, self._left, self.profile, self.limit_s, alone=True)
        launch = _on_gpus(launch)
        users = BenchUsers.of(self.context)
        self.hosts = self._sides(self._ask_host, self._check_host)
        with sampled_links(self.session, self.id, self._left, self.limit_s * self.profile.runs, self.context.say):
            self._runs(lambda node: self._program(launch, node), lambda node: READING, lambda node: users[node].prefix)
        self._sides(self._ask_host, self._check_host)
        self._start()
        self._ask(lambda node: wait_command(self.guests[node]), self._of_guest("boot_s") + ASKING_S, "its guest")
        self._sides(self._ask_guest, self._check_guest)
        self._prepare()
        self._runs(
            lambda node: self._inside(node, self._program(launch, node), self.limit_s, self.accounts[node].prefix),
            lambda node: self._inside(node, READING, READING_S),
        )
        self._sides(self._ask_guest, self._check_guest)

    def _program(self, launch: Launch, node: str) -> str:
        return _program(launch, self.part, self.profile, node, len(self.hosts[node].gpus))

    def _runs(
        self,
        command: Callable[[str], str],
        reading: Callable[[str], str],
        user: Callable[[str], str] = lambda node: "",
    ) -> None:
        """All runs, each between two readings of NCCL's logs. A run that fails ends its node's part after its reading:
        nccl-tests fails when values are wrong, and they count."""
        self._ask(reading, ASKING_S, "NCCL's logs")
        for _ in range(self.profile.runs):
            ran = self._ask(command, self.limit_s + MARGIN_S, self.engine.name, user)
            self._ask(reading, ASKING_S, "NCCL's logs", nodes=[node for node in ran if ran[node].error is None])

    def _prepare(self) -> None:
        """The account that measures, in the guests, and the kit's own program. Raises ParseError."""
        answers = self._ask(lambda node: self._inside(node, SETUP), ASKING_S, f"no account {USER} in its guest")
        for node, answer in answers.items():
            if answer.ok:
                self.accounts[node] = account_of(answer)
        if not self.engine.source:
            return
        data = files(__package__).joinpath(self.engine.source).read_bytes()
        place = f"{HOME}/{self.engine.source}"
        for node in self._left:
            command = self._inside(node, f"cat >{place}", user=self.accounts[node].prefix)
            answer = self.session.run_on(node, command, ASKING_S, data)
            if not answer.ok:
                self.lost[node] = f"the guest of {node}: writing {place}: {answer.why}"

    def _inside(self, node: str, command: str, limit_s: float = ASKING_S, user: str = "") -> str:
        return inside(self.guests[node], command, limit_s, user)

    def _ask_host(self, node: str) -> str:
        return side_command(self.guests[node].domain or "")

    def _ask_guest(self, node: str) -> str:
        return self._inside(node, side_command())

    def _sides(self, command: Callable[[str], str], check: Callable[[str, Side], None]) -> dict[str, Side]:
        """The states of one side, by node; a node whose state does not fit is lost."""
        sides = {}
        for node, answer in self._ask(command, ASKING_S + MARGIN_S, "its state is unknown").items():
            try:
                if answer.ok:
                    sides[node] = side_of(answer)
                    check(node, sides[node])
            except ParseError as error:
                self.lost[node] = f"{node}: {error}"
        return sides

    def _check_host(self, node: str, side: Side) -> None:
        check_host(side, self.session.architecture)

    def _check_guest(self, node: str, side: Side) -> None:
        check_guest(side, self.hosts[node], f"the guest of {node}")

    def _start(self) -> None:
        """Start the domains. A keeper ends each of them with the step."""

        def start(connection: Connection) -> str:
            node = connection.node.name
            guest = self.guests[node]
            try:
                keeper = connection.pipe(keeper_command(guest, len(self.hosts[node].gpus)), LIFE_S)
            except RemoteError as error:
                return error.reason
            self.keepers[node] = keeper
            self.context.stack.callback(keeper.close)
            return "" if keeper.skip_to(STARTED, guest.boot_s + ASKING_S) else keeper.why

        for node, why in self.session.fleet.each(self._left, start, "the start of its guest").items():
            if why:
                self.lost[node] = f"{node}: its guest does not start: {why}"

    def _end(self) -> None:
        """Shut the started domains down, and wait for the GPUs; after an interrupt the keepers do it alone."""
        if STOPPING.is_set() or not self.keepers:
            return
        commands = {node: off_command(self.guests[node], len(self.hosts[node].gpus)) for node in self.keepers}
        answers = self.session.run(commands, self._of_guest("shutdown_s") + BACK_S)
        self.answers += answers.values()
        for node, answer in answers.items():
            try:
                if how_off(answer) == "destroy":
                    limit = self.guests[node].shutdown_s
                    self.context.say(f"{node}: its guest did not shut down within {limit} s and was ended (destroy)")
            except ParseError as error:
                self.lost[node] = f"{node}: its guest is not shut off, or its GPUs have not come back: {error}"
                self.context.say(self.lost[node])

    def _of_guest(self, name: str) -> float:
        """The largest value of an input."""
        return max(float(getattr(guest, name)) for guest in self.guests.values())

    def _ask(
        self,
        command: Callable[[str], str],
        limit_s: float,
        what: str,
        user: Callable[[str], str] = lambda node: "",
        nodes: Iterable[str] | None = None,
    ) -> Mapping[str, CommandResult]:
        """Run a command on the remaining nodes, or on ``nodes``. Drops nodes where it fails. Keeps each node's first
        reason, prefixed with ``what``."""
        commands = {node: command(node) for node in (self._left if nodes is None else nodes)}

        def run(connection: Connection) -> CommandResult:
            node = connection.node.name
            return connection.run(commands[node], limit_s, user=user(node), hold=True)

        results = self.session.fleet.each(commands, run, what, parallel=len(commands))
        answers = {node: self.session.record(result) for node, result in results.items()}
        self.answers += answers.values()
        failed = {node: f"{node}: {what}: {answer.why}" for node, answer in answers.items() if not answer.ok}
        self.lost = failed | self.lost
        return answers
