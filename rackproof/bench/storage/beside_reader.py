"""Losses of reads and a collective beside each other, from runs of each alone and of both at once.

Rank 0 and fio's launcher run on the same node, so that one clock times both: rank 0 tells when each call began, fio in
which second it started its clients. The reads are beside the collective from the first to the last, and of the
collective only calls count that began and ended while all clients read for sure.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import fmean
from typing import Any, Final, NamedTuple

from rackproof.bench.collectives.command import launcher_of, leads, requested_by
from rackproof.bench.collectives.nccl_used import log_readings
from rackproof.bench.collectives.reader import proven_run
from rackproof.bench.port_proof import counters_of, readings_of
from rackproof.bench.reading import Reading
from rackproof.bench.storage.byte_counters import check_sent
from rackproof.bench.storage.conditions import conditions_of
from rackproof.bench.storage.result import Proven, proven
from rackproof.bench.storage.runs import Run, runs_of
from rackproof.core.architecture import Architecture
from rackproof.core.collective import busbw_factor
from rackproof.core.evidence import Measurement
from rackproof.core.metrics import BESIDE_LOSSES
from rackproof.parse import Mismatch, ParseError
from rackproof.parse.mpi_collectives import parse_mpi_collectives
from rackproof.remote.command import CommandResult

ALONE: Final = "alone"
BESIDE: Final = "beside-collectives"
LEAST_CALLS: Final = 10
"""Minimum number of calls, whose mean counts."""
LEAST_SHARE: Final = 0.5
"""Minimum share of the reads' time that the ranks spend in calls: between them they check results."""
_TOOL: Final = "collectives"


class Call(NamedTuple):
    """One call of the slowest rank, seconds since 1970 by rank 0's clock."""

    begin_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s


class Reads(NamedTuple):
    """When fio's clients read, seconds since 1970 by its launcher's clock."""

    earliest_s: float
    latest_s: float
    """All reads lie between ``earliest_s`` and ``latest_s``."""
    begin_s: float
    end_s: float
    """From ``begin_s`` to ``end_s`` all clients read without a break."""


class Collective(NamedTuple):
    """One run of the collective; ``busbw`` in GB/s is of the mean of some of its calls."""

    calls: tuple[Call, ...]
    bytes_on_bus: float
    conditions: dict[str, Any]

    def busbw(self, calls: Sequence[Call]) -> float:
        return self.bytes_on_bus / fmean(call.seconds for call in calls) / 1e9


def job_name(storage: str, when: str) -> str:
    return f"{storage}-{when}"


def calls_of(answer: CommandResult) -> tuple[Call, ...]:
    """Calls of the only size of a run. Raises ParseError."""
    if not answer.ok:
        raise ParseError(_TOOL, f"{answer.node}: {answer.why}")
    (point, *others) = parse_mpi_collectives(answer.text).points
    if others or not point.began_s:
        raise ParseError(_TOOL, "expected one size with the time of each call")
    if point.wrong:
        raise ParseError(_TOOL, f"{point.wrong} wrong values in the result, its bandwidth says nothing")
    return tuple(Call(at, at + took / 1e6) for at, took in zip(point.began_s, point.samples_us, strict=True))


def read_wrong(answers: Sequence[CommandResult], measurement: Measurement, architecture: Architecture) -> Reading:
    """Wrong values by run of the collective, whatever else went wrong; where there are none, the losses' proof counts.

    Raises ParseError.
    """
    printed = [(run[0], count) for run in _started(answers) if (count := _wrong_of(run[0], measurement)) is not None]
    if any(count for _, count in printed):
        used = tuple(answer for answer, _ in printed)
        return Reading(tuple(float(count) for _, count in printed), used, {"workload": _asked(used[0])})
    loss = read_beside(answers, measurement.model_copy(update={"metric": BESIDE_LOSSES[0]}), architecture)
    return loss._replace(samples=tuple(0.0 for _ in loss.samples), companions={})


def _wrong_of(answer: CommandResult, measurement: Measurement) -> int | None:
    """Wrong values that a run of the declared collective prints, also if it fails; None without such an output."""
    with suppress(ParseError):
        requested = requested_by(answer.command)
        points = parse_mpi_collectives(answer.text).points
        asked = (requested.op, sorted(requested.hosts), [str(point.bytes) for point in points])
        if asked == (measurement.labels["op"], sorted(measurement.members), [measurement.labels["bytes"]]):
            return points[0].wrong
    return None


