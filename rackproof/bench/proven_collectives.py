"""Samples of collectives that ran on the hosts, ranks and ports that were asked for."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rackproof.bench.collective_reader import LEAST_SHARE, PROGRAM, WRONG, Row, value_of
from rackproof.bench.port_proof import (
    counters_of,
    prove,
    rdma_retries,
    readings_of,
    received_on,
    tcp_retransmitted,
)
from rackproof.bench.reading import Read, Reading
from rackproof.core.architecture import Architecture, Fabric
from rackproof.core.collective import least_received
from rackproof.core.evidence import Measurement
from rackproof.parse import Mismatch, ParseError, mpi_collectives, nccl_tests
from rackproof.parse.port_counters import PortCounters
from rackproof.remote.command import CommandResult

ELEMENT: Final = {"mpi": "float32", "nccl-tests": "float"}
"""Element type of each engine: its default."""
IMEX: Final = "nvidia-imex.service"
"""Nodes that run it are joined by NVLink: collectives need not touch the fabric."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line of ``mpirun`` asks for."""

    ranks: int
    hosts: tuple[str, ...]
    ranks_per_node: int
    op: str
    sizes: tuple[int, ...]
    iterations: int
    warmup: int


@dataclass(frozen=True, slots=True)
class Ran:
    """What an engine says that it did."""

    op: str | None
    rank_hosts: tuple[str, ...]
    """Host of each rank."""
    element: str
    rows: tuple[Row, ...]
    iterations: int | None
    warmup: int | None


