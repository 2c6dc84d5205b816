"""Samples of collectives, with proof that they used the requested hosts, ranks, ports and algorithms.

A run of MPI is bound to one rail, whose ports must have carried it; the slowest rail counts. NCCL uses all rails at
once, and says what it uses. Bandwidths are those out of place unless their metric says otherwise; wrong values are
those of both halves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from rackproof.bench.collectives.command import MPIRUN, Requested, launcher_of, leads, requested_by
from rackproof.bench.collectives.nccl_used import check_used, conditions_of, log_of, log_readings
from rackproof.bench.collectives.ports import passed
from rackproof.bench.collectives.refusal import why_failed
from rackproof.bench.port_proof import counters_of, readings_of
from rackproof.bench.reading import Read, Reading, reader, with_preamble
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement, Scope
from rackproof.parse import Mismatch, ParseError, mpi_collectives, nccl_tests
from rackproof.parse.nccl_log import NcclLog
from rackproof.parse.port_counters import PortCounters
from rackproof.remote.command import CommandResult

PROGRAM: Final = MPIRUN
BUSBW, ALGBW, WRONG = "collective.busbw", "collective.algbw", "collective.wrong_values"
IN_PLACE: Final = f"{BUSBW}_in_place"
RAIL, RAIL_WRONG = "collective.rail_busbw", "collective.rail_wrong_values"
COUNTS: Final = (WRONG, RAIL_WRONG)
LEAST_SHARE = 0.9
"""Minimum share of the requested size: engines round sizes down to a multiple of their ranks."""
ELEMENT: Final = {"mpi": "float32", "nccl-tests": "float", "torch": "float32"}
"""Default element type by engine."""


@dataclass(frozen=True, slots=True)
class Row:
    """One message size. Bandwidths in GB/s; ``wrong`` is None without a check of the results."""

    bytes: int
    busbw: float
    algbw: float
    wrong: int | None
    busbw_in_place: float | None = None


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
    groups: tuple[int, ...] = ()
    """Group of each rank; empty for an engine without groups."""
    backend: str | None = None
    """Backend of the engine torch: ``nccl`` or ``gloo``."""
    engine: str = "nccl-tests"
    fault: ParseError | None = None
    """Why the run is not whole: it failed, or ended before its last size. Wrong values of its rows still count."""


def _own(text: str, op: str) -> Reported:
    result = mpi_collectives.parse_mpi_collectives(text)
    iterations = {len(point.samples_us) for point in result.points}
    rows = [Row(p.bytes, p.busbw_gb_per_s, p.algbw_gb_per_s, p.wrong) for p in result.points]
    if result.ranks != len(result.hosts):
        raise Mismatch("mpi", f"{result.ranks} ranks, and hosts of {len(result.hosts)}")
    return Reported(
        result.op, result.hosts, result.dtype, tuple(rows), iterations.pop() if len(iterations) == 1 else None,
        result.warmup, backend=result.backend, engine=result.engine,
    )  # fmt: skip


def _nccl(text: str, op: str) -> Reported:
    result = nccl_tests.parse_nccl_tests(text, op)
    tool = nccl_tests.TOOL
    fault: ParseError | None = None
    if result.failure:
        fault = ParseError(tool, result.failure)
    elif not result.complete:
        fault = ParseError(tool, " ".join(("the run ended before its last size", *result.warnings[:1])))
    if fault is not None and not any(nccl_wrong(result)):
        raise fault
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
            Row(
                r.bytes, r.out_of_place.busbw_gb_per_s, r.out_of_place.algbw_gb_per_s, wrong,
                r.in_place.busbw_gb_per_s if r.in_place else None,
            )
            for r, wrong in zip(result.rows, nccl_wrong(result), strict=True)
        ),
        result.options.iterations,
        result.options.warmup,
        tuple(group for _, group in sorted(result.rank_groups)),
        fault=fault,
    )  # fmt: skip


def nccl_wrong(result: nccl_tests.NcclTests) -> list[int | None]:
    """Wrong elements of each row, of both halves together; None if results were not checked.

    Before version 2.13 only the footer counts them; each row then has the footer's count.
    """
    counts = [row.wrong for row in result.rows]
    if result.out_of_bounds is not None and not any(counts):
        return [result.out_of_bounds] * len(counts)
    return counts


ENGINES: Final[dict[str, Callable[[str, str], Reported]]] = {"mpi": _own, "nccl-tests": _nccl, "torch": _own}


@dataclass(frozen=True, slots=True)
class Proven:
    """One run whose parameters are those of its command line."""

    requested: Requested
    rows: tuple[Row, ...]
    conditions: Mapping[str, Any]
    fault: ParseError | None = None
    """Why its bandwidths do not count: another path, another algorithm, an end before its last size."""

    def row(self, size: int) -> Row:
        """Raises ParseError."""
        rows = [row for row in self.rows if size * LEAST_SHARE <= row.bytes <= size]
        if not rows:
            raise self.fault or ParseError(PROGRAM, f"no row of {size} B")
        return rows[-1]


@reader("collectives-proven")
@with_preamble
def read_collectives(answers: Sequence[CommandResult], architecture: Architecture) -> Read:
    """One sample per launch and size; every run is between two readings of every node. Wrong values of one run count
    even where another one has no proof."""
    launched = [answer for answer in answers if launcher_of(answer.command)]
    proven: dict[tuple[str, str], list[Proven]] = {}

    def started_on(measurement: Measurement) -> tuple[str, list[CommandResult], list[CommandResult]]:
        """Node, or empty for all; processes that were started there, and those of them that print results."""
        node = measurement.members[0] if measurement.scope is Scope.NODE else ""
        started = [answer for answer in launched if node in ("", answer.node)]
        return node, started, [answer for answer in started if leads(answer.command)]

    def read(measurement: Measurement) -> Reading:
        try:
            return read_all(measurement)
        except ParseError:
            if measurement.metric not in COUNTS:
                raise
            node, _, runs = started_on(measurement)
            values = list(_proven_values(measurement, runs, answers, architecture))
            worst, _, run_with = max(values, key=lambda value: value[0], default=(0.0, None, None))
            if run_with is None or not worst:
                raise
            used = [answer for _, answer, _ in values]
            samples = tuple(value for value, _, _ in values)
            return Reading(samples, (*used, *_readings_beside(answers, node)), run_with.conditions)

    def read_all(measurement: Measurement) -> Reading:
        engine, metric = measurement.labels["engine"], measurement.metric
        node, started, runs = started_on(measurement)
        failed = [answer for answer in started if not answer.ok]
        if failed and metric not in COUNTS:
            raise why_failed(failed[0], answers)
        if (engine, node) not in proven:
            proven[engine, node] = _all_proven(engine, runs, answers, architecture)
        every = proven[engine, node]
        if failed and not any(row.wrong for run in every for row in run.rows):
            raise why_failed(failed[0], answers)
        values = [_value(measurement, run) for run in every]
        per_launch = _rails_of(every, architecture)
        worst = max if metric in COUNTS else min
        launches = [values[at : at + per_launch] for at in range(0, len(values), per_launch)]
        samples = tuple(worst(launch) for launch in launches)
        at = values.index(worst(values))
        conditions = {**every[at].conditions, **_of_row(every[at], measurement)}
        if per_launch > 1:
            by_rail = launches[at // per_launch]
            conditions["by_rail"] = {str(rail): rail_value for rail, rail_value in enumerate(by_rail)}
        return Reading(samples, (*started, *_readings_beside(answers, node)), conditions)

    return read


def _value(measurement: Measurement, run: Proven) -> float:
    """The run's value. Raises Mismatch if it is not of this measurement, and for a bandwidth that does not count."""
    labels, requested = measurement.labels, run.requested
    row = run.row(int(labels["bytes"]))
    _compare((
        ("operation", labels["op"], requested.op),
        ("hosts", sorted(measurement.members), sorted(requested.hosts)),
        ("algorithm", labels.get("algorithm"), requested.environment.get("NCCL_ALGO")),
        ("rail", labels.get("rail"), None if requested.rail is None else str(requested.rail)),
    ))  # fmt: skip
    value = value_of(measurement.metric, row)
    if run.fault is not None and not (measurement.metric in COUNTS and value):
        raise run.fault
    if row.wrong and measurement.metric not in COUNTS:
        raise Mismatch(PROGRAM, f"{row.wrong} wrong values in the result, its bandwidth says nothing")
    return value


