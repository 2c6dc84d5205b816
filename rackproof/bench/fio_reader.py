"""Samples of storage in evidence of older kits, without proof of what was measured; ``storage_reader`` has it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rackproof.bench.reading import Read, Reading
from rackproof.bench.storage_commands import DROP
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement, Scope
from rackproof.parse import ParseError, fio
from rackproof.remote.command import CommandResult

RAM, CACHED = "client_ram_bytes", "cached_bytes_start"
ADD_UP = ("application_bytes", CACHED, RAM, "dataset_bytes", "iops", "outstanding")
"""Companions of clients whose sum is the rack's."""
AGREEMENT = 0.02
"""Tolerance of a rate against total over run time, as a share, and in seconds of run time for rounded numbers."""
WORKLOADS = {
    "storage.read_bandwidth": "read",
    "storage.write_bandwidth": "write",
    "storage.random_read_iops": "randread",
    "storage.random_read_latency": "randread",
}
"""Metric: the ``rw`` of its job."""
_CLIENT = re.compile(r"--client=(\S+),\d+")
_OPTIONS = {
    "rw": "rw", "bs": "block_bytes", "iodepth": "iodepth", "numjobs": "numjobs", "size": "file_bytes",
    "runtime": "runtime_s", "ramp_time": "ramp_s",
}  # fmt: skip


@dataclass(frozen=True)
class Launch:
    """One run of fio over several clients, and what was asked of nodes between the run before it and this one."""

    answer: CommandResult
    before: tuple[CommandResult, ...]
    clients: Mapping[str, str] = field(default_factory=dict)
    """Nodes by the address that fio was given."""
    jobs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By node: the options of its job file, and ``name``."""

    @cached_property
    def result(self) -> fio.FioResult:
        return fio.parse_fio(self.answer.stdout)

    @cached_property
    def entries(self) -> dict[str, fio.JobResult]:
        """fio's result of each node, in fio's order."""
        named = ((self.clients.get(entry.client or ""), entry) for entry in self.result.jobs)
        return {node: entry for node, entry in named if node is not None}

    @cached_property
    def memory(self) -> dict[str, dict[str, float]]:
        return {answer.node: memory(answer.text) for answer in self.before if RAM in answer.command}

    @property
    def asked(self) -> int:
        """How many clients were prepared for it."""
        return len(self.memory)

    @property
    def servers_dropped(self) -> bool | None:
        """Whether all servers dropped their caches; None where none was asked."""
        answers = [answer for answer in self.before if answer.command == DROP]
        return all(answer.ok for answer in answers) if answers else None


def launches(answers: Sequence[CommandResult]) -> Iterator[Launch]:
    """Every run of fio in a step's answers."""
    before: list[CommandResult] = []
    for answer in answers:
        if not _CLIENT.search(answer.command):
            before.append(answer)
            continue
        words = shlex.split(answer.command)
        files = {
            words[at + 2].removeprefix("$d/").removesuffix(".fio"): words[at] for at in _places(words, ">")
        }  # fmt: skip
        clients = {
            match[1]: words[at + 1].removeprefix("$d/").removesuffix(".fio")
            for at, word in enumerate(words)
            if (match := _CLIENT.fullmatch(word))
        }
        yield Launch(answer, tuple(before), clients, {node: _options(text) for node, text in files.items()})
        before = []


def _places(words: Sequence[str], mark: str) -> Iterator[int]:
    """Positions of the words before each ``mark`` that a file's name follows."""
    return (at - 1 for at, word in enumerate(words) if word == mark and words[at + 1].endswith(".fio"))


def _options(text: str) -> dict[str, str]:
    name, *lines = text.splitlines()
    return {"name": name.strip("[]")} | {key: value for key, _, value in (line.partition("=") for line in lines)}


def memory(text: str) -> dict[str, float]:
    """Lines such as ``client_ram_bytes 1026392064``; others are left out."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if name in (RAM, CACHED) and number.strip().isdecimal():
            values[name] = float(number)
    return values


def read_fio(answers: Sequence[CommandResult], architecture: Architecture) -> Read:
    """One sample per run. Runs before a client was lost do not count: they had other clients than the last one."""
    every = list(launches(answers))
    runs = [launch for launch in every if launch.clients == every[-1].clients]

    def read(measurement: Measurement) -> Reading:
        if not runs:
            raise ParseError("fio", "no run of it")
        nodes = [node for node in measurement.members if measurement.scope is Scope.NODE]
        samples, companions = [], []
        for launch in runs:
            if not launch.answer.ok:
                raise ParseError("fio", launch.answer.why)
            who = nodes or list(launch.entries)
            if not nodes and set(who) != set(measurement.members):
                raise ParseError("fio", "it reports other clients than took part")
            check_job(launch, who, measurement)
            samples.append(sum(_value(launch, node, measurement.metric) for node in who))
            companions.append(_companions(launch, who, summed=not nodes))
        whole = {
            name: tuple(run[name] for run in companions)
            for name in companions[0]
            if all(name in run for run in companions)
        }
        conditions = _conditions(runs, every[0].asked, measurement, architecture)
        return Reading(tuple(samples), tuple(launch.answer for launch in every), conditions, whole)

    return read


def check_job(launch: Launch, nodes: Sequence[str], measurement: Measurement) -> None:
    """Raises ParseError where fio was given another job than the measurement's."""
    rw = WORKLOADS[measurement.metric]
    expected = {"name": f"{measurement.labels['storage']}-{rw}", "rw": rw, "bs": measurement.labels["block_bytes"]}
    for node in nodes:
        job = launch.jobs.get(node)
        if job is None:
            raise ParseError("fio", f"no job of {node}")
        for option, value in expected.items():
            if job.get(option) != value:
                raise ParseError("fio", f"expected {option}={value}, actual {job.get(option)}")


