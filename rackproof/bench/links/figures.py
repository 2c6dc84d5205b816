"""Figures of one run of a link tool, verified against its command line."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, TypeVar

from rackproof.bench.port_proof import fabric_of
from rackproof.core.architecture import Architecture, Fabric, LinkProfile
from rackproof.core.programs import packaged
from rackproof.core.wording import exact, significant
from rackproof.parse import Mismatch, ParseError, Unreliable, iperf3, perftest
from rackproof.parse.perftest import BandwidthRow, LatencyRow
from rackproof.remote.command import CommandResult
from rackproof.remote.command import program as program_of

Row = TypeVar("Row")
Attempt = TypeVar("Attempt")
Proven = TypeVar("Proven")

ATTEMPTS: Final = 3
"""Maximum number of runs for one sample, until the tool's figures are reliable."""

RDMA_BANDWIDTH, RDMA_LATENCY, RDMA_RETRIES = (
    "link.rdma_write_bandwidth", "link.rdma_write_latency", "link.rdma_retries",
)  # fmt: skip
RDMA_BOTH, RDMA_READ_LATENCY = "link.rdma_write_bandwidth_both", "link.rdma_read_latency"
BOTH_WAYS: Final = "-b"
GPU_BANDWIDTH: Final = "link.rdma_write_bandwidth_gpu"
LATENCY_BLOCK_BYTES: Final = 2
"""perftest's default for latency, which the kit's commands leave as it is."""
GPU_BLOCK_BYTES: Final = 8 << 20
"""Message size with GPU memory, as in Azure's test of the same adapters."""
GPU_BOTH: Final = f"{GPU_BANDWIDTH}_both"
GPU_READ_LATENCY: Final = f"{RDMA_READ_LATENCY}_gpu"
ALL_RAILS, GPU_ALL_RAILS, BOTH_ALL_RAILS, GPU_BOTH_ALL_RAILS, READ_LATENCY_ALL_RAILS, GPU_READ_LATENCY_ALL_RAILS = (
    f"{alone}_all_rails"
    for alone in (RDMA_BANDWIDTH, GPU_BANDWIDTH, RDMA_BOTH, GPU_BOTH, RDMA_READ_LATENCY, GPU_READ_LATENCY)
)
ALONE: Final = {
    ALL_RAILS: RDMA_BANDWIDTH,
    GPU_ALL_RAILS: GPU_BANDWIDTH,
    BOTH_ALL_RAILS: RDMA_BOTH,
    GPU_BOTH_ALL_RAILS: GPU_BOTH,
    READ_LATENCY_ALL_RAILS: READ_LATENCY_ALL_RAILS,
    GPU_READ_LATENCY_ALL_RAILS: GPU_READ_LATENCY_ALL_RAILS,
}
"""The value that a run gives, by metric of all adapters of a node at once: that of one adapter alone, except for a
latency, which is then the mean over a duration."""
OF_GPU: Final = (
    GPU_BANDWIDTH, GPU_BOTH, GPU_READ_LATENCY, GPU_ALL_RAILS, GPU_BOTH_ALL_RAILS, GPU_READ_LATENCY_ALL_RAILS,
)  # fmt: skip
"""Metrics of GPU memory."""
TO: Final = "  # to "
"""Comment at the end of a client's command, before the peer's name."""
BIND: Final = "bind="
"""How the command of perftest's server begins."""
USE_GPU, USE_DMABUF = "--use_cuda_bus_id", "--use_cuda_dmabuf"
TCP_BANDWIDTH, TCP_RETRANSMITTED = "link.tcp_bandwidth", "link.tcp_retransmitted"
TO_STORAGE: Final = "link.tcp_bandwidth_to_storage"

