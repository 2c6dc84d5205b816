"""Samples of containers: the same fio job on the node and inside a container, in pairs of runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from rackproof.bench.fio_reader import consistent, workload
from rackproof.bench.reading import Read, Reading
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement
from rackproof.parse import ParseError, fio
from rackproof.remote.command import CommandResult

PROGRAM = "/usr/local/bin/rackproof-container"
HOST, INSIDE, RATIO = "container.host_read_bandwidth", "container.read_bandwidth", "container.read_over_host"
_FIO = re.compile(r"(?:^|\s)fio --output-format=json ")


def bandwidth(answer: CommandResult) -> float:
    """MB/s of a read. Raises ParseError, also where fio reports an error."""
    if not answer.ok:
        raise ParseError("fio", answer.why)
    result = fio.parse_fio(answer.stdout)
    if len(result.jobs) != 1 or result.jobs[0].error or result.jobs[0].read is None:
        raise ParseError("fio", "no result of one job that read")
    return consistent(result.jobs[0].read).bandwidth_bytes_per_s / 1e6


def read_containers(answers: Sequence[CommandResult], architecture: Architecture) -> Read:
    """One sample per pair of runs, first on the node, then inside."""
    by_node: dict[str, list[CommandResult]] = {}
    for answer in answers:
        if _FIO.search(answer.command):
            by_node.setdefault(answer.node, []).append(answer)

    def read(measurement: Measurement) -> Reading:
        (node,) = measurement.members
        runs = by_node.get(node, [])
        pairs = list(zip(runs[::2], runs[1::2], strict=False))
        if not pairs:
            raise ParseError("fio", f"no pair of runs on {node}")
        times = [fio.parse_fio(answer.stdout).timestamp_ms or 0 for answer in runs]
        if times != sorted(times):
            raise ParseError("fio", "its outputs are not in the order of its runs")
        samples = []
        for host, inside in pairs:
            if PROGRAM in host.command or PROGRAM not in inside.command:
                raise ParseError("fio", "its runs are not pairs of node and container")
            values = {HOST: bandwidth(host), INSIDE: bandwidth(inside)}
            if not values[HOST]:
                raise ParseError("fio", "it read nothing on the node")
            samples.append(values.get(measurement.metric, values[INSIDE] / values[HOST]))
        conditions = conditions_of(_job(runs[0].command), architecture, len(by_node), len(pairs))
        return Reading(tuple(samples), tuple(runs), conditions)

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


def _job(command: str) -> dict[str, str]:
    """Options of the fio in a command."""
    words = [word.removeprefix("--") for word in shlex.split(command) if word.startswith("--")]
    return {key: value for key, _, value in (word.partition("=") for word in words)}
