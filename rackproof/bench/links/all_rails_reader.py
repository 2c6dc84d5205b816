"""Samples of all adapters of a node at once, with proof that they sent at the same time. Pure.

Clients and servers print when they begin and when they end, by their node's clock, which is the same for all adapters
of a node. Traffic lasts as long as the tool is told to; before it a process connects, and registers memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from rackproof.bench.links.figures import ALONE, TO, Figure, figure_of, reliable, with_server_memory
from rackproof.bench.links.placement import bound_as_placed
from rackproof.bench.links.run_proof import Run, proven
from rackproof.bench.port_proof import counters_of, fabric_of, readings_of
from rackproof.bench.reading import Reading, of_every
from rackproof.core.architecture import Architecture, Fabric
from rackproof.core.evidence import Measurement
from rackproof.core.wording import significant
from rackproof.parse import Mismatch, ParseError, Unreliable
from rackproof.parse.clocks import times_in
from rackproof.remote.command import CommandResult

_TOOL: Final = "perftest"
LEAST_BESIDE: Final = 0.9
"""Least share of the time that perftest counts in which all adapters of a node must have sent, and received. perftest
counts without the first and the last quarter of its duration, in whole seconds (perftest_parameters.c, margin): so
adapters may begin that much apart, and their figures are still of all adapters at once."""
FROM: Final = "  # from "
"""Comment at the end of a server's command, before the client's name."""
_STAMP: Final = "date +%s.%N >&2; "
_DEVICE: Final = re.compile(r" -d (\S+) ")


def timed(command: str, comment: str) -> str:
    """The command, which prints its beginning and its end to stderr, seconds since the epoch."""
    return f"{_STAMP}{command}; ended=$?; {_STAMP}exit $ended{comment}"


class Volley(NamedTuple):
    """One run of all adapters of a node; answers by rail, counters of server and client, before and after."""

    sent: Sequence[CommandResult]
    received: Sequence[CommandResult]
    counters: Sequence[tuple[CommandResult, CommandResult]]


def read_all_rails(measurement: Measurement, answers: Sequence[CommandResult], architecture: Architecture) -> Reading:
    """One sample of an adapter per reliable run. Raises ParseError, Mismatch or Unreliable without a number."""
    nodes, volleys = _volleys(measurement, answers, architecture)
    nic = int(measurement.members[0].partition("/nic")[2])
    runs = reliable(volleys, lambda volley: _proven(volley, measurement.metric, nodes, architecture)[nic], _TOOL)
    command = volleys[0].sent[nic].command
    conditions: dict[str, Any] = {"server": nodes[0], "client": nodes[1], "command": command}
    port = f"{architecture.fabric.interface_prefix if architecture.fabric else ''}{nic}"
    ends = ((nodes[0], volleys[0].received), (nodes[1], volleys[0].sent))
    (_, at_server), (bound, at_client) = (
        bound_as_placed(tests[nic].command, port, (answer for answer in answers if answer.node == node))
        for node, tests in ends
    )
    conditions |= {"adapters": len(volleys[0].sent)} | bound | dict(runs[0].conditions)
    if len(runs) < len(volleys):
        conditions["unreliable_runs"] = len(volleys) - len(runs)
    used = [
        at_server,
        at_client,
        *(a for v in volleys for a in (*v.sent, *v.received, *(c for pair in v.counters for c in pair))),
    ]
    return Reading(
        tuple(run.values[ALONE[measurement.metric]] for run in runs),
        tuple({id(answer): answer for answer in used}.values()),
        conditions,
        of_every([run.companions for run in runs]),
    )


def check_last(measurement: Measurement, answers: Sequence[CommandResult], architecture: Architecture) -> None:
    """Raises what ``read_all_rails`` would raise for the last run alone."""
    nodes, volleys = _volleys(measurement, answers, architecture)
    _proven(volleys[-1], measurement.metric, nodes, architecture)


def _volleys(
    measurement: Measurement, answers: Sequence[CommandResult], architecture: Architecture
) -> tuple[tuple[str, str], list[Volley]]:
    """Server and client, and their runs in order."""
    fabric, client = fabric_of(architecture, _TOOL), measurement.members[0].partition("/")[0]
    if measurement.members[0] not in {f"{client}/nic{rail}" for rail in range(fabric.rails)}:
        raise ParseError(_TOOL, f"the fabric has no adapter {measurement.members[0]}")
    own = [answer for answer in answers if answer.command.startswith(_STAMP)]
    tests = [answer for answer in own if answer.node == client and TO in answer.command]
    servers = [answer for answer in own if answer.command.endswith(f"{FROM}{client}")]
    partners = {answer.command.partition(TO)[2] for answer in tests}
    if len(partners) != 1 or partners != {answer.node for answer in servers}:
        raise ParseError(_TOOL, f"expected one partner of {client}, actual {', '.join(sorted(partners)) or 'none'}")
    nodes = (partners.pop(), client)
    by_rail = [_by_rail(of_end, fabric) for of_end in (tests, servers)]
    runs = len(by_rail[0][0])
    if any(len(of_rail) != runs for of_end in by_rail for of_rail in of_end):
        raise ParseError(_TOOL, f"the adapters of {client} have different numbers of runs")
    if len({answer.command for answer in tests}) != fabric.rails:
        raise ParseError(_TOOL, "its runs had different commands")
    readings = [readings_of(answer for answer in answers if answer.node == node) for node in nodes]
    for of_node in readings:
        if len(of_node) != runs + 1:
            raise ParseError("port counters", f"expected {runs + 1} readings for {runs} runs, actual {len(of_node)}")
    return nodes, [
        Volley(
            [of_rail[number] for of_rail in by_rail[0]],
            [of_rail[number] for of_rail in by_rail[1]],
            [(of_node[number], of_node[number + 1]) for of_node in readings],
        )
        for number in range(runs)
    ]


def _by_rail(answers: Sequence[CommandResult], fabric: Fabric) -> list[list[CommandResult]]:
    rails = {f"{fabric.rdma_prefix}{rail}": rail for rail in range(fabric.rails)}
    by_rail: list[list[CommandResult]] = [[] for _ in rails]
    for answer in answers:
        device = _DEVICE.search(answer.command)
        if device is None or device[1] not in rails:
            raise ParseError(_TOOL, f"{answer.node}: its command names no device of the fabric")
        by_rail[rails[device[1]]].append(answer)
    return by_rail


def _proven(volley: Volley, metric: str, nodes: tuple[str, str], architecture: Architecture) -> list[Run]:
    """One run of every adapter. If one adapter has no result, none has: the others ran without its load."""
    fabric = fabric_of(architecture, _TOOL)
    figures: list[Figure] = []
    for rail, test in enumerate(volley.sent):
        try:
            figure = figure_of(test, architecture)
            if ALONE[metric] not in figure.values:
                raise Mismatch(_TOOL, f"expected {ALONE[metric]}, actual {', '.join(figure.values)}")
        except (Mismatch, Unreliable, ParseError) as error:
            raise type(error)(_TOOL, f"nic{rail} of {nodes[1]}: {error.reason}") from None
        figures.append(figure)
    for rail, server in enumerate(volley.received):
        if not server.ok:
            raise ParseError(_TOOL, f"nic{rail} of {nodes[0]}: {server.why}")
        try:
            figures[rail] = with_server_memory(figures[rail], server)
        except (Mismatch, ParseError) as error:
            raise type(error)(_TOOL, f"nic{rail} of {nodes[0]}: {error.reason}") from None
    words = volley.sent[0].command.split()
    seconds = float(words[words.index("-D") + 1])
    common = min(_sending(nodes[1], volley.sent, seconds), _receiving(nodes[0], volley.received, seconds))
    before, after = ((counters_of(volley.counters[0][when]), counters_of(volley.counters[1][when])) for when in (0, 1))
    runs = [proven(_TOOL, rail, nodes, figure, (before, after), fabric) for rail, figure in enumerate(figures)]
    return [run._replace(companions=run.companions | {"overlap_s": common}) for run in runs]


def _sending(node: str, tests: Sequence[CommandResult], seconds: float) -> float:
    """Minimum seconds in which all adapters sent: traffic starts at the latest one duration before its process ends,
    and ends at the earliest one duration after its process starts. Raises Unreliable for too few."""
    times = [_times(node, rail, test, seconds) for rail, test in enumerate(tests)]
    last = max(range(len(times)), key=lambda rail: times[rail][1])
    return _enough(node, f"nic{last} ended last", 2 * seconds + min(t[0] for t in times) - times[last][1], seconds)


def _receiving(node: str, servers: Sequence[CommandResult], seconds: float) -> float:
    """Seconds in which all received: servers begin to listen earlier, and end with their traffic."""
    times = [_times(node, rail, server, seconds) for rail, server in enumerate(servers)]
    first = min(range(len(times)), key=lambda rail: times[rail][1])
    began = max(max(begin, end - seconds) for begin, end in times)
    return _enough(node, f"nic{first} ended first", times[first][1] - began, seconds)


def _enough(node: str, which: str, common: float, seconds: float) -> float:
    margin = seconds // 4
    counted = seconds - 2 * margin
    beside = max(0.0, min(counted, common - margin))
    if beside < LEAST_BESIDE * counted:
        raise Unreliable(
            _TOOL,
            f"{node}: all adapters together were busy for {significant(beside)} of the {counted:g} s that count:"
            f" {which}",
        )
    return common


def _times(node: str, rail: int, answer: CommandResult, seconds: float) -> tuple[float, float]:
    """Beginning and end of a process."""
    times = times_in(answer.stderr.decode(errors="replace"))
    if len(times) != 2:
        raise ParseError(_TOOL, f"nic{rail} of {node}: it does not report when it began and ended")
    begin, end = times
    if end - begin < 0.95 * seconds:
        raise Unreliable(_TOOL, f"nic{rail} of {node}: it ended after {significant(end - begin)} of {seconds:g} s")
    return begin, end
