"""The knee from a step's runs of fio: every load that the search asks for, in its order, each with the proof of a run.

A search is replayed: a run that the search would not have asked for, or a missing one, means no number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from rackproof.bench.reading import Reading
from rackproof.bench.storage.byte_counters import check_sent
from rackproof.bench.storage.conditions import conditions_of
from rackproof.bench.storage.fio_launch import ADD_UP
from rackproof.bench.storage.proof import check_at_once
from rackproof.bench.storage.result import Proven, proven
from rackproof.bench.storage.runs import Run
from rackproof.core.architecture import KneeProfile, Storage
from rackproof.core.evidence import Measurement
from rackproof.core.knee import (
    LEAST_REQUESTS,
    LITTLE,
    Knee,
    LoadStep,
    Search,
    closed_loop,
    fit_scalability,
    knee_of,
    little_error,
    open_loop,
    peak_of,
    smallest,
)
from rackproof.core.metrics import AT_LEAST
from rackproof.core.wording import exact
from rackproof.parse import ParseError

OUTSTANDING: Final = "storage.knee_outstanding"
UTILISATION: Final = "storage.knee_utilisation"
KNEE: Final = (OUTSTANDING, UTILISATION)
CLOSED: Final = "closed"
OPEN: Final = "open"
_NAME: Final = re.compile(
    r"(?P<storage>.+)-knee(?P<run>\d+)-(?P<loop>closed|open)-(?P<load>\d+)of(?P<most>\d+)x(?P<processes>\d+)"
)
_KEPT_UP: Final = 0.9
"""Minimum ratio of served to offered requests; below it the storage is saturated. 500 random ones vary by 9 %."""
_SPARE: Final = 1.2
"""Factor on the needed requests: of 600 expected arrivals at least 500 come, in all but one of 20,000 runs."""
_LONGEST: Final = 10
"""A run with few arrivals lasts at most so many times as long as the profile's."""
_SHOWN: Final = (50.0, 95.0, 99.0, 99.9)
"""Percentiles of the curve."""


def job_name(storage: str, run: int, loop: str, load: int, profile: KneeProfile) -> str:
    """The limits of the search are part of it, so that the search can be replayed."""
    return f"{storage}-knee{run}-{loop}-{load}of{profile.most_outstanding}x{profile.processes}"


