"""Runs of fio in a step's answers, with the clients' state before and after each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from rackproof.bench.storage.commands import AFTER, BEFORE, DROP, FSID, RAMP, is_server_in_ramp, server_state, state_of
from rackproof.bench.storage.fio_launch import BORROWED, Launch, is_launch, launches
from rackproof.bench.storage.layout import SUFFIX
from rackproof.bench.storage.server_counters import Served, served_between
from rackproof.parse import ParseError
from rackproof.parse.client_state import ClientState, parse_client_state
from rackproof.parse.timed import parse_timed
from rackproof.remote.command import CommandResult


@dataclass(frozen=True)
class State:
    """A client's state, and what its mounts have to be of: addresses of servers, and FSIDs of Ceph."""

    client: ClientState
    addresses: tuple[str, ...]
    fsids: tuple[str, ...] = ()


class StatesAround:
    """States of clients and servers before and after a run."""

    before: Mapping[str, CommandResult]
    after: dict[str, CommandResult]
    servers_before: Mapping[str, CommandResult]
    """State of each server before the run; empty where none was asked."""
    servers_after: dict[str, CommandResult]

    @cached_property
    def served(self) -> Served | str | None:
        """Bytes that the servers read and sent, or why they are unknown; None where no server was asked."""
        if not self.servers_before and not self.servers_after:
            return None
        try:
            return served_between(self._servers_from(), self.servers_after)
        except ParseError as error:
            return str(error)

    def _servers_from(self) -> Mapping[str, CommandResult]:
        """State of each server from which its bytes count. Raises ParseError."""
        return self.servers_before

    def state(self, node: str, when: str) -> State:
        """State of a node. Raises ParseError if it is unknown."""
        return state_of_node((self.before if when == BEFORE else self.after).get(node), node, when)


@dataclass
class Run(StatesAround):
    """One measured run of fio."""

    launch: Launch
    before: Mapping[str, CommandResult]
    """State by node, after caches were dropped."""
    drops: tuple[CommandResult, ...]
    """Answers of servers that dropped their caches."""
    layouts: Mapping[tuple[str, str], Launch]
    """Last run before this one that wrote the files, by node and directory."""
    after: dict[str, CommandResult] = field(default_factory=dict)
    servers_before: Mapping[str, CommandResult] = field(default_factory=dict)
    servers_after: dict[str, CommandResult] = field(default_factory=dict)
    in_ramp: dict[str, CommandResult] = field(default_factory=dict)
    """Counters of clients and servers around the end of a ramp, by node; empty without a ramp, and in evidence of
    earlier versions."""

    def _servers_from(self) -> Mapping[str, CommandResult]:
        return self._servers_at_ramp_end or self.servers_before

    @cached_property
    def fio_bytes(self) -> int:
        """Bytes that fio's clients read together; fio does not count those of a ramp."""
        return sum(entry.read.io_bytes for entry in self.launch.entries.values() if entry.read is not None)

    @property
    def read_s(self) -> float:
        """Seconds in which the first of fio's clients was through with its reads; 0 where none read."""
        reads = (entry.read for entry in self.launch.entries.values())
        return min((read.runtime_ms / 1e3 for read in reads if read is not None and read.io_bytes), default=0.0)

    @property
    def read_bytes(self) -> int | None:
        """All that fio's clients read together in the time that ``served`` is about; None where that has a ramp."""
        ramp = any("ramp_time" in job for job in self.launch.jobs.values())
        return None if ramp and not self._servers_at_ramp_end else self.fio_bytes

    def at_ramp_end(self, node: str) -> tuple[CommandResult, float] | None:
        """A client's last reading before fio began to count, and how much earlier it was, as a share of the counted
        time; None if the ramp's readings have none, or fio does not tell when it began. Raises ParseError for
        unreadable ones."""
        if node not in self.in_ramp:
            raise ParseError("client state", f"{node} was not asked in the ramp")
        return self._last_before(node, self._counted_from_ms(node))

    def _last_before(self, node: str, time_ms: int | None) -> tuple[CommandResult, float] | None:
        """The last reading of a node in the ramp before a time, as for ``at_ramp_end``."""
        answer = self.in_ramp[node]
        if not answer.ok:
            raise ParseError("client state", f"in the ramp: {node}: {answer.why}")
        readings = parse_timed("client state", answer.stdout)
        earlier = [one for one in readings if time_ms is not None and one.time_ms <= time_ms]
        if time_ms is None or not earlier:
            return None
        counted_ms = 1000 * min(int(job["runtime"]) for job in self.launch.jobs.values())
        return replace(answer, stdout=earlier[-1].text), (time_ms - earlier[-1].time_ms) / counted_ms

    def _counted_from_ms(self, node: str) -> int | None:
        """When fio began to count, by the client's clock: it sets ``job_start`` again at the end of a ramp
        (``reset_all_stats`` in libfio.c)."""
        entry = self.launch.entries.get(node)
        return None if entry is None else entry.start_ms

    def tells_start(self, node: str) -> bool:
        """Whether fio tells when it began to count on a client."""
        return self._counted_from_ms(node) is not None

    @cached_property
    def _servers_at_ramp_end(self) -> dict[str, CommandResult]:
        """Each server's last reading before the first client began to count; empty without a recent one of all servers.
        Raises ParseError for unreadable ones."""
        if not self.servers_before or not self.servers_before.keys() <= self.in_ramp.keys():
            return {}
        times = [self._counted_from_ms(node) for node in self.launch.jobs]
        earliest = min((time - _CLOCKS_MS for time in times if time is not None), default=None)
        if None in times:
            return {}
        readings = {node: self._last_before(node, earliest) for node in self.servers_before}
        recent = {node: one[0] for node, one in readings.items() if one is not None and one[1] <= RECENT}
        return recent if len(recent) == len(readings) else {}

    @property
    def servers_dropped(self) -> bool | None:
        """Whether all servers dropped their caches; None without a command on servers."""
        return all(answer.ok for answer in self.drops) if self.drops else None

    def layout(self, node: str) -> tuple[str, Launch] | None:
        """The client that wrote the files which a node's job uses, and the run that did; None if nothing wrote them.

        It is the node itself, except in runs that read the files of others.
        """
        job = self.launch.jobs[node]
        directory = job["directory"]
        owners = [node]
        if job["name"].endswith(BORROWED):
            owners = [owner for owner, written in self.layouts if written == directory]
        return next(
            ((owner, self.layouts[owner, directory]) for owner in owners if (owner, directory) in self.layouts), None
        )