def asked_of(command: str) -> Asked:
    """Read the kit's own command line. Raises ParseError."""
    words = shlex.split(command)
    try:
        hosts = [host.partition(":")[0] for host in words[words.index("--host") + 1].split(",")]
        ranks = int(words[words.index("-n") + 1])
        at = next(number for number, word in enumerate(words) if word.endswith(("/collectives.py", "_perf")))
        program, arguments = words[at], words[at + 1 :]
        if program.endswith("_perf"):
            options = dict(zip(arguments[::2], arguments[1::2], strict=True))
            op = program.rpartition("/")[2].removesuffix("_perf")
            numbers = [int(options[name]) for name in ("-b", "-e", "-f", "-n", "-w")]
        else:
            op, numbers = arguments[0], [int(word) for word in arguments[1:6]]
        low, high, factor, iterations, warmup = numbers
    except (ValueError, LookupError, StopIteration):
        raise ParseError(PROGRAM, "its command line is not one of the kit's") from None
    return Asked(ranks, tuple(hosts), ranks // len(hosts), op, tuple(sizes(low, high, factor)), iterations, warmup)


def sizes(low: int, high: int, factor: int) -> Iterable[int]:
    """Message sizes in bytes, as both engines step through them."""
    while low <= high:
        yield low
        low *= max(factor, 2)


def _mpi(text: str, op: str) -> Ran:
    result = mpi_collectives.parse_mpi_collectives(text)
    iterations = {len(point.samples_us) for point in result.points}
    rows = [Row(p.bytes, p.busbw_gb_per_s, p.algbw_gb_per_s, p.wrong) for p in result.points]
    if result.ranks != len(result.hosts):
        raise Mismatch("mpi", f"{result.ranks} ranks, and hosts of {len(result.hosts)}")
    return Ran(
        result.op, result.hosts, result.dtype, tuple(rows), iterations.pop() if len(iterations) == 1 else None,
        result.warmup,
    )  # fmt: skip


def _nccl(text: str, op: str) -> Ran:
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
    return Ran(
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
    """Wrong elements of each row, both halves together; None where results were not checked.

    Where only the footer counts them, as in versions before 2.13, each row has the footer's count: it may be any.
    """
    counts = [row.wrong for row in result.rows]
    if result.out_of_bounds is not None and not any(counts):
        return [result.out_of_bounds] * len(counts)
    return counts


ENGINES: Final[dict[str, Callable[[str, str], Ran]]] = {"mpi": _mpi, "nccl-tests": _nccl}


def read_proven_collectives(answers: Sequence[CommandResult], architecture: Architecture) -> Read:
    """One sample per size; a step has one run, between two readings of every node's counters."""
    runs = [answer for answer in answers if answer.command.split()[:1] == [PROGRAM]]
    seen: dict[str, tuple[Asked, Ran, dict[str, Any]]] = {}

    def read(measurement: Measurement) -> Reading:
        if len(runs) != 1:
            raise ParseError(PROGRAM, f"expected one run of it, actual {len(runs)}")
        (answer,) = runs
        engine, op = measurement.labels["engine"], measurement.labels["op"]
        if not answer.ok and measurement.metric != WRONG:
            raise ParseError(PROGRAM, answer.why)
        if engine not in seen:
            try:
                seen[engine] = _proven(engine, answer, answers, architecture)
            except Mismatch:
                raise
            except ParseError as error:
                raise (error if answer.ok else ParseError(PROGRAM, answer.why)) from None
        asked, ran, conditions = seen[engine]
        if not answer.ok and not any(row.wrong for row in ran.rows):
            raise ParseError(PROGRAM, answer.why)
        _compare((("operation", op, asked.op), ("hosts", sorted(measurement.members), sorted(asked.hosts))))
        size = int(measurement.labels["bytes"])
        rows = [row for row in ran.rows if size * LEAST_SHARE <= row.bytes <= size]
        if not rows:
            raise ParseError(PROGRAM, f"no row of {size} B")
        used = (answer, *readings_of(answers))
        return Reading((value_of(measurement.metric, rows[-1]),), used, conditions | {"bytes": rows[-1].bytes})

    return read


def _proven(
    engine: str, answer: CommandResult, answers: Sequence[CommandResult], architecture: Architecture
) -> tuple[Asked, Ran, dict[str, Any]]:
    """Raises Mismatch where the run was another one than asked for, or took another way."""
    asked = asked_of(answer.command)
    ran = ENGINES[engine](answer.text, asked.op)
    counters = {node: _readings(node, answers) for node in asked.hosts}
    names = {node: _short(before.hostname) for node, (before, _) in counters.items()}
    _compare(
        (
            ("operation", asked.op, ran.op),
            ("ranks", asked.ranks, len(ran.rank_hosts)),
            ("ranks by host", _by_host(names, asked), _counted(ran.rank_hosts, names)),
            ("element", ELEMENT[engine], ran.element),
            ("number of sizes", len(asked.sizes), len(ran.rows)),
            ("iterations", asked.iterations, ran.iterations),
            ("warm-up", asked.warmup, ran.warmup),
        )
    )
    for size, row in zip(asked.sizes, ran.rows, strict=True):
        if row.bytes > max(size, 64 * asked.ranks):
            raise Mismatch(PROGRAM, f"expected a size of {size} B, actual {row.bytes} B")
    conditions: dict[str, Any] = {
        "command": answer.command,
        "nodes": len(asked.hosts),
        "ranks": asked.ranks,
        "element": ran.element,
        "iterations": asked.iterations,
    }
    if architecture.fabric is not None:
        conditions |= _passed(asked, ran, counters, architecture, architecture.fabric)
    return asked, ran, conditions


def _passed(
    asked: Asked,
    ran: Ran,
    counters: Mapping[str, tuple[PortCounters, PortCounters]],
    architecture: Architecture,
    fabric: Fabric,
) -> dict[str, Any]:
    """What the ports of every node counted meanwhile."""
    needed = sum(
        asked.iterations * least_received(asked.op, row.bytes, len(asked.hosts), asked.ranks_per_node)
        for row in ran.rows
    )
    received = {node: received_on(*pair, fabric) for node, pair in counters.items()}
    least = min(received, key=lambda node: received[node])
    path = "fabric" if received[least] >= needed else "NVLink"
    if not any(IMEX in role.expect.services for role in architecture.roles.values()):
        prove(PROGRAM, f"the fabric ports of {least}", "received", needed, received[least])
    retries = [
        count
        for pair in counters.values()
        for rail in range(fabric.rails)
        if (count := rdma_retries(*pair, f"{fabric.rdma_prefix}{rail}")) is not None
    ]
    return {
        "path": path if needed else "none",
        "received_bytes_least": received[least],
        "received_bytes_needed": needed,
        "tcp_retransmitted": sum(tcp_retransmitted(*pair) for pair in counters.values()),
        **({"rdma_retries": sum(retries)} if retries else {}),
    }


def _readings(node: str, answers: Sequence[CommandResult]) -> tuple[PortCounters, PortCounters]:
    readings = readings_of(answer for answer in answers if answer.node == node)
    if len(readings) != 2:
        raise ParseError("port counters", f"{node}: expected a reading before and one after, actual {len(readings)}")
    return counters_of(readings[0]), counters_of(readings[1])


def _by_host(names: Mapping[str, str], asked: Asked) -> str:
    return ", ".join(f"{asked.ranks_per_node} on {node}" for node in sorted(names))


def _counted(rank_hosts: Iterable[str], names: Mapping[str, str]) -> str:
    """Ranks by node; hosts that call themselves otherwise than every node keep their own name."""
    nodes = {name: node for node, name in names.items()}
    counts = Counter(nodes.get(_short(host), host) for host in rank_hosts)
    return ", ".join(f"{counts[node]} on {node}" for node in sorted(counts))


def _short(host: str) -> str:
    return host.partition(".")[0]


def _compare(pairs: Iterable[tuple[str, object, object]]) -> None:
    for what, asked, reported in pairs:
        if asked != reported:
            shown = "not reported" if reported is None else reported
            raise Mismatch(PROGRAM, f"expected {what} {asked}, actual {shown}")
