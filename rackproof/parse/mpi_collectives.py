"""Output of the kit's own engines, MPI and torch: one line of JSON, possibly between warnings of mpirun."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Final

from rackproof.core.collective import OPS, busbw_factor
from rackproof.core.wording import exact
from rackproof.parse.jsondoc import Json, find_object

TOOL: Final = "mpi collectives"
FORMAT: Final = 1
TOLERANCE: Final = 0.01
"""Relative tolerance between a bandwidth and bytes / time, and between a time and the mean of its samples."""

_ENGINES: Final = ("mpi", "torch")
_BEGIN: Final = re.compile(r'(?=\{\s*"rackproof_collectives")')


@dataclass(frozen=True, slots=True)
class Point:
    """One message size. Bandwidths are GB/s (10^9 B), as nccl-tests prints them."""

    bytes: int
    time_us: float
    algbw_gb_per_s: float
    busbw_gb_per_s: float
    wrong: int
    """Elements of the result that differ from the expected value, over all ranks."""
    samples_us: tuple[float, ...]
    began_s: tuple[float, ...] = ()
    """When each call began, seconds since 1970 by rank 0's clock; empty in outputs of older kits."""


@dataclass(frozen=True, slots=True)
class MpiCollectives:
    op: str
    ranks: int
    hosts: tuple[str, ...]
    dtype: str
    points: tuple[Point, ...]
    """In measurement order; small requested sizes may round to the same one."""
    warmup: int
    """Calls before the timed ones."""
    engine: str = "mpi"
    backend: str | None = None
    """Backend of the engine torch: ``nccl`` or ``gloo``."""


def parse_mpi_collectives(output: str | bytes) -> MpiCollectives:
    """Read the engine's line and compare both bandwidths with bytes and time. Raises ParseError where they differ."""
    document = find_object(TOOL, output, start=_BEGIN)
    if document.integer("rackproof_collectives") != FORMAT:
        document.refuse("rackproof_collectives", f"is not format {FORMAT}")
    engine = document.string("engine")
    if engine not in _ENGINES:
        document.refuse("engine", f"is not {' or '.join(_ENGINES)}")
    op, ranks = document.string("op"), document.integer("ranks", minimum=1)
    if op not in OPS:
        document.refuse("op", f"is unknown: {op}")
    hosts = document.strings("hosts")
    if not hosts or not all(host.strip() for host in hosts):
        document.refuse("hosts", "names no host")
    points = tuple(_point(entry, op, ranks) for entry in document.children("results"))
    if not points:
        document.refuse("results", "is empty")
    return MpiCollectives(
        op, ranks, hosts, document.string("dtype"), points, document.integer("warmup"), engine,
        document.string("backend") if engine == "torch" else None,
    )  # fmt: skip


def _point(entry: Json, op: str, ranks: int) -> Point:
    size, time = entry.integer("bytes", minimum=1), entry.number("time_us")
    if time <= 0:
        entry.refuse("time_us", "is 0")
    samples = _numbers(entry, "samples_us")
    began = _numbers(entry, "began_s") if entry.has("began_s") else ()
    if began and (len(began) != len(samples) or any(late <= early for early, late in pairwise(began))):
        entry.refuse("began_s", "has no rising time for each sample")
    mean = fmean(samples)
    if abs(time - mean) > TOLERANCE * mean:
        entry.refuse("time_us", f"is {exact(time)}, but the mean of its samples is {exact(mean)}")
    algbw = size / time / 1e3  # B/µs = MB/s
    for key, expected in (("algbw_GBps", algbw), ("busbw_GBps", algbw * busbw_factor(op, ranks))):
        if abs(entry.number(key) - expected) > TOLERANCE * expected:
            entry.refuse(key, f"is {exact(entry.number(key))}, but {size} B in {exact(time)} us give {exact(expected)}")
    return Point(
        bytes=size,
        time_us=time,
        algbw_gb_per_s=entry.number("algbw_GBps"),
        busbw_gb_per_s=entry.number("busbw_GBps"),
        wrong=entry.integer("wrong"),
        samples_us=samples,
        began_s=began,
    )


def _numbers(entry: Json, name: str) -> tuple[float, ...]:
    values = entry.values.get(name)
    if not isinstance(values, list):
        entry.refuse(name, "is not a list")
    numbers = Json(entry.tool, f"{entry.where}{name}.", {str(i): v for i, v in enumerate(values)})
    samples = tuple(numbers.number(key) for key in numbers.values)
    if not samples or min(samples) <= 0:
        entry.refuse(name, "is empty or has a time of 0")
    return samples