def _entry(launch: Launch, node: str) -> fio.JobResult:
    entry = launch.entries.get(node)
    if entry is None:
        raise ParseError("fio", f"no result of {node}")
    if entry.error:
        raise ParseError("fio", f"error {entry.error} on {node}")
    if entry.jobname != launch.jobs[node]["name"]:
        raise ParseError("fio", f"expected a result of {launch.jobs[node]['name']}, actual {entry.jobname}")
    return entry


def _direction(launch: Launch, node: str) -> fio.Direction | None:
    entry = _entry(launch, node)
    direction = entry.write if launch.jobs[node].get("rw") == "write" else entry.read
    return None if direction is None else consistent(direction)


def consistent(direction: fio.Direction) -> fio.Direction:
    """The direction. Raises ParseError where its rates are not what its bytes, requests and run time give."""
    seconds = direction.runtime_ms / 1e3
    rates = [("bandwidth", direction.bandwidth_bytes_per_s, direction.io_bytes)]
    if direction.total_ios is not None:
        rates.append(("iops", direction.iops, direction.total_ios))
    for name, rate, total in rates:
        if seconds and abs(rate * seconds - total) > AGREEMENT * total + AGREEMENT * rate:
            raise ParseError("fio", f"{name} {rate:g} contradicts {total} in {seconds:g} s")
    return direction


def _value(launch: Launch, node: str, metric: str) -> float:
    direction = _direction(launch, node)
    if direction is None:
        raise ParseError("fio", f"no result of {metric} on {node}")
    if metric == "storage.random_read_iops":
        return direction.iops
    if metric == "storage.random_read_latency":
        if direction.clat is None:
            raise ParseError("fio", f"no completion latency of {node}")
        return direction.clat.mean_ns / 1e3
    return direction.bandwidth_bytes_per_s / 1e6


def _companions(launch: Launch, nodes: Sequence[str], *, summed: bool) -> dict[str, float]:
    """Of one client; of all of them together only what adds up."""
    each = [_beside(launch, node) for node in nodes]
    if not summed:
        return each[0]
    return {name: sum(one[name] for one in each) for name in ADD_UP if all(name in one for one in each)}


def _beside(launch: Launch, node: str) -> dict[str, float]:
    """Numbers of the same run: Little's law needs the whole latency, from submission on."""
    job, direction = launch.jobs[node], _direction(launch, node)
    numbers = dict(launch.memory.get(node, {}))
    numbers["dataset_bytes"] = float(int(job["size"]) * int(job["numjobs"]))
    numbers["outstanding"] = float(int(job["iodepth"]) * int(job["numjobs"]))
    if direction is not None:
        numbers["application_bytes"] = float(direction.io_bytes)
        numbers["iops"] = direction.iops
        if direction.lat is not None:
            numbers["latency_s"] = direction.lat.mean_ns / 1e9
    return numbers


def _conditions(
    runs: Sequence[Launch], asked: int, measurement: Measurement, architecture: Architecture
) -> dict[str, Any]:
    launch = runs[-1]
    storage = architecture.storage.get(measurement.labels["storage"])
    local = storage is not None and storage.class_ == "local"  # the kit cannot drop the cache of an appliance
    dropped = launch.servers_dropped
    job = next(iter(launch.jobs.values()))
    return {
        "io": "O_DIRECT" if job.get("direct") == "1" else "buffered",
        "cache": "cold" if dropped or local else "cold on clients, unknown on servers",
        "client_cache": "dropped before, bypassed",
        "server_cache": "none" if local else "dropped before" if dropped else "unknown",
        "clients": len(launch.clients),
        "clients_asked": asked,
        "fio": launch.result.version,
        "workload": workload(job, len(runs)),
    }


def workload(job: Mapping[str, str], runs: int) -> dict[str, Any]:
    """The job file's options under the names of ``FioJob``."""
    named = {key: job[option] for option, key in _OPTIONS.items() if option in job}
    numbers = {key: int(value) if value.isdecimal() else value for key, value in named.items()}
    return {"ramp_s": 0} | numbers | {"runs": runs}
