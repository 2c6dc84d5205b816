"""Samples of links, with proof of their traffic by the port counters of both ends, and samples of pings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from rackproof.bench.links.all_rails_reader import read_all_rails
from rackproof.bench.links.fan_in_reader import read_fan_in
from rackproof.bench.links.figures import (
    ALONE,
    OF_GPU,
    PROGRAMS,
    TCP_BANDWIDTH,
    TO,
    TO_STORAGE,
    figure_of,
    is_server,
    reliable,
    with_server_memory,
)
from rackproof.bench.links.placement import bound_as_placed
from rackproof.bench.links.run_proof import Ends, Run, proven
from rackproof.bench.port_proof import counters_of, fabric_of, readings_of
from rackproof.bench.reading import Read, Reading, of_every, reader, with_preamble
from rackproof.core.architecture import Architecture, Fabric
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.grouping import grouped
from rackproof.core.programs import packaged
from rackproof.parse import Mismatch, ParseError
from rackproof.parse.ping import Ping, parse_ping
from rackproof.remote.command import CommandResult
from rackproof.remote.command import program as program_of

LOSS, ROUND_TRIP = "link.loss", "link.round_trip"
PINGS: Final = 200
"""Packets per ping: a resolution of 0.5 % within a second."""


@reader("links-proven")
@with_preamble
def read_links(answers: Sequence[CommandResult], architecture: Architecture) -> Read:
    """One sample per reliable run of a pair; the first member is the server, the second the client."""
    by_node = grouped((answer.node, answer) for answer in answers)

    def read(measurement: Measurement) -> Reading:
        if measurement.metric in (LOSS, ROUND_TRIP):
            return _ping(measurement, by_node.get(measurement.members[1], []))
        fabric = fabric_of(architecture, "links")
        if measurement.metric == TO_STORAGE:
            return read_fan_in(measurement, answers, architecture)
        if measurement.metric in ALONE:
            return read_all_rails(measurement, answers, architecture)
        server, client = ends = _nodes(measurement, answers)
        of_both = by_node.get(server, []), by_node.get(client, [])
        return _link(measurement, ends, *of_both, architecture, fabric)

    return read


def _nodes(measurement: Measurement, answers: Sequence[CommandResult]) -> tuple[str, str]:
    """Server and client. The number of an adapter is the client's; a comment of its command names the server."""
    if measurement.scope is not Scope.NIC:
        server, client = measurement.members
        return server, client
    client, _, nic = measurement.members[0].partition("/")
    if nic != f"nic{measurement.labels.get('rail')}":
        raise ParseError("links", f"expected the adapter of rail {measurement.labels.get('rail')}, actual {nic}")
    servers = {a.command.partition(TO)[2] for a in answers if a.node == client and TO in a.command}
    if len(servers) != 1:
        raise ParseError("links", f"expected one partner of {client}, actual {len(servers)}")
    return servers.pop(), client


def _link(
    measurement: Measurement,
    nodes: tuple[str, str],
    of_server: Sequence[CommandResult],
    of_client: Sequence[CommandResult],
    architecture: Architecture,
    fabric: Fabric,
) -> Reading:
    program, rail = PROGRAMS[measurement.metric], _rail(measurement, fabric)
    answers = [a for a in of_client if _is_of(program, a.command) and not is_server(a.command)]
    servers = [a for a in of_server if _is_of(program, a.command) and is_server(a.command)]
    if not answers:
        raise ParseError(program, f"no run of it on {nodes[1]}")
    if len({answer.command for answer in answers}) > 1:
        raise ParseError(program, "its runs had different commands")
    bound: dict[str, Any] = {}
    where: tuple[CommandResult, ...] = ()
    if program != PROGRAMS[TCP_BANDWIDTH]:
        bound, asked = bound_as_placed(answers[0].command, f"{fabric.interface_prefix}{rail}", of_client)
        where = (asked,)
    readings = [readings_of(of_server), readings_of(of_client)]
    of_gpu = measurement.metric in OF_GPU
    if of_gpu and len(servers) != len(answers):
        raise ParseError(program, f"expected {len(answers)} outputs of the server {nodes[0]}, actual {len(servers)}")

    def prove(run: tuple[int, CommandResult]) -> Run:
        number, answer = run
        figure = figure_of(answer, architecture)
        if of_gpu:
            figure = with_server_memory(figure, servers[number])
        return proven(program, rail, nodes, figure, _ends(readings, number, len(answers)), fabric)

    runs = reliable(enumerate(answers), prove, program)
    if any(measurement.metric not in run.values for run in runs):
        raise ParseError(program, f"nothing counts {measurement.metric} here")
    return Reading(
        tuple(run.values[measurement.metric] for run in runs),
        (*where, *answers, *(servers if of_gpu else ()), *readings[0], *readings[1]),
        _conditions(nodes, answers, runs) | bound,
        of_every([run.companions for run in runs]),
    )