_CLOCKS_MS = 500
"""Largest difference between the clocks of a client and a server, which the deploy keeps together."""

RECENT = 0.05
"""Largest share of the counted time by which a reading may be earlier, so that it stands for the ramp's end."""


def state_in(answer: CommandResult, when: str) -> State:
    """Parse a client's state. Raises ParseError."""
    if not answer.ok:
        raise ParseError("client state", f"{when} the run: {answer.why}")
    asked = state_of(answer.command)
    words = asked[1] if asked else ()
    fsids = tuple(word.removeprefix(FSID) for word in words if word.startswith(FSID))
    return State(parse_client_state(answer.stdout), tuple(w for w in words if not w.startswith(FSID)), fsids)


def state_of_node(answer: CommandResult | None, node: str, when: str) -> State:
    """As ``state_in``, of a node that may not have been asked. Raises ParseError."""
    if answer is None:
        raise ParseError("client state", f"{node} was not asked {when} the run")
    return state_in(answer, when)


def is_layout(command: str) -> bool:
    """Whether a command writes files that later steps of the storage read."""
    return f"{SUFFIX}]" in command and is_launch(command)


def runs_of(answers: Iterable[CommandResult]) -> list[Run]:
    """All measured runs, in order."""
    runs: list[Run] = []
    layouts: dict[tuple[str, str], Launch] = {}
    before: dict[str, CommandResult] = {}
    drops: list[CommandResult] = []
    servers: dict[str, CommandResult] = {}
    for answer in answers:
        if asked := state_of(answer.command):
            if asked[0] == BEFORE:
                before[answer.node] = answer
            elif asked[0] == RAMP:
                if runs:
                    runs[-1].in_ramp[answer.node] = answer
            elif asked[0] == AFTER and runs:  # a later one looks at the mounts of files that are written next
                runs[-1].after.setdefault(answer.node, answer)
        elif answer.command == DROP:
            drops.append(answer)
        elif answer.command == server_state(BEFORE):
            servers[answer.node] = answer
        elif answer.command == server_state(AFTER):
            if runs:
                runs[-1].servers_after[answer.node] = answer
        elif is_server_in_ramp(answer.command):
            if runs:
                runs[-1].in_ramp[answer.node] = answer
        else:
            for launch in launches([answer]):
                if is_layout(answer.command):
                    layouts |= {(node, job["directory"]): launch for node, job in launch.jobs.items()}
                else:
                    runs.append(Run(launch, before, tuple(drops), dict(layouts), servers_before=servers))
                    before, drops, servers = {}, [], {}
    return runs


def last_with_same_clients(runs: Sequence[Run]) -> list[Run]:
    """Runs with the clients of the last run; runs before a client was lost do not count."""
    return [run for run in runs if run.launch.clients == runs[-1].launch.clients]


def out_of_order(runs: Sequence[Run]) -> bool:
    """Whether fio's times contradict the order of the runs, except failed ones."""
    times = [run.launch.result.timestamp_ms or 0 for run in runs if run.launch.answer.ok]
    return times != sorted(times)
