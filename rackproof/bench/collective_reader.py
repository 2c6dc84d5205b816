"""Samples of collectives, with proof that they used the requested hosts, ranks and ports.

A run of MPI is bound to one rail, whose ports must have carried it; the slowest rail counts. NCCL uses all rails at
once.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rackproof.bench.port_proof import (
    counters_of,
    prove,
    rdma_retries,
    readings_of,
    received_on,
    tcp_retransmitted,
)
from rackproof.bench.reading import Read, Reading, with_preamble
from rackproof.core.architecture import Architecture, Fabric
from rackproof.core.collective import least_received
from rackproof.core.evidence import Measurement
from rackproof.parse import Mismatch, ParseError, mpi_collectives, nccl_tests
from rackproof.parse.port_counters import PortCounters
from rackproof.remote.command import CommandResult, program

NAME: Final = "collectives-proven"
"""Recorded name of this reader."""
PROGRAM: Final = "mpirun"
BUSBW, ALGBW, WRONG = "collective.busbw", "collective.algbw", "collective.wrong_values"
LEAST_SHARE = 0.9
"""Minimum share of the requested size: engines round sizes down to a multiple of their ranks."""
ELEMENT: Final = {"mpi": "float32", "nccl-tests": "float"}
"""Default element type by engine."""
IMEX: Final = "nvidia-imex.service"
"""Its nodes are connected by NVLink: collectives may bypass the fabric."""


@dataclass(frozen=True, slots=True)
class Requested:
    """Parameters on the command line of ``mpirun``."""

    ranks: int
    hosts: tuple[str, ...]
    ranks_per_node: int
    op: str
    sizes: tuple[int, ...]
    iterations: int
    warmup: int
    interface: str | None
    """Interface that data is bound to; None for an engine that chooses its ports."""


@dataclass(frozen=True, slots=True)
class Row:
    """One message size. Bandwidths in GB/s; ``wrong`` is None without a check of the results."""

    bytes: int
    busbw: float
    algbw: float
    wrong: int | None


@dataclass(frozen=True, slots=True)
class Reported:
    """Parameters and rows that an engine reports."""

    op: str | None
    rank_hosts: tuple[str, ...]
    """Host of each rank."""
    element: str
    rows: tuple[Row, ...]
    iterations: int | None
    warmup: int | None


def requested_by(command: str) -> Requested:
    """Parse the kit's command line. Raises ParseError."""
    words = shlex.split(command)
    try:
        hosts = [host.partition(":")[0] for host in words[words.index("--host") + 1].split(",")]
        ranks = int(words[words.index("-n") + 1])
        at = next(number for number, word in enumerate(words) if word.endswith(("/collectives.py", "_perf")))
        engine, arguments = words[at], words[at + 1 :]
        if engine.endswith("_perf"):
            options = dict(zip(arguments[::2], arguments[1::2], strict=True))
            op = engine.rpartition("/")[2].removesuffix("_perf")
            numbers = [int(options[name]) for name in ("-b", "-e", "-f", "-n", "-w")]
        else:
            op, numbers = arguments[0], [int(word) for word in arguments[1:6]]
        interface = None if engine.endswith("_perf") else words[words.index("btl_tcp_if_include") + 1]
        low, high, factor, iterations, warmup = numbers
    except (ValueError, LookupError, StopIteration):
        raise ParseError(PROGRAM, "its command line is not one of the kit's") from None
    steps = tuple(sizes(low, high, factor))
    return Requested(ranks, tuple(hosts), ranks // len(hosts), op, steps, iterations, warmup, interface)


def sizes(low: int, high: int, factor: int) -> Iterable[int]:
    """Message sizes of both engines, bytes."""
    while low <= high:
        yield low
        low *= max(factor, 2)


def _mpi(text: str, op: str) -> Reported:
    result = mpi_collectives.parse_mpi_collectives(text)
    iterations = {len(point.samples_us) for point in result.points}
    rows = [Row(p.bytes, p.busbw_gb_per_s, p.algbw_gb_per_s, p.wrong) for p in result.points]
    if result.ranks != len(result.hosts):
        raise Mismatch("mpi", f"{result.ranks} ranks, and hosts of {len(result.hosts)}")
    return Reported(
        result.op, result.hosts, result.dtype, tuple(rows), iterations.pop() if len(iterations) == 1 else None,
        result.warmup,
    )  # fmt: skip


def _nccl(text: str, op: str) -> Reported:
    result = nccl_tests.parse_nccl_tests(text, op)
    tool = nccl_tests.TOOL
    if result.failure:
        raise ParseError(tool, result.failure)
    if not result.complete:
        raise ParseError(tool, " ".join(("the run ended before its last size", *result.warnings[:1])))
    if result.options is None:
        raise ParseError(tool, "it does not print its options")
    if sorted(rank for rank, _ in result.rank_hosts) != list(range(len(result.rank_hosts))):
        raise Mismatch(tool, "its list of ranks has gaps")
    elements = sorted({row.dtype for row in result.rows})
    return Reported(
        result.op,
        tuple(host for _, host in sorted(result.rank_hosts)),
        " and ".join(elements),
        tuple(
            Row(r.bytes, r.out_of_place.busbw_gb_per_s, r.out_of_place.algbw_gb_per_s, wrong)
            for r, wrong in zip(result.rows, nccl_wrong(result), strict=True)
        ),
        result.options.iterations,
        result.options.warmup,
    )


def nccl_wrong(result: nccl_tests.NcclTests) -> list[int | None]:
    """Wrong elements of each row, of both halves together; None if results were not checked.

    Before version 2.13 only the footer counts them; each row then has the footer's count.
    """
    counts = [row.wrong for row in result.rows]
    if result.out_of_bounds is not None and not any(counts):
        return [result.out_of_bounds] * len(counts)
    return counts


ENGINES: Final[dict[str, Callable[[str, str], Reported]]] = {"mpi": _mpi, "nccl-tests": _nccl}


@dataclass(frozen=True, slots=True)
class Proven:
    """One proven run."""

    requested: Requested
    rows: tuple[Row, ...]
    conditions: Mapping[str, Any]

    def row(self, size: int) -> Row:
        """Raises ParseError."""
        rows = [row for row in self.rows if size * LEAST_SHARE <= row.bytes <= size]
        if not rows:
            raise ParseError(PROGRAM, f"no row of {size} B")
        return rows[-1]


@with_preamble
def read_collectives(answers: Sequence[CommandResult], architecture: Architecture) -> Read:
    """One sample per size; every run is between two readings of every node's counters."""
    runs = [answer for answer in answers if program(answer.command) == PROGRAM]
    proven: dict[str, list[Proven]] = {}

    def read(measurement: Measurement) -> Reading:
        engine, op, metric = measurement.labels["engine"], measurement.labels["op"], measurement.metric
        failed = [answer for answer in runs if not answer.ok]
        if failed and metric != WRONG:
            raise ParseError(PROGRAM, failed[0].why)
        if engine not in proven:
            proven[engine] = _all_proven(engine, runs, answers, architecture)
        if failed and not any(row.wrong for run in proven[engine] for row in run.rows):
            raise ParseError(PROGRAM, failed[0].why)
        size, values = int(measurement.labels["bytes"]), []
        for run in proven[engine]:
            hosts = sorted(run.requested.hosts)
            _compare((("operation", op, run.requested.op), ("hosts", sorted(measurement.members), hosts)))
            values.append(value_of(metric, run.row(size)))
        value = max(values) if metric == WRONG else min(values)
        worst = proven[engine][values.index(value)]
        conditions = {**worst.conditions, "bytes": worst.row(size).bytes}
        if len(values) > 1:
            conditions["by_rail"] = {str(rail): rail_value for rail, rail_value in enumerate(values)}
        return Reading((value,), (*runs, *readings_of(answers)), conditions)

    return read


def value_of(metric: str, row: Row) -> float:
    """The row's value in the metric's unit. Raises ParseError if results were not checked."""
    if metric == BUSBW:
        return row.busbw
    if metric == ALGBW:
        return row.algbw
    if row.wrong is None:
        raise ParseError(PROGRAM, "the engine did not check the result")
    return float(row.wrong)


def _all_proven(
    engine: str, runs: Sequence[CommandResult], answers: Sequence[CommandResult], architecture: Architecture
) -> list[Proven]:
    """The runs in the order of rails. Raises ParseError, for a failed run with its message."""
    fabric = architecture.fabric
    proven = []
    for number, answer in enumerate(runs):
        try:
            proven.append(_proven(engine, answer, number, answers, architecture))
        except Mismatch:
            raise
        except ParseError as error:
            raise (error if answer.ok else ParseError(PROGRAM, answer.why)) from None
    bound = [run.requested.interface for run in proven]
    rails = bound[:1]
    if fabric is not None and None not in bound:
        rails = [f"{fabric.interface_prefix}{rail}" for rail in range(fabric.rails)]
    if not proven or bound != rails:
        raise ParseError(PROGRAM, f"expected one run of it for each rail, actual {len(runs)}")
    return proven


def _proven(
    engine: str, answer: CommandResult, number: int, answers: Sequence[CommandResult], architecture: Architecture
) -> Proven:
    """Raises Mismatch if the run is not the requested one, or its traffic used other ports."""
    requested = requested_by(answer.command)
    reported = ENGINES[engine](answer.text, requested.op)
    counters = {node: _readings(node, number, answers) for node in requested.hosts}
    names = {node: _short(before.hostname) for node, (before, _) in counters.items()}
    _compare(
        (
            ("operation", requested.op, reported.op),
            ("ranks", requested.ranks, len(reported.rank_hosts)),
            ("ranks by host", _by_host(names, requested), _counted(reported.rank_hosts, names)),
            ("element", ELEMENT[engine], reported.element),
            ("number of sizes", len(requested.sizes), len(reported.rows)),
            ("iterations", requested.iterations, reported.iterations),
            ("warm-up", requested.warmup, reported.warmup),
        )
    )
    for size, row in zip(requested.sizes, reported.rows, strict=True):
        if row.bytes > max(size, 64 * requested.ranks):
            raise Mismatch(PROGRAM, f"expected a size of {size} B, actual {row.bytes} B")
    conditions: dict[str, Any] = {
        "command": answer.command,
        "nodes": len(requested.hosts),
        "ranks": requested.ranks,
        "element": reported.element,
        "iterations": requested.iterations,
    }
    if architecture.fabric is not None:
        conditions |= _passed(requested, reported, counters, architecture, architecture.fabric)
    return Proven(requested, reported.rows, conditions)


def _passed(
    requested: Requested,
    reported: Reported,
    counters: Mapping[str, tuple[PortCounters, PortCounters]],
    architecture: Architecture,
    fabric: Fabric,
) -> dict[str, Any]:
    """Conditions from the counters of all nodes' ports during the run."""
    needed = sum(
        requested.iterations * least_received(requested.op, row.bytes, len(requested.hosts), requested.ranks_per_node)
        for row in reported.rows
    )
    rails = [
        rail for rail in range(fabric.rails) if requested.interface in (None, f"{fabric.interface_prefix}{rail}")
    ]  # fmt: skip
    received = {node: received_on(*pair, fabric, rails) for node, pair in counters.items()}
    least = min(received, key=lambda node: received[node])
    path = "fabric" if received[least] >= needed else "NVLink"
    if not any(IMEX in role.expect.services for role in architecture.roles.values()):
        prove(PROGRAM, f"{requested.interface or 'the fabric ports'} of {least}", "received", needed, received[least])
    retries = [
        count
        for pair in counters.values()
        for rail in rails
        if (count := rdma_retries(*pair, f"{fabric.rdma_prefix}{rail}")) is not None
    ]
    return {
        "path": path if needed else "none",
        "received_bytes_least": received[least],
        "received_bytes_needed": needed,
        "tcp_retransmitted": sum(tcp_retransmitted(*pair) for pair in counters.values()),
        **({"rdma_retries": sum(retries)} if retries else {}),
    }


def _readings(node: str, number: int, answers: Sequence[CommandResult]) -> tuple[PortCounters, PortCounters]:
    """Counters before and after a run. The node is read before the first run and after each run."""
    runs = sum(program(answer.command) == PROGRAM for answer in answers)
    readings = readings_of(answer for answer in answers if answer.node == node)
    if len(readings) != runs + 1:
        raise ParseError("port counters", f"{node}: expected {runs + 1} readings, actual {len(readings)}")
    return counters_of(readings[number]), counters_of(readings[number + 1])


def _by_host(names: Mapping[str, str], requested: Requested) -> str:
    return ", ".join(f"{requested.ranks_per_node} on {node}" for node in sorted(names))


def _counted(rank_hosts: Iterable[str], names: Mapping[str, str]) -> str:
    """Ranks by node, or by host if its name is not a node's."""
    nodes = {name: node for node, name in names.items()}
    counts = Counter(nodes.get(_short(host), host) for host in rank_hosts)
    return ", ".join(f"{counts[node]} on {node}" for node in sorted(counts))


def _short(host: str) -> str:
    return host.partition(".")[0]


def _compare(pairs: Iterable[tuple[str, object, object]]) -> None:
    for name, expected, actual in pairs:
        if expected != actual:
            shown = "not reported" if actual is None else actual
            raise Mismatch(PROGRAM, f"expected {name} {expected}, actual {shown}")