def read_beside(answers: Sequence[CommandResult], measurement: Measurement, architecture: Architecture) -> Reading:
    """One sample per repetition: reads alone, the collective alone, both at once. Raises ParseError."""
    nodes, name = list(measurement.members), measurement.labels["storage"]
    storage, runs = architecture.storage[name], runs_of(answers)
    _check_jobs(runs, nodes, name)
    results = [[proven(run, node, storage) for node in nodes] for run in runs]
    for run in runs:
        check_sent(run, storage)
    reads = [_reads(run, own) for run, own in zip(runs, results, strict=True)]
    collectives, used = _collectives(answers, measurement, architecture)
    if len(collectives) != len(runs):
        raise ParseError(_TOOL, f"expected {len(runs)} runs of it, actual {len(collectives)}")
    samples, companions = [], []
    for alone, both in zip(range(0, len(runs), 2), range(1, len(runs), 2), strict=True):
        for collective in collectives:
            _check_apart(reads[alone], collective)
        for of_fio in reads:
            _check_apart(of_fio, collectives[alone])
        own = _calls_beside(reads[both], collectives[both])
        rates = [sum(one.moved.bandwidth_bytes_per_s for one in results[at]) / 1e6 for at in (alone, both)]
        busbw = [collectives[alone].busbw(collectives[alone].calls), collectives[both].busbw(own)]
        before, beside = rates if measurement.metric == BESIDE_LOSSES[0] else busbw
        samples.append(max(0.0, 100 * (1 - beside / before)))
        companions.append({
            "storage_alone_mb_per_s": rates[0], "storage_beside_mb_per_s": rates[1],
            "collectives_alone_gb_per_s": busbw[0], "collectives_beside_gb_per_s": busbw[1],
            "overlap_s": reads[both].end_s - reads[both].begin_s, "calls": float(len(own)),
        })  # fmt: skip
    conditions = conditions_of(runs, nodes, storage, len(runs[0].before))
    conditions["workload"] |= {"runs": len(samples)} | _asked(used[0])
    conditions |= collectives[-1].conditions
    return Reading(
        tuple(samples),
        (*(run.launch.answer for run in runs), *used),
        conditions,
        {key: tuple(own[key] for own in companions) for key in companions[0]},
    )


def _check_jobs(runs: Sequence[Run], nodes: Sequence[str], name: str) -> None:
    """Pairs of runs of one job on all clients. Raises ParseError."""
    asked: set[tuple[tuple[str, str], ...]] = set()
    for number, run in enumerate(runs):
        if not run.launch.answer.ok:
            raise ParseError("fio", run.launch.answer.why)
        if set(run.launch.jobs) != set(nodes) or set(run.launch.entries) != set(nodes):
            raise ParseError("fio", "it reports other clients than took part")
        if run.launch.answer.node != nodes[0]:
            raise ParseError("fio", f"its launcher is {run.launch.answer.node}, whose clock is not rank 0's")
        expected = job_name(name, BESIDE if number % 2 else ALONE)
        for job in run.launch.jobs.values():
            if (job["name"], job["rw"], job.get("time_based")) != (expected, "read", "1"):
                raise ParseError("fio", f"expected {expected}, actual {job['name']}")
            asked.add(tuple(sorted((key, job[key]) for key in job if key not in ("name", "directory"))))
    if not runs or len(runs) % 2:
        raise ParseError("fio", "expected a run beside the collective after each run alone")
    if len(asked) > 1:
        raise ParseError("fio", "its runs had different options")


def _reads(run: Run, results: Sequence[Proven]) -> Reads:
    """fio tells the second of the start, and the controller a duration that is not too short."""
    started_ms = run.launch.result.timestamp_ms
    if started_ms is None:
        raise ParseError("fio", f"version {run.launch.result.version} does not report when it started its clients")
    job = next(iter(run.launch.jobs.values()))
    shortest = min(one.moved.runtime_ms for one in results) / 1000 + int(job.get("ramp_time", 0))
    earliest = started_ms // 1000
    latest = earliest + 1 + run.launch.answer.elapsed_s
    return Reads(earliest, latest, latest - shortest, earliest + shortest)


def _started(answers: Sequence[CommandResult]) -> list[list[CommandResult]]:
    """Answers of each run of the collective, the one with its figures first."""
    started: list[list[CommandResult]] = []
    for answer in answers:
        if launcher_of(answer.command):
            if leads(answer.command) or not started:
                started.append([])
            started[-1].append(answer)
    return started


