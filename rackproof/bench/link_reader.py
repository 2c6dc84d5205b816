"""Samples of links: the clients' outputs of ib_write_bw, ib_write_lat and iperf3."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rackproof.bench.reading import Read, Reading
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement
from rackproof.parse import ParseError, iperf3, perftest
from rackproof.remote.command import CommandResult


def rdma_gbps(text: str) -> float:
    """Gb/s; perftest's own unit has more digits on a slow link."""
    return perftest.parse_bandwidth(text).rows[-1].average_bits_per_s / 1e9


def rdma_us(text: str) -> float:
    row = perftest.parse_latency(text).rows[-1]
    if row.typical_us is None:
        raise ParseError("ib_write_lat", "the row has no typical latency")
    return row.typical_us


def tcp_gbps(text: str) -> float:
    return iperf3.parse_iperf3(text).received_bits_per_s / 1e9


_TOOLS: dict[str, tuple[str, Callable[[str], float]]] = {
    "link.rdma_write_bandwidth": ("ib_write_bw", rdma_gbps),
    "link.rdma_write_latency": ("ib_write_lat", rdma_us),
    "link.tcp_bandwidth": ("iperf3", tcp_gbps),
}
"""Metric: its program, and what the client's output says."""


def read_links(answers: Sequence[CommandResult], architecture: Architecture) -> Read:
    """One sample per run of a pair's client; the first member serves, the second is the client."""
    by_node: dict[str, list[CommandResult]] = {}
    for answer in answers:
        by_node.setdefault(answer.node, []).append(answer)

    def read(measurement: Measurement) -> Reading:
        server, client = measurement.members
        program, number = _TOOLS[measurement.metric]
        runs = [a for a in by_node.get(client, []) if a.command.split()[:1] == [program]]
        if not runs:
            raise ParseError(program, f"no run of it on {client}")
        _is_of_rail(runs, program, measurement, architecture)
        for answer in runs:
            if not answer.ok:
                raise ParseError(program, answer.why)
        conditions = {"server": server, "client": client, "command": runs[0].command}
        return Reading(tuple(number(answer.text) for answer in runs), tuple(runs), conditions)

    return read


def _is_of_rail(
    runs: Sequence[CommandResult], program: str, measurement: Measurement, architecture: Architecture
) -> None:
    """Raises ParseError where the runs used another device than that of the measurement's rail, or several."""
    if len({answer.command for answer in runs}) > 1:
        raise ParseError(program, "its runs had different commands")
    rail, words = measurement.labels.get("rail", ""), runs[0].command.split()
    if architecture.fabric is not None and "-d" in words[:-1]:
        expected, actual = f"{architecture.fabric.rdma_prefix}{rail}", words[words.index("-d") + 1]
        if actual != expected:
            raise ParseError(program, f"expected device {expected} of rail {rail}, actual {actual}")