def _proven_values(
    measurement: Measurement,
    runs: Sequence[CommandResult],
    answers: Sequence[CommandResult],
    architecture: Architecture,
) -> Iterator[tuple[float, CommandResult, Proven]]:
    """Values of the runs with proof, and their outputs."""
    for number, answer in enumerate(runs):
        with suppress(ParseError):
            run = _proven(measurement.labels["engine"], answer, number, len(runs), answers, architecture)
            yield _value(measurement, run), answer, run


def value_of(metric: str, row: Row) -> float:
    """The row's value in the metric's unit. Raises ParseError if it has none, or results were not checked."""
    if metric in (BUSBW, RAIL):
        return row.busbw
    if metric == ALGBW:
        return row.algbw
    if metric == IN_PLACE:
        if row.busbw_in_place is None:
            raise ParseError(PROGRAM, "the engine did not measure the operation in place")
        return row.busbw_in_place
    if row.wrong is None:
        raise ParseError(PROGRAM, "the engine did not check the result")
    return float(row.wrong)


def _of_row(run: Proven, measurement: Measurement) -> dict[str, Any]:
    row = run.row(int(measurement.labels["bytes"]))
    in_place = {} if row.busbw_in_place is None else {"busbw_in_place": row.busbw_in_place}
    return {"bytes": row.bytes, **in_place}