def _collectives(
    answers: Sequence[CommandResult], measurement: Measurement, architecture: Architecture
) -> tuple[list[Collective], list[CommandResult]]:
    """The runs of the collective in order, and all answers with their proof. Raises ParseError.

    Counters of ports prove the path of the runs alone; beside reads they count both.
    """
    nodes, labels = list(measurement.members), measurement.labels
    started = _started(answers)
    readings = [
        of_node
        for node in nodes
        for read in (readings_of, log_readings)
        if (of_node := read([answer for answer in answers if answer.node == node]))
    ]
    if any(len(of_node) != 2 * len(started) for of_node in readings):
        raise ParseError(_TOOL, "expected a reading of every node before and after each run")
    of_first = readings_of(answer for answer in answers if answer.node == nodes[0])
    name = (counters_of(of_first[0]).hostname if of_first else nodes[0]).partition(".")[0]
    collectives, asked = list[Collective](), set[str]()
    for number, run in enumerate(started):
        for answer in run:
            if not answer.ok:
                raise ParseError(_TOOL, f"{answer.node}: {answer.why}")
        requested = requested_by(run[0].command)
        beside = [reading for of_node in readings for reading in of_node[2 * number : 2 * number + 2]]
        one = proven_run(requested.engine, run[0], [*run, *beside], architecture, beside=bool(number % 2))
        if one.fault is not None:
            raise one.fault
        sized = (sorted(requested.hosts), requested.op, requested.sizes)
        if sized != (sorted(nodes), labels["op"], (int(labels["bytes"]),)):
            raise Mismatch(_TOOL, f"expected {labels['op']} of {labels['bytes']} B on the clients, actual {sized}")
        if (host := parse_mpi_collectives(run[0].text).hosts[0].partition(".")[0]) != name:
            raise Mismatch(_TOOL, f"rank 0 is on {host}, expected {name}: its clock is not that of fio's launcher")
        asked.add(str(replace(requested, seconds=0)))
        calls, factor = calls_of(run[0]), busbw_factor(requested.op, requested.ranks)
        if calls[-1].end_s - calls[0].begin_s < LEAST_SHARE * requested.seconds:
            raise ParseError(_TOOL, f"expected calls for {requested.seconds} s, actual fewer")
        conditions = {"engine": requested.engine, **one.conditions}
        collectives.append(Collective(calls, one.row(int(labels["bytes"])).bytes * factor, conditions))
    if len(asked) != 1:
        raise Mismatch(_TOOL, f"expected the same collective in all runs, actual {len(asked)}")
    return collectives, [answer for part in (*started, *readings) for answer in part]


def _asked(answer: CommandResult) -> dict[str, Any]:
    """The profile's parameters, as the command line has them."""
    asked = requested_by(answer.command)
    return {
        "engine": asked.engine, "op": asked.op, "message_bytes": asked.sizes[0], "warmup": asked.warmup,
        "ranks_per_node": asked.ranks_per_node,
    }  # fmt: skip


def _check_apart(reads: Reads, collective: Collective) -> None:
    """Raises ParseError if what was to run alone did not."""
    if reads.begin_s < collective.calls[-1].end_s and collective.calls[0].begin_s < reads.end_s:
        raise ParseError(_TOOL, "expected each to run alone first, actual both at once")


def _calls_beside(reads: Reads, collective: Collective) -> list[Call]:
    """Calls during the reads. Raises ParseError unless the reads are beside the collective from first to last."""
    begin, end = collective.calls[0].begin_s, collective.calls[-1].end_s
    if begin > reads.earliest_s or end < reads.latest_s:
        late, early = max(0.0, begin - reads.earliest_s), max(0.0, reads.latest_s - end)
        raise ParseError(
            _TOOL,
            f"the calls began {late:.1f} s after the first read and ended {early:.1f} s before the last, expected 0",
        )
    calls = [call for call in collective.calls if call.begin_s >= reads.begin_s and call.end_s <= reads.end_s]
    if len(calls) < LEAST_CALLS:
        raise ParseError(
            _TOOL, f"{len(calls)} calls while all clients read, expected {LEAST_CALLS}: raise the profile's runtime_s"
        )
    share = sum(call.seconds for call in calls) / (reads.end_s - reads.begin_s)
    if share < LEAST_SHARE:
        raise ParseError(
            _TOOL,
            f"the ranks spent {share:.0%} of the reads' time in calls, expected {LEAST_SHARE:.0%}: raise message_bytes",
        )
    return calls
