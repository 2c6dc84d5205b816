"""Samples of collectives: rows of size, bandwidths and wrong values out of one output of ``mpirun``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rackproof.bench.reading import Read, Reading
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement
from rackproof.parse import ParseError, mpi_collectives, nccl_tests
from rackproof.remote.command import CommandResult

PROGRAM = "mpirun"
BUSBW, ALGBW, WRONG = "collective.busbw", "collective.algbw", "collective.wrong_values"
LEAST_SHARE = 0.9
"""An engine may round a size down to a multiple of its ranks, to this share of what was asked."""


@dataclass(frozen=True, slots=True)
class Row:
    """One message size. Bandwidths in GB/s; ``wrong`` is None when the engine did not check."""

    bytes: int
    busbw: float
    algbw: float
    wrong: int | None


def mpi_rows(op: str, text: str) -> list[Row]:
    """Raises ParseError."""
    result = mpi_collectives.parse_mpi_collectives(text)
    if result.op != op:
        raise ParseError("mpi", f"expected {op}, actual {result.op}")
    return [Row(p.bytes, p.busbw_gb_per_s, p.algbw_gb_per_s, p.wrong) for p in result.points]


def nccl_rows(op: str, text: str) -> list[Row]:
    """Out-of-place rows. Raises ParseError, also when the run ended early."""
    result = nccl_tests.parse_nccl_tests(text, op)
    if result.failure or not result.complete:
        raise ParseError("nccl-tests", result.failure or "the run ended before its last size")
    return [
        Row(r.bytes, r.out_of_place.busbw_gb_per_s, r.out_of_place.algbw_gb_per_s, r.out_of_place.wrong)
        for r in result.rows
        if r.bytes > 0
    ]


ROWS: dict[str, Callable[[str, str], list[Row]]] = {"mpi": mpi_rows, "nccl-tests": nccl_rows}
"""By engine: rows of one operation's whole output."""


def read_collectives(answers: Sequence[CommandResult], architecture: Architecture) -> Read:
    """One sample per size; a step has one run."""
    runs = [answer for answer in answers if answer.command.split()[:1] == [PROGRAM]]
    rows: dict[tuple[str, str], list[Row]] = {}

    def read(measurement: Measurement) -> Reading:
        if len(runs) != 1:
            raise ParseError(PROGRAM, f"expected one run of it, actual {len(runs)}")
        (answer,) = runs
        if not answer.ok:
            raise ParseError(PROGRAM, answer.why)
        engine, op = measurement.labels["engine"], measurement.labels["op"]
        if (engine, op) not in rows:
            rows[engine, op] = ROWS[engine](op, answer.text)
        size = int(measurement.labels["bytes"])
        found = [row for row in rows[engine, op] if size * LEAST_SHARE <= row.bytes <= size]
        if not found:
            raise ParseError(PROGRAM, f"no row of {size} B")
        ranks, hosts = _asked(answer.command)
        if sorted(hosts) != sorted(measurement.members):
            raise ParseError(PROGRAM, f"expected hosts {', '.join(measurement.members)}, actual {', '.join(hosts)}")
        conditions = {"command": answer.command, "nodes": len(hosts), "ranks": ranks, "bytes": found[-1].bytes}
        return Reading((value_of(measurement.metric, found[-1]),), (answer,), conditions)

    return read


def value_of(metric: str, row: Row) -> float:
    """The row's value in the metric's unit. Raises ParseError where results were not checked."""
    if metric == BUSBW:
        return row.busbw
    if metric == ALGBW:
        return row.algbw
    if row.wrong is None:
        raise ParseError(PROGRAM, "the engine did not check the result")
    return float(row.wrong)


def _asked(command: str) -> tuple[int, list[str]]:
    """Ranks and hosts of ``mpirun -n 4 --host a:2,b:2``."""
    words = command.split()
    hosts = words[words.index("--host") + 1].split(",")
    return int(words[words.index("-n") + 1]), [host.partition(":")[0] for host in hosts]