def _rails_of(runs: Sequence[Proven], architecture: Architecture) -> int:
    """Runs of one launch: one for each rail, where a run is bound to one. Raises ParseError if one is missing."""
    fabric = architecture.fabric
    bound = [run.requested.interface for run in runs]
    rails = bound[:1]
    if fabric is not None and None not in bound:
        rails = [f"{fabric.interface_prefix}{rail}" for rail in range(fabric.rails)]
    if not runs or bound != rails * (len(bound) // len(rails)):
        raise ParseError(PROGRAM, f"expected one run of it for each rail, actual {len(runs)}")
    return len(rails)


def _all_proven(
    engine: str, runs: Sequence[CommandResult], answers: Sequence[CommandResult], architecture: Architecture
) -> list[Proven]:
    """The runs in their order. Raises ParseError, for a failed run with its message."""
    proven = []
    for number, answer in enumerate(runs):
        try:
            proven.append(_proven(engine, answer, number, len(runs), answers, architecture))
        except Mismatch:
            raise
        except ParseError as error:
            raise (error if answer.ok else why_failed(answer, answers)) from None
    _rails_of(proven, architecture)
    return proven


def _proven(
    engine: str,
    answer: CommandResult,
    number: int,
    runs: int,
    answers: Sequence[CommandResult],
    architecture: Architecture,
    *,
    beside: bool = False,
) -> Proven:
    """Raises Mismatch if the run is not the requested one."""
    requested = requested_by(answer.command)
    reported = ENGINES[engine](answer.text, requested.op)
    alone = not requested.hosts
    if alone:
        requested = requested.at(answer.node)
    if requested.seconds:
        requested = replace(requested, iterations=reported.iterations or 0)
    watched = () if alone or architecture.fabric is None else requested.hosts
    counters = {node: _counters(node, number, runs, answers) for node in watched}
    logs = dict(_logs(requested, number, runs, answers))
    names = {} if alone else {node: node for node in requested.hosts}
    names |= {node: _short(before.hostname) for node, (before, _) in counters.items()}
    names |= {node: _short(log.hostname) for node, log in logs.items()}
    _compare(
        (
            ("engine", (engine, engine), (requested.engine, reported.engine)),
            ("backend", requested.backend, reported.backend),
            ("operation", requested.op, reported.op),
            ("ranks", requested.ranks, len(reported.rank_hosts)),
            ("ranks by host", _by_host(names, requested), _counted(reported.rank_hosts, names)),
            ("element", ELEMENT[engine], reported.element),
            ("number of sizes", len(requested.sizes), len(requested.sizes if reported.fault else reported.rows)),
            ("iterations", requested.iterations, reported.iterations),
            ("warm-up", requested.warmup, reported.warmup),
        )
    )
    split = 1 if requested.rail is None else requested.ranks_per_node
    if split > 1 and reported.groups != tuple(rank % split for rank in range(requested.ranks)):
        raise Mismatch(PROGRAM, f"expected {split} groups of ranks, actual {len(set(reported.groups))}")
    for size, row in zip(requested.sizes, reported.rows, strict=reported.fault is None):
        if row.bytes > max(size, 64 * requested.ranks):
            raise Mismatch(PROGRAM, f"expected a size of {size} B, actual {row.bytes} B")
    conditions: dict[str, Any] = {
        "command": answer.command,
        "nodes": len(requested.hosts),
        "ranks": requested.ranks,
        "element": reported.element,
        "iterations": requested.iterations,
        **({"backend": reported.backend} if reported.backend else {}),
    }
    fault = reported.fault
    try:
        if fault is None and architecture.fabric is not None and not alone:
            sizes = [row.bytes for row in reported.rows]
            conditions |= passed(requested, sizes, counters, architecture, architecture.fabric, beside=beside)
    except ParseError as error:
        fault = error
    if logs and reported.fault is None:
        conditions |= conditions_of(logs) | _asked_for(requested)
        if requested.rail is not None:
            conditions["path"] = "GDRDMA" if conditions.get("gpudirect") else "host memory"
        try:
            check_used(logs, requested.asked(len(requested.hosts)), architecture)
        except Mismatch as mismatch:
            fault = mismatch
    return Proven(requested, reported.rows, conditions, fault)


def proven_run(
    engine: str,
    answer: CommandResult,
    answers: Sequence[CommandResult],
    architecture: Architecture,
    *,
    beside: bool = False,
) -> Proven:
    """The only run of ``answers``, between two readings of each of its nodes. Raises ParseError.

    ``beside``: other traffic used the ports at the same time.
    """
    return _proven(engine, answer, 0, 1, answers, architecture, beside=beside)


def _asked_for(requested: Requested) -> dict[str, str]:
    """Variables of NCCL on the command line, but for those that only make it speak."""
    return {
        name: value
        for name, value in requested.environment.items()
        if name.startswith("NCCL_") and not name.startswith("NCCL_DEBUG")
    }


def _logs(
    requested: Requested, number: int, runs: int, answers: Sequence[CommandResult]
) -> Iterator[tuple[str, NcclLog]]:
    """NCCL's logs, by node; nothing for engines without it."""
    for node in requested.hosts if "NCCL_DEBUG" in requested.environment else ():
        readings = log_readings(answer for answer in answers if answer.node == node)
        if len(readings) != runs + 1:
            raise ParseError("NCCL", f"{node}: expected {runs + 1} readings of its logs, actual {len(readings)}")
        yield node, log_of(readings[number + 1])


def _readings_beside(answers: Sequence[CommandResult], node: str) -> list[CommandResult]:
    """Readings that belong to the numbers: of all nodes, or of one."""
    own = [answer for answer in answers if node in ("", answer.node)]
    return [*readings_of(own), *log_readings(own)]


def _counters(node: str, number: int, runs: int, answers: Sequence[CommandResult]) -> tuple[PortCounters, PortCounters]:
    """Counters before and after a run. The node is read before the first run and after each run."""
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