PROGRAMS: Final = {
    RDMA_BANDWIDTH: "ib_write_bw",
    GPU_BANDWIDTH: "ib_write_bw",
    GPU_BOTH: "ib_write_bw",
    **dict.fromkeys((ALL_RAILS, GPU_ALL_RAILS, BOTH_ALL_RAILS, GPU_BOTH_ALL_RAILS), "ib_write_bw"),
    **dict.fromkeys((READ_LATENCY_ALL_RAILS, GPU_READ_LATENCY, GPU_READ_LATENCY_ALL_RAILS), "ib_read_lat"),
    RDMA_RETRIES: "ib_write_bw",
    RDMA_BOTH: "ib_write_bw",
    RDMA_LATENCY: "ib_write_lat",
    RDMA_READ_LATENCY: "ib_read_lat",
    TCP_BANDWIDTH: "iperf3",
    TCP_RETRANSMITTED: "iperf3",
    TO_STORAGE: "iperf3",
}
"""Program that measures a metric."""


def duration_of(metric: str, sizes: LinkProfile) -> int:
    """Seconds of a test of RDMA by duration. Those of all adapters at once take twice as long as that of one: they
    begin at different moments, and the time when all are busy must have what perftest counts."""
    return (2 if metric in ALONE else 1) * sizes.rdma_duration_s


RDMA_HEADERS_B: Final = 96
"""Bytes that Linux keeps free for headers when it chooses the RDMA MTU of an Ethernet port (``iboe_get_mtu``)."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Figures of one run, and the traffic that they imply on the ports."""

    values: Mapping[str, float]
    """Values by metric."""
    payload_bytes: int
    """Sent by the client and received by the server."""
    packets: int
    """Sent and received by both, at least."""
    rdma: bool
    both: bool = False
    """Whether the server sends and the client receives as many bytes."""
    companions: Mapping[str, float] = field(default_factory=dict)
    conditions: Mapping[str, Any] = field(default_factory=dict)


def is_server(command: str) -> bool:
    """Whether a command is that of perftest's server."""
    return command.startswith(BIND)


def figure_of(answer: CommandResult, architecture: Architecture) -> Figure:
    """Figures of one run of a client.

    Raises ParseError for a failed or unreadable run, Unreliable for figures that another attempt may improve, and
    Mismatch if the tool reports something else than its command line requests.
    """
    program, words = _split(answer.command)
    if not answer.ok:
        raise ParseError(program, answer.why)
    fabric = fabric_of(architecture, program)
    if program != "iperf3" and (complaint := perftest.complaint(answer.text + answer.stderr.decode(errors="replace"))):
        raise Unreliable(program, complaint)
    return _READERS[program](words, answer.text, fabric)


@lru_cache(maxsize=4096)
def _split(command: str) -> tuple[str, tuple[str, ...]]:
    """Program and words of a command. Cached: every adapter's figure needs the runs of all adapters."""
    words, started = shlex.split(command), program_of(command)
    program = packaged(started)
    return program, tuple([program, *words[words.index(started) + 1 :]] if started in words else words)


def _bandwidth(words: Sequence[str], text: str, fabric: Fabric) -> Figure:
    report = perftest.parse_bandwidth(text)
    row = _only(words[0], report.rows)
    both = BOTH_WAYS in words
    conditions = _conditions(words, report.conditions, fabric, f"RDMA_Write {'Bidirectional ' if both else ''}BW")
    _compare(words[0], ("message size in B", _number(words, "-s"), row.bytes))
    _duration(words, row, directions=2 if both else 1)
    moved = row.iterations * row.bytes
    memory = _memory(words, text)
    metric = ((RDMA_BANDWIDTH, RDMA_BOTH), (GPU_BANDWIDTH, GPU_BOTH))[bool(memory)][both]
    conditions |= memory
    return Figure({metric: row.average_bits_per_s / 1e9 / (2 if both else 1)}, moved, 0, True, both, {}, conditions)


def _memory(words: Sequence[str], text: str) -> dict[str, str]:
    """Conditions of a test with GPU memory; empty for one with host memory. Raises Mismatch if it is another one."""
    memory = perftest.parse_gpu_memory(text)
    wanted = "host" if USE_GPU not in words else "DMA-BUF" if USE_DMABUF in words else "peer memory"
    _compare(words[0], ("memory", wanted, memory.path if memory else "host"))
    return {"memory": memory.path, "gpu": memory.gpu} if memory else {}


