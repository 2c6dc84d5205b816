"""Samples of TCP from all clients of a storage at once, with proof by mounts and port counters. Pure.

The figure is the sum of what iperf3's servers received, times duration over duration plus lag. The lag is the time
between the first client's start and the last one's, by the clients' clocks, which the deploy keeps together: with it
the figure is never more than all bytes over the whole time. The clients wait for a common moment; where the lag is
large nevertheless, the figure is a lower bound.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rackproof.bench.links.figures import TCP_BANDWIDTH, TO_STORAGE, Figure, figure_of, reliable
from rackproof.bench.links.run_proof import Run
from rackproof.bench.port_proof import Moved, by_interface, counters_of, prove, readings_of
from rackproof.bench.reading import Reading, of_every
from rackproof.bench.storage.commands import AFTER, state_of
from rackproof.bench.storage.conditions import mounts_text
from rackproof.bench.storage.proof import check_around, mounts_of
from rackproof.bench.storage.runs import State, state_of_node
from rackproof.core.architecture import Architecture, Storage
from rackproof.core.evidence import Measurement
from rackproof.core.metrics import AT_LEAST
from rackproof.core.wording import significant
from rackproof.parse import ParseError, Unreliable
from rackproof.parse.clocks import parse_beginning
from rackproof.parse.mounted import server_of
from rackproof.remote.command import CommandResult

TOOL: Final = "iperf3"
MOST_LAG: Final = 0.2
"""Largest lag as a share of the duration; with a larger one the clients hardly sent together."""
EVEN: Final = 0.01
"""Largest lag as a share of the duration with which the figure is no lower bound: it lowers the figure by 1 %."""
MOST_WAIT_S: Final = 60
"""A client does not wait longer for the common moment: its clock may be wrong."""
_STARTS: Final = f"date +%s.%N >&2; exec {TOOL} "
_WAIT: Final = re.compile(r"now=\$\(date \+%s\.%N\) && sleep .*? \}'\)\"; ")
_PORTS: Final = re.compile(r"  # from (\S+) to ([^\s/]+)/(\S+)$")


def client_command(options: str, port: str, server: str, server_port: str) -> str:
    """Command of iperf3 with these options that prints its start, seconds since the epoch, to stderr. A comment names
    the client's port, and the server with its port."""
    return f"{_STARTS}{options}  # from {port} to {server}/{server_port}"


def waiting(command: str, moment: float | None) -> str:
    """The command, begun at a moment: seconds since the epoch by the node's clock; at once without or after it."""
    if moment is None:
        return command
    left = f'BEGIN {{ s = at - now; printf "%.3f", (s > 0 && s < {MOST_WAIT_S}) ? s : 0 }}'
    return f"""now=$(date +%s.%N) && sleep "$(LC_ALL=C awk -v at={moment:.3f} -v "now=$now" '{left}')"; {command}"""


def at_once(command: str) -> str:
    """A command of ``waiting`` without its moment, which differs from run to run."""
    wait = _WAIT.match(command)
    return command[wait.end() :] if wait else command


def is_client(command: str) -> bool:
    """Whether a command is one of ``client_command``."""
    return at_once(command).startswith(_STARTS)


@dataclass
class Volley:
    """All clients at once, with mounts and counters by node, before and after."""

    counters: Mapping[str, CommandResult]
    mounts: Mapping[str, CommandResult]
    tests: list[CommandResult] = field(default_factory=list)
    counters_after: dict[str, CommandResult] = field(default_factory=dict)
    mounts_after: dict[str, CommandResult] = field(default_factory=dict)

    @property
    def answers(self) -> tuple[CommandResult, ...]:
        """Answers of this run; no two of them print the same, as two readings of mounts may."""
        every = (*self.counters.values(), *self.counters_after.values())
        return (*self.tests, *every)


def volleys_of(answers: Iterable[CommandResult]) -> list[Volley]:
    """All volleys in a step's answers, in order."""
    volleys: list[Volley] = []
    counters: dict[str, CommandResult] = {}
    mounts: dict[str, CommandResult] = {}
    for answer in answers:
        last = volleys[-1] if volleys else None
        if is_client(answer.command):
            if last is None or last.counters_after or last.mounts_after:
                last = Volley(dict(counters), dict(mounts))
                volleys.append(last)
            last.tests.append(answer)
        elif readings_of([answer]):
            counters[answer.node] = answer
            if last is not None:
                last.counters_after[answer.node] = answer
        elif state_of(answer.command):
            mounts[answer.node] = answer
            if last is not None:
                last.mounts_after[answer.node] = answer
    for volley in volleys:  # recorded in the order of their ends
        volley.tests.sort(key=lambda test: (test.node, test.command))
    return volleys


def read_fan_in(measurement: Measurement, answers: Sequence[CommandResult], architecture: Architecture) -> Reading:
    """One sample per reliable volley. Raises ParseError, Mismatch or Unreliable without a number."""
    storage = architecture.storage[measurement.labels["storage"]]
    volleys = volleys_of(answers)
    if not volleys:
        raise ParseError(TOOL, "no run of it")
    results = reliable(volleys, lambda volley: _proven(volley, measurement.members, storage, architecture), TOOL)
    conditions = results[0].conditions
    if any(result.conditions != conditions for result in results):
        raise ParseError(TOOL, "its runs had different commands or mounts")
    if len(volleys) > len(results):
        conditions = {**conditions, "unreliable_runs": len(volleys) - len(results)}
    lag = max(result.companions["start_lag_s"] for result in results)
    seconds = float(_option(volleys[0].tests[0], "-t"))
    if lag > EVEN * seconds:
        late = f"the last client began {significant(lag)} s after the first, a run takes {seconds:g} s"
        conditions = {**conditions, AT_LEAST: f"{late}: raise tcp_duration_s of the profile's links"}
    return Reading(
        tuple(result.values[TO_STORAGE] for result in results),
        tuple({id(answer): answer for volley in volleys for answer in volley.answers}.values()),
        conditions,
        of_every([result.companions for result in results]),
    )


