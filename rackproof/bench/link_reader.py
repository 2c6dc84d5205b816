"""Samples of links: the clients' outputs of ib_write_bw, ib_write_lat and iperf3."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rackproof.bench.reading import Read, Reading
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement
from rackproof.parse import ParseError, iperf3, perftest
from rackproof.remote.command import CommandResult

AGREEMENT = 0.02
"""Tolerance of a rate against bytes over seconds, as a share."""
Words = Sequence[str]
"""A command's words."""


def rdma_gbps(text: str, words: Words) -> float:
    """Gb/s; perftest's own unit has more digits on a slow link."""
    report = perftest.parse_bandwidth(text)
    _is_perftest(report.conditions, "RDMA_Write BW", words)
    return report.rows[-1].average_bits_per_s / 1e9


def rdma_us(text: str, words: Words) -> float:
    report = perftest.parse_latency(text)
    _is_perftest(report.conditions, "RDMA_Write Latency", words)
    row = report.rows[-1]
    if row.typical_us is None:
        raise ParseError("ib_write_lat", "the row has no typical latency")
    return row.typical_us


def _is_perftest(conditions: perftest.Conditions, test: str, words: Words) -> None:
    """Raises ParseError where the output is of another test or device than the command's."""
    if conditions.test not in (None, test):
        raise ParseError(words[0], f"expected {test}, actual {conditions.test}")
    device = words[words.index("-d") + 1] if "-d" in words[:-1] else None
    if conditions.device not in (None, device):
        raise ParseError(words[0], f"expected device {device}, actual {conditions.device}")


def tcp_gbps(text: str, words: Words) -> float:
    """Gb/s that arrived."""
    result = iperf3.parse_iperf3(text)
    peer = words[words.index("-c") + 1] if "-c" in words[:-1] else None
    if result.server not in (None, peer):
        raise ParseError(words[0], f"expected a connection to {peer}, actual {result.server}")
    expected = result.received_bytes * 8 / result.received_seconds
    if abs(result.received_bits_per_s - expected) > AGREEMENT * expected:
        raise ParseError(words[0], f"{result.received_bits_per_s:g} bit/s contradicts its bytes and seconds")
    return result.received_bits_per_s / 1e9


_TOOLS: dict[str, tuple[str, Callable[[str, Words], float]]] = {
    "link.rdma_write_bandwidth": ("ib_write_bw", rdma_gbps),
    "link.rdma_write_latency": ("ib_write_lat", rdma_us),
    "link.tcp_bandwidth": ("iperf3", tcp_gbps),
}
"""Metric: its program, and the number of a client's output and command."""


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
        return Reading(tuple(number(a.text, a.command.split()) for a in runs), tuple(runs), conditions)

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
