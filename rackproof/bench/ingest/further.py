"""Numbers of the same runs that a page shows beside a measurement's value. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rackproof.bench.ingest.runs import TOOL, Part
from rackproof.bench.ingest.series import PIPELINE, PORTS, RDMA, growth
from rackproof.parse import ParseError

Parts = Mapping[str, Part]
"""Parts of a run, by node."""
_LATENCIES: Final = ("p50", "p90", "p99", "max")


def further_of(metric: str, runs: Sequence[Parts]) -> dict[str, dict[str, list[float]]]:
    """A condition of the metric with lists of numbers by name, one number for each run; empty without any. Raises
    ParseError for numbers that contradict each other."""
    if metric not in _OF:
        return {}
    name, of = _OF[metric]
    every = [of(parts) for parts in runs]
    shared = {key: [own[key] for own in every] for key in every[0] if all(key in own for own in every)}
    return {name: shared} if shared else {}


def _latencies(parts: Parts) -> dict[str, float]:
    """Further percentiles of the slowest node, and the longest latency, ms."""
    every = []
    for node, part in parts.items():
        latencies = part.answer.child("latency_s")
        every.append([latencies.number(name) for name in _LATENCIES])
        if every[-1] != sorted(every[-1]):
            raise ParseError(TOOL, f"{node}: its latencies of {', '.join(_LATENCIES)} do not grow")
    worst = [round(max(values) * 1e3, 3) for values in zip(*every, strict=True)]
    return {name: value for name, value in zip(_LATENCIES, worst, strict=True) if name != "p99"}


def _received(parts: Parts) -> dict[str, float]:
    """Bytes a sample that ports and RDMA devices received while samples were read: with headers and all other traffic
    of the nodes. Without a counter that a node lacks; bytes of local drives pass none."""
    every = [(part, part.series) for part in parts.values() if not part.config["local"]]
    read = sum(growth(rows, PIPELINE) for _, rows in every)
    samples = sum(part.pipeline("samples") + part.pipeline("drained") for part, _ in every)
    if not read or not samples:
        return {}
    size = sum(part.pipeline("bytes") for part, _ in every) / samples
    numbers = {}
    for name, column in (("ports", PORTS), ("rdma_devices", RDMA)):
        received = [growth(rows, column) for _, rows in every if all(row[column] is not None for row in rows)]
        if len(received) == len(every):
            numbers[name] = round(sum(received) / read * size, 1)
    return numbers


_OF: Final[Mapping[str, tuple[str, Callable[[Parts], Mapping[str, float]]]]] = {
    "inference.latency_p99": ("latency_ms", _latencies),
    "ingest.storage_bytes_per_sample": ("nic_bytes_per_sample", _received),
}