def check_last(
    answers: Sequence[CommandResult], clients: Sequence[str], storage: Storage, architecture: Architecture
) -> None:
    """Raises what ``read_fan_in`` would raise for the last volley alone."""
    _proven(volleys_of(answers)[-1], clients, storage, architecture)


def targets_in(storage: Storage, state: State) -> tuple[str, ...]:
    """Addresses that a client's data goes to: those of its NFS mounts; for other storages all of the servers'."""
    if storage.class_ != "nfs":
        return tuple(dict.fromkeys(state.addresses))
    return tuple(dict.fromkeys(server_of(mount) for mount in mounts_of(storage, state) if mount is not None))


def _proven(volley: Volley, clients: Sequence[str], storage: Storage, architecture: Architecture) -> Run:
    states = [
        (node, when, state_of_node(by_node.get(node), node, when))
        for node in clients
        for when, by_node in (("before", volley.mounts), (AFTER, volley.mounts_after))
    ]
    for (_, _, before), (_, _, after) in zip(states[::2], states[1::2], strict=True):
        check_around(storage, before, after)
    used: dict[str, list[str]] = {}
    figures: list[tuple[CommandResult, Figure]] = []
    for test in volley.tests:
        if not test.ok:
            raise ParseError(TOOL, f"{test.node}: {test.why}")
        used.setdefault(test.node, []).append(_option(test, "-c"))
        figures.append((test, figure_of(test, architecture)))
    for node, when, state in states:
        if sorted(used.get(node, ())) != sorted(targets_in(storage, state)):
            wanted, sent = (", ".join(names) or "nothing" for names in (targets_in(storage, state), used.get(node, ())))
            raise ParseError(TOOL, f"{node}: {when} the run its data goes to {wanted}, iperf3 sent to {sent}")
    if further := used.keys() - set(clients):
        raise ParseError(TOOL, f"{', '.join(sorted(further))} took part besides the clients")
    if len({(_option(test, "-t"), _option(test, "-P")) for test in volley.tests}) > 1:
        raise ParseError(TOOL, "its clients had different options")
    counted = _prove_ports(volley, figures)
    seconds, starts = float(_option(volley.tests[0], "-t")), [_start(test) for test in volley.tests]
    lag = max(starts) - min(starts)
    if lag > MOST_LAG * seconds:
        raise Unreliable(
            TOOL, f"the last client began {significant(lag)} s after the first, the test takes {seconds:g} s"
        )
    rate = sum(figure.values[TCP_BANDWIDTH] for _, figure in figures) * seconds / (seconds + lag)
    by_node: dict[str, set[str]] = {}
    for test in volley.tests:
        _, server, port = _ports(test)
        by_node.setdefault(server, set()).add(port)
    conditions = {
        "clients": len(clients),
        "command": at_once(volley.tests[0].command),
        "mount": mounts_text(storage, [state for _, _, state in states]),
        "ports_per_storage_node": max(map(len, by_node.values())),
        "storage_ports": sum(map(len, by_node.values())),
    }
    companions = {
        "application_bytes": float(sum(figure.payload_bytes for _, figure in figures)),
        "counter_bytes": float(counted),
        "start_lag_s": lag,
    }
    return Run({TO_STORAGE: rate}, companions, conditions)


def _prove_ports(volley: Volley, figures: Sequence[tuple[CommandResult, Figure]]) -> int:
    """Bytes that the servers' ports counted. Raises Mismatch if a port of either end counted less than iperf3."""
    sent: dict[tuple[str, str], int] = {}
    received: dict[tuple[str, str], int] = {}
    for test, figure in figures:
        own, server, port = _ports(test)
        sent[test.node, own] = sent.get((test.node, own), 0) + figure.payload_bytes
        received[server, port] = received.get((server, port), 0) + figure.payload_bytes
    for (node, port), needed in sent.items():
        prove(TOOL, f"{port} of {node}", "sent", needed, _moved(volley, node, port).sent_bytes)
    total = 0
    for (node, port), needed in received.items():
        counted = _moved(volley, node, port).received_bytes
        prove(TOOL, f"{port} of {node}", "received", needed, counted)
        total += counted
    return total


def _moved(volley: Volley, node: str, port: str) -> Moved:
    pair = [by_node.get(node) for by_node in (volley.counters, volley.counters_after)]
    if pair[0] is None or pair[1] is None:
        raise ParseError("port counters", f"{node} was not asked before and after the run")
    return by_interface(counters_of(pair[0]), counters_of(pair[1]), port)


def _ports(test: CommandResult) -> tuple[str, str, str]:
    """Port of the client, server, and port of the server."""
    match = _PORTS.search(test.command)
    if match is None:
        raise ParseError(TOOL, f"{test.node}: its command names no ports")
    return match[1], match[2], match[3]


def _option(test: CommandResult, name: str) -> str:
    words = shlex.split(test.command)
    if name not in words[:-1]:
        raise ParseError(TOOL, f"{test.node}: its command line has no {name}")
    return words[words.index(name) + 1]


def _start(test: CommandResult) -> float:
    """Seconds since the epoch, by the client's clock."""
    try:
        return parse_beginning(TOOL, test.stderr.decode(errors="replace"))
    except ParseError as error:
        raise ParseError(TOOL, f"{test.node}: {error.reason}") from None
