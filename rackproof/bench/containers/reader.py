"""Samples of containers. Each pair of runs proves what it measured, as in ``storage_reader``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rackproof.bench.reading import Read, Reading, reader, with_preamble
from rackproof.bench.storage.byte_counters import counted_bytes
from rackproof.bench.storage.commands import AFTER, BEFORE, DROP, state_of
from rackproof.bench.storage.fio_launch import workload
from rackproof.bench.storage.proof import (
    check_around,
    check_files,
    check_options,
    check_result,
    check_written,
)
from rackproof.bench.storage.runs import state_in
from rackproof.configure.containers.bridge import PROGRAM
from rackproof.core.architecture import Architecture, Storage
from rackproof.core.evidence import Measurement
from rackproof.core.fiojob import options_of
from rackproof.parse import ParseError, fio
from rackproof.remote.command import CommandResult

HOST, INSIDE, RATIO = "container.host_read_bandwidth", "container.read_bandwidth", "container.read_over_host"
JOB = "rackproof"
LAYOUT = "rackproof-layout"
"""Names of the jobs that measure and that write the files."""
_FIO = re.compile(r"(?:^|\s)fio --output-format=json ")


@dataclass
class Pair:
    """Two runs on a node, and its states before and after each of them; of earlier versions, those around both."""

    states: list[CommandResult]
    host: CommandResult | None = None
    inside: CommandResult | None = None


@dataclass(frozen=True)
class Proven:
    """Proven B/s on the node and in the container."""

    host: float
    inside: float
    version: str


def job_of(command: str) -> dict[str, str]:
    """Options of fio in a command, and its ``name``."""
    return options_of(shlex.split(command[command.rindex("fio --output-format=json") :]))


def result_of(answer: CommandResult) -> fio.JobResult:
    """The single job that a local fio reports. The exit status takes precedence. Raises ParseError."""
    if not answer.ok:
        raise ParseError("fio", answer.why)
    result = fio.parse_fio(answer.stdout)
    if len(result.jobs) != 1:
        raise ParseError("fio", f"expected the result of one job, actual {len(result.jobs)}")
    if result.jobs[0].error:
        raise ParseError("fio", f"error {result.jobs[0].error}")
    return result.jobs[0]


@reader("containers-proven")
@with_preamble
def read_containers(answers: Sequence[CommandResult], architecture: Architecture) -> Read:
    """One sample per pair of runs: first on the node, then in the container."""
    nodes = {answer.node for answer in answers if _FIO.search(answer.command)}

    def read(measurement: Measurement) -> Reading:
        (node,) = measurement.members
        layout, pairs = _runs([answer for answer in answers if answer.node == node])
        if not pairs:
            raise ParseError("fio", f"no pair of runs on {node}")
        runs = [answer for pair in pairs for answer in (pair.host, pair.inside) if answer is not None]
        times = [fio.parse_fio(answer.stdout).timestamp_ms or 0 for answer in runs if answer.ok]
        if times != sorted(times):
            raise ParseError("fio", "its outputs are not in the order of its runs")
        storage = architecture.storage[measurement.labels["storage"]]
        proven = [_proven(pair, layout, storage, measurement) for pair in pairs]
        values = {
            HOST: [pair.host / 1e6 for pair in proven],
            INSIDE: [pair.inside / 1e6 for pair in proven],
            RATIO: [pair.inside / pair.host for pair in proven],
        }
        conditions = conditions_of(job_of(runs[0].command), architecture, len(nodes), len(pairs)) | {
            "fio": proven[-1].version,
            "files": "written completely before, fallocate=none",
        }
        if drops := [answer for answer in answers if answer.command == DROP]:
            conditions["server_cache"] = "dropped before" if all(answer.ok for answer in drops) else "unknown"
        return Reading(tuple(values[measurement.metric]), tuple(runs), conditions)

    return read


def conditions_of(job: Mapping[str, str], architecture: Architecture, nodes: int, runs: int) -> dict[str, Any]:
    """Conditions of a fio ``job`` that ran on ``nodes`` nodes, ``runs`` times there and inside a container."""
    declared = architecture.containers
    return {
        "io": "O_DIRECT" if job.get("direct") == "1" else "buffered",
        "engine": job.get("ioengine", ""),
        "runtime": declared.runtime if declared else "",
        "privileges": "none",
        "nodes": nodes,
        "workload": workload(job, runs),
    }


def _runs(answers: Sequence[CommandResult]) -> tuple[CommandResult | None, list[Pair]]:
    """The last run that wrote files before the pairs, and the pairs."""
    layout: CommandResult | None = None
    pairs: list[Pair] = []
    for answer in answers:
        if asked := state_of(answer.command):
            between = bool(pairs) and pairs[-1].host is not None and pairs[-1].inside is None
            if asked[0] == BEFORE and not between:
                pairs.append(Pair([answer]))
            elif pairs:
                pairs[-1].states.append(answer)
        elif not _FIO.search(answer.command):
            continue
        elif job_of(answer.command).get("name") == LAYOUT:
            layout = answer
        elif pairs and PROGRAM not in answer.command:
            pairs[-1].host = answer
        elif pairs:
            pairs[-1].inside = answer
    return layout, pairs


def _proven(pair: Pair, layout: CommandResult | None, storage: Storage, measurement: Measurement) -> Proven:
    if pair.host is None or pair.inside is None or len(pair.states) not in (2, 4):
        raise ParseError("fio", "its runs are not pairs of node and container")
    if layout is None:
        raise ParseError("fio", "nothing wrote its files before")
    asked = job_of(pair.host.command)
    check_written(layout, result_of(layout), job_of(layout.command), asked)
    spans = [
        (state_in(before, BEFORE), state_in(after, AFTER))
        for before, after in zip(pair.states[::2], pair.states[1::2], strict=True)
    ]
    for before, after in spans:
        check_around(storage, before, after)
        check_files(before, asked)
    rates, moved = [], []
    for where, answer in (("on the node", pair.host), ("inside a container", pair.inside)):
        job = job_of(answer.command)
        try:
            if job != asked or job.get("name") != JOB or job.get("bs") != measurement.labels["block_bytes"]:
                raise ParseError("fio", "it was given another job")
            entry = result_of(answer)
            check_options(entry, job)
            direction = check_result(entry, job)
        except ParseError as error:
            raise ParseError(f"fio {where}", str(error).removeprefix("fio: ")) from None
        rates.append(direction.bandwidth_bytes_per_s)
        moved.append(direction.io_bytes)
    for (before, after), read in zip(spans, moved if len(spans) > 1 else [sum(moved)], strict=True):
        counted_bytes(storage, before, after, writes=False).check(read)
    of_node, version = (fio.parse_fio(answer.stdout).version for answer in (pair.host, pair.inside))
    versions = version if version == of_node else f"{of_node} on the node, {version} in the container"
    return Proven(rates[0], rates[1], versions)