def with_server_memory(figure: Figure, server: CommandResult) -> Figure:
    """The figure of a test with GPU memory, with the memory that its server used. Raises ParseError without the
    server's whole output, and Mismatch where it used another memory than the client."""
    if "memory" not in figure.conditions:
        return figure
    tool = program_of(server.command)
    if not server.ok:
        raise ParseError(tool, f"the server on {server.node}: {server.why}")
    memory = perftest.parse_gpu_memory(server.text)
    actual = memory.path if memory else "host"
    _compare(tool, (f"memory of the server {server.node}", figure.conditions["memory"], actual))
    at_server = {"server_memory": memory.path, "server_gpu": memory.gpu} if memory else {}
    return replace(figure, conditions={**figure.conditions, **at_server})


def _duration(words: Sequence[str], row: BandwidthRow, directions: int) -> None:
    """Raises Unreliable if iterations and rate contradict the requested duration.

    Iterations are of one direction, the rate is of both. perftest excludes up to a quarter at each end; a late alarm on
    a busy node extends the run.
    """
    seconds, digit = _number(words, "-D"), 0.005 * row.unit.bytes_per_s
    moved = directions * row.iterations * row.bytes
    rate = row.average * row.unit.bytes_per_s
    least, most = moved / (rate + digit), moved / max(rate - digit, 1e-9)
    if least > 2 * seconds + 2 or most < 0.45 * seconds:
        raise Unreliable(
            words[0],
            f"{row.iterations} iterations at {exact(row.average)} {row.unit} take {significant(moved / rate)} s,"
            f" it was told to run for {seconds} s",
        )


def _latency(words: Sequence[str], text: str, fabric: Fabric) -> Figure:
    report = perftest.parse_latency(text)
    row = _only(words[0], report.rows)
    verb, metric = ("Read", RDMA_READ_LATENCY) if words[0] == "ib_read_lat" else ("Write", RDMA_LATENCY)
    conditions = _conditions(words, report.conditions, fabric, f"RDMA_{verb} Latency")
    _compare(words[0], ("message size in B", LATENCY_BLOCK_BYTES, row.bytes))
    payload = row.iterations * row.bytes
    memory = _memory(words, text)
    conditions |= memory
    if memory:
        metric = f"{metric}_gpu"
    if "-D" in words:
        value = _mean_latency(words, row)
        return Figure({f"{metric}_all_rails": value}, payload, row.iterations, True, conditions=conditions)
    _compare(words[0], ("iterations", _number(words, "-n"), row.iterations))
    if row.typical_us is None:
        raise ParseError(words[0], "the row has no typical latency")
    return Figure({metric: row.typical_us}, payload, row.iterations, True, conditions=conditions)


def _mean_latency(words: Sequence[str], row: LatencyRow) -> float:
    """Microseconds of a read by duration, one after another. Raises Unreliable if they do not take that time."""
    seconds, mean = _number(words, "-D"), row.average_us
    if mean is None:
        raise ParseError(words[0], "the row has no average latency")
    taken = row.iterations * mean / 1e6
    if not 0.45 * seconds <= taken <= 2 * seconds + 2:
        raise Unreliable(
            words[0],
            f"{row.iterations} iterations at {exact(mean)} us take {significant(taken)} s, it was told to run for"
            f" {seconds} s",
        )
    return mean


def _conditions(
    words: Sequence[str], actual: perftest.Conditions, fabric: Fabric, test: str
) -> dict[str, str | int | None]:
    """Raises Mismatch if device, connection, link or MTU are not the requested ones."""
    ethernet = fabric.kind != "infiniband"
    _compare(
        words[0],
        ("test", test, actual.test),
        ("device", _value(words, "-d"), actual.device),
        ("connection", "RC", actual.connection),
        ("link type", "Ethernet" if ethernet else "IB", actual.link_layer),
        ("queue pairs", 1, actual.qps),
    )
    if ethernet:
        _compare(words[0], ("RDMA MTU in B", rdma_mtu(fabric.mtu), actual.mtu_bytes))
    return {"rdma_mtu_bytes": actual.mtu_bytes, "gid_index": actual.gid_index}