def arrivals_of(peak_rate: float, percent: int, clients: int, processes: int) -> tuple[int, int]:
    """Processes of a client, and requests a second of each, for a share of the highest rate."""
    per_client = peak_rate * percent / 100 / clients
    used = max(1, min(processes, int(per_client // 100)))  # 100/s each if possible: rates are whole numbers
    return used, max(1, round(per_client / used))


def long_enough(runtime_s: int, arrivals: float) -> int:
    """Seconds until so many requests a second give a 99th percentile; at most ``_LONGEST`` times the profile's. Without
    any, as after a ramp whose requests still wait, the longest."""
    longest = _LONGEST * runtime_s
    return min(max(runtime_s, ceil(_SPARE * LEAST_REQUESTS / arrivals)), longest) if arrivals else longest


class TooFewRequests(ParseError):
    """A run was too short for a 99th percentile."""

    def __init__(self, reason: str, per_second: float) -> None:
        super().__init__("fio", reason)
        self.per_second = per_second
        """Requests a second of the slowest client."""


@dataclass(frozen=True)
class Measured:
    """One run of a search."""

    step: LoadStep
    outstanding: int
    """Closed loop: requests in flight of all clients."""
    results: tuple[Proven, ...]
    run: Run

    @property
    def row(self) -> dict[str, float]:
        """The step in the curve; percentiles, in µs, are the slowest client's."""
        rows: dict[str, float] = {"load": self.step.load, "rate": round(self.step.rate, 3)}
        if self.outstanding:
            rows["outstanding"] = self.outstanding
        for percentile in _SHOWN:
            values = [result.moved.percentiles_ns.get(percentile, 0.0) for result in self.results]
            rows[f"p{exact(percentile)}_us"] = round(max(values) / 1e3, 3)
        return rows


def _off(result: Proven) -> float:
    numbers = result.companions
    return abs(little_error(numbers["iops"], numbers.get("latency_s", 0.0), numbers["outstanding"]))


def measured_step(run: Run, nodes: Sequence[str], storage: Storage) -> Measured:
    """The load and the latencies of one run. Raises TooFewRequests, ParseError."""
    if not run.launch.answer.ok:
        raise ParseError("fio", run.launch.answer.why)
    results = tuple(proven(run, node, storage) for node in nodes)
    check_at_once(run, (result.moved for result in results), storage)
    check_sent(run, storage)
    match = _NAME.fullmatch(run.launch.jobs[nodes[0]]["name"])
    if match is None or any(run.launch.jobs[node]["name"] != match[0] for node in nodes):
        raise ParseError("fio", "its jobs are not one load of a search")
    load = int(match["load"])
    requests, last = min((result.moved.total_ios or 0, node) for node, result in zip(nodes, results, strict=True))
    if requests < LEAST_REQUESTS:
        raise TooFewRequests(
            f"{requests} requests of {last} at load {load} are too few for a 99th percentile, expected"
            f" {LEAST_REQUESTS}: let runs of the profile's knee last longer",
            requests / int(run.launch.jobs[last]["runtime"]),
        )
    slowest = 0.0
    for node, result in zip(nodes, results, strict=True):
        p99 = result.moved.percentiles_ns.get(99.0)
        if not p99:
            raise ParseError("fio", f"no 99th percentile of {node}")
        slowest = max(slowest, p99 / 1e9)
    jobs = [run.launch.jobs[node] for node in nodes]
    rate = sum(result.moved.iops for result in results)
    arrivals = sum(int(job.get("rate_iops", 0)) * int(job["numjobs"]) for job in jobs)
    if (match["loop"] == OPEN) != bool(arrivals) or (
        arrivals and any(j.get("rate_process") != "poisson" for j in jobs)
    ):
        raise ParseError("fio", "expected Poisson arrivals in runs of the open loop, and only there")
    in_flight = sum(int(job["numjobs"]) * int(job["iodepth"]) for job in jobs)
    if not arrivals and in_flight != load * len(nodes):
        raise ParseError("fio", f"expected {load} requests in flight of each client, actual {in_flight} together")
    lawful = bool(arrivals) or all(_off(result) <= LITTLE for result in results)
    step = LoadStep(load, rate, slowest, rate < _KEPT_UP * arrivals, lawful)
    return Measured(step, 0 if arrivals else in_flight, results, run)


def read_knee(runs: Sequence[Run], measurement: Measurement, storage: Storage) -> Reading:
    """One sample per search. Raises ParseError."""
    nodes = list(measurement.members)
    name, block = measurement.labels["storage"], measurement.labels["block_bytes"]
    loop = CLOSED if measurement.metric == OUTSTANDING else OPEN
    searches, limits = _searches(runs, nodes, name, block, storage, loop)
    numbers = sorted({number for number, own in searches if own == loop})
    if not numbers or numbers != list(range(1, len(numbers) + 1)):
        raise ParseError("fio", "no complete search for the knee")
    samples, companions, curves, open_ended = [], [], [], False
    for number in numbers:
        closed = searches.get((number, CLOSED), [])
        _replay([entry.step for entry in closed], closed_loop(limits["processes"], limits["most_outstanding"]))
        peak = peak_of(smallest(entry.step for entry in closed))
        entries = searches[number, loop]
        if loop == OPEN:
            if not peak.lawful:
                raise ParseError("fio", "the highest rate, of which arrivals are a share, contradicts Little's law")
            _replay([entry.step for entry in entries], open_loop())
            _check_arrivals(entries, peak.rate, nodes, limits["processes"])
        try:
            knee = knee_of([entry.step for entry in entries])
        except ValueError as error:
            raise ParseError("fio", str(error)) from None
        if loop == CLOSED:
            samples.append((knee.load if knee else closed[-1].step.load) * len(nodes))
            open_ended |= knee is None
        elif knee is None:
            raise ParseError("fio", "latency has not doubled at the highest rate: no share of it is a knee")
        else:
            samples.append(100 * knee.rate / peak.rate)
        companions.append(_companions(entries, in_flight=loop == CLOSED))
        curves.append(_curve(number, knee, entries, peak))
    used = [entry.run for own in searches.values() for entry in own]
    conditions = conditions_of(used, nodes, storage, len(used[0].before))
    options = min((run.launch.jobs[nodes[0]] for run in runs), key=lambda job: int(job["runtime"]))
    sizes = {"block_bytes": "bs", "file_bytes": "size", "runtime_s": "runtime"}
    conditions["workload"] = {key: int(options[option]) for key, option in sizes.items()} | limits
    conditions["workload"] |= {"ramp_s": int(options.get("ramp_time", 0)), "runs": len(numbers)}
    conditions["curves"] = curves
    if open_ended:
        most = max(entry.outstanding for own in searches.values() for entry in own)
        why = f"latency has not doubled with {most} requests in flight, the most that were asked for"
        conditions[AT_LEAST] = f"{why}: raise most_outstanding of the profile's knee"
    complete = {
        key: tuple(own[key] for own in companions) for key in companions[0] if all(key in c for c in companions)
    }
    return Reading(tuple(samples), tuple(run.launch.answer for run in runs), conditions, complete)


def _searches(
    runs: Sequence[Run], nodes: Sequence[str], name: str, block: str, storage: Storage, loop: str
) -> tuple[dict[tuple[int, str], list[Measured]], dict[str, int]]:
    """Runs by number and loop of their search, and the limits that all searches share.

    Runs with arrivals do not spoil the number of those without: they may be too few at 5 % of a low rate. A run with
    too few requests is left out where a longer one of the same load follows.
    """
    searches: dict[tuple[int, str], list[Measured]] = {}
    limits: dict[str, int] = {}
    for run, following in zip(runs, [*runs[1:], None], strict=True):
        if set(run.launch.jobs) != set(nodes) or set(run.launch.entries) != set(nodes):
            raise ParseError("fio", "it reports other clients than took part")
        job = run.launch.jobs[nodes[0]]
        match = _NAME.fullmatch(job["name"])
        if match is None or match["storage"] != name or any(run.launch.jobs[node]["bs"] != block for node in nodes):
            raise ParseError("fio", f"expected a search of {name} with blocks of {block} B, actual {job['name']}")
        own = {"processes": int(match["processes"]), "most_outstanding": int(match["most"])}
        if (limits := limits or own) != own:
            raise ParseError("fio", "its searches have different limits")
        if loop == CLOSED and match["loop"] == OPEN:
            continue
        entries = searches.setdefault((int(match["run"]), match["loop"]), [])
        try:
            entries.append(measured_step(run, nodes, storage))
        except TooFewRequests:
            if following is None or not _is_longer(following.launch.jobs.get(nodes[0], {}), job):
                raise
    return searches, limits


def _is_longer(job: Mapping[str, str], than: Mapping[str, str]) -> bool:
    """Whether a job of fio is another one for a longer time."""
    return job == {**than, "runtime": job.get("runtime", "")} and int(job["runtime"]) > int(than["runtime"])


def _replay(steps: Sequence[LoadStep], search: Search) -> None:
    """The steps are those of the search, up to its end. Raises ParseError."""
    for number in range(len(steps) + 1):
        expected = search.next(steps[:number])
        actual = steps[number].load if number < len(steps) else None
        if expected != actual:
            raise ParseError("fio", f"the search's next load is {expected or 'none'}, actual {actual or 'none'}")


def _check_arrivals(entries: Sequence[Measured], peak_rate: float, nodes: Sequence[str], processes: int) -> None:
    """The offered rates are the shares of the highest rate. Raises ParseError."""
    for entry in entries:
        expected = arrivals_of(peak_rate, entry.step.load, len(nodes), processes)
        for node in nodes:
            job = entry.run.launch.jobs[node]
            actual = int(job["numjobs"]), int(job["rate_iops"])
            if actual != expected:
                raise ParseError(
                    "fio",
                    f"expected {expected[1]} arrivals a second in {expected[0]} processes at {entry.step.load} %,"
                    f" actual {actual[1]} in {actual[0]}",
                )


def _companions(entries: Sequence[Measured], *, in_flight: bool) -> dict[str, float]:
    """Numbers for the gates: of the worst client and step by Little's law, the largest cache, files of all clients."""
    sums = [
        {key: sum(result.companions[key] for result in entry.results) for key in ADD_UP if _in_all(key, entry.results)}
        for entry in entries
    ]
    shared = {key for own in sums for key in own} - {key for key in ADD_UP if any(key not in own for own in sums)}
    numbers = {"dataset_bytes": sums[0]["dataset_bytes"]} | {key: max(own[key] for own in sums) for key in shared}
    for key in ("iops", "outstanding"):
        numbers.pop(key, None)
    if in_flight:
        best = smallest(entry.step for entry in entries)
        worst = max((result for entry in entries if entry.step in best for result in entry.results), key=_off)
        numbers |= {
            key: worst.companions[key] for key in ("iops", "latency_s", "outstanding") if key in worst.companions
        }
    return numbers


def _in_all(key: str, results: Sequence[Proven]) -> bool:
    return all(key in result.companions for result in results)


def _curve(number: int, knee: Knee | None, entries: Sequence[Measured], peak: LoadStep) -> dict[str, Any]:
    """All steps of a search for the report, by load, and what was found."""
    rows = sorted((entry.row for entry in entries), key=lambda row: row["load"])
    curve: dict[str, Any] = {"search": number, "steps": rows, "peak_rate": round(peak.rate, 3)}
    if knee is None:
        curve["knee"] = "not reached: the number is a lower bound"
    else:
        curve["knee"] = {"load": round(knee.load, 3), "rate": round(knee.rate, 3), "between": [knee.below, knee.above]}
    law = fit_scalability([(entry.outstanding, entry.step.rate) for entry in entries if entry.outstanding])
    if law is not None:
        curve["scalability"] = law.figures
    return curve