def _is_of(program: str, command: str) -> bool:
    return packaged(program_of(command)) == program


def _conditions(nodes: tuple[str, str], answers: Sequence[CommandResult], runs: Sequence[Run]) -> dict[str, Any]:
    server, client = nodes
    own: dict[str, Any] = {"server": server, "client": client, "command": answers[0].command}
    if len(answers) > len(runs):
        own["unreliable_runs"] = len(answers) - len(runs)
    return own | dict(runs[0].conditions)


def _ends(readings: Sequence[Sequence[CommandResult]], number: int, runs: int) -> tuple[Ends, Ends]:
    """Counters of both ends, before and after a run."""
    for of_node in readings:
        if len(of_node) != runs + 1:
            raise ParseError("port counters", f"expected {runs + 1} readings for {runs} runs, actual {len(of_node)}")
    of_server, of_client = readings
    before, after = ((counters_of(of_server[at]), counters_of(of_client[at])) for at in (number, number + 1))
    return before, after


def _rail(measurement: Measurement, fabric: Fabric) -> int:
    rail = measurement.labels.get("rail", "")
    if not rail.isdigit() or int(rail) >= fabric.rails:
        raise ParseError("links", f"expected a rail below {fabric.rails}, actual {rail[:20]!r}")
    return int(rail)


def _ping(measurement: Measurement, of_client: Sequence[CommandResult]) -> Reading:
    """Loss in percent, or the minimum round trip in the metric's unit (us)."""
    server, client = measurement.members
    runs = [a for a in of_client if a.command.startswith("ping ") and a.command.endswith(f"{TO}{server}")]
    if len(runs) != 1:
        raise ParseError("ping", f"expected one run to {server} on {client}, actual {len(runs)}")
    (answer,) = runs
    if answer.rc not in (0, 1):  # 1: packets were lost
        raise ParseError("ping", answer.why)
    ping = parse_ping(answer.text)
    if ping.duplicates:
        raise ParseError("ping", f"{ping.duplicates} duplicate replies: a loop, or two nodes with one address")
    times = [time for time in (ping.fastest_ms, ping.mean_ms, ping.slowest_ms) if time is not None]
    if times != sorted(times):
        raise ParseError("ping", f"round trips contradict each other: {'/'.join(map(str, times))} ms")
    requested = re.search(r" -c (\d+) ", answer.command)
    if requested is None or ping.sent != int(requested[1]):
        raise Mismatch("ping", f"expected {requested[1] if requested else 'a number of'} packets, actual {ping.sent}")
    return Reading(
        (_ping_value(measurement.metric, ping),),
        (answer,),
        {"server": server, "client": client, "command": answer.command, "packets": ping.sent},
        {
            name: (value * 1e3,)
            for name, value in (("round_trip_mean_us", ping.mean_ms), ("round_trip_slowest_us", ping.slowest_ms))
            if value is not None
        },
    )


def _ping_value(metric: str, ping: Ping) -> float:
    if metric == LOSS:
        return ping.lost_pct
    if ping.fastest_ms is None:
        raise ParseError("ping", f"no reply to {ping.sent} packets")
    return ping.fastest_ms * 1e3