def rdma_mtu(mtu: int) -> int:
    """Largest RDMA MTU (256, 512 … 4096 B) that leaves room for headers on an Ethernet port with this MTU, bytes."""
    return max((size for size in (256, 512, 1024, 2048, 4096) if size + RDMA_HEADERS_B <= mtu), default=256)


def _tcp(words: Sequence[str], text: str, fabric: Fabric) -> Figure:
    result = iperf3.parse_iperf3(text)
    seconds = _number(words, "-t")
    _compare(
        words[0],
        ("protocol", "TCP", result.protocol),
        ("direction", "client sends", "server sends" if result.reverse else "client sends"),
        ("streams", _number(words, "-P"), result.streams),
        ("duration in s", seconds, result.seconds_asked),
        ("server's address", _value(words, "-c"), ", ".join(sorted(result.remote_hosts))),
        ("own address", _value(words, "-B"), ", ".join(sorted(result.local_hosts))),
    )
    if not 0.5 * seconds <= result.received_seconds <= 2 * seconds + 2:
        raise Mismatch(words[0], f"expected {seconds} s, actual {result.received_seconds:g} s")
    if not result.received_bytes or result.received_bytes > 1.01 * result.sent_bytes:
        raise Unreliable(words[0], f"{result.received_bytes} B received of {result.sent_bytes} B sent")
    values = {TCP_BANDWIDTH: result.received_bits_per_s / 1e9}
    companions = {}
    if result.retransmits is not None:
        companions["retransmits"] = float(result.retransmits)
        if result.mss_bytes and result.sent_bytes:
            values[TCP_RETRANSMITTED] = 100 * result.retransmits * result.mss_bytes / result.sent_bytes
    return Figure(values, result.received_bytes, 0, False, companions=companions)


_READERS: Final[dict[str, Callable[[Sequence[str], str, Fabric], Figure]]] = {
    "ib_write_bw": _bandwidth,
    "ib_write_lat": _latency,
    "ib_read_lat": _latency,
    "iperf3": _tcp,
}


def _only(program: str, rows: Sequence[Row]) -> Row:
    if len(rows) != 1:
        raise Mismatch(program, f"expected one message size, actual {len(rows)}")
    return rows[0]


def _compare(program: str, *pairs: tuple[str, object, object]) -> None:
    """Raises Mismatch for the first of (name, requested, reported) that differs."""
    for name, requested, reported in pairs:
        if requested != reported:
            shown = "not reported" if reported in (None, "") else reported
            raise Mismatch(program, f"expected {name} {requested}, actual {shown}")


def _value(words: Sequence[str], option: str) -> str:
    """Value of an option of a command line."""
    if option not in words[:-1]:
        raise ParseError(words[0], f"its command line has no {option}")
    return words[words.index(option) + 1]


def _number(words: Sequence[str], option: str) -> int:
    value = _value(words, option)
    if not value.isdigit():
        raise ParseError(words[0], f"{option} is not a number: {value[:40]}")
    return int(value)


def reliable(attempts: Iterable[Attempt], prove: Callable[[Attempt], Proven], tool: str) -> list[Proven]:
    """Results of the reliable attempts. Raises Unreliable where the last ones, or ``ATTEMPTS`` in a row, are not."""
    results: list[Proven] = []
    unreliable: list[Unreliable] = []
    for attempt in attempts:
        try:
            results.append(prove(attempt))
            unreliable.clear()
        except Unreliable as error:
            unreliable.append(error)
            if len(unreliable) >= ATTEMPTS:
                break
    if unreliable:
        times = f"no reliable figure in {len(unreliable)} attempts: " if len(unreliable) > 1 else ""
        raise Unreliable(tool, times + unreliable[-1].reason)
    return results
