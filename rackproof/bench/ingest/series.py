"""A node's counters over the time of a run, read once a second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from rackproof.bench.ingest.runs import TOOL
from rackproof.parse import ParseError

PORTS, RDMA, MOUNTS, PIPELINE = 3, 4, 5, 6
"""Columns of bytes: of the ports, of the RDMA devices, of the mounts, and the bytes that the pipeline counts itself."""
Rows = Sequence[Sequence[float | None]]


def at(rows: Rows, column: int, moment_s: float) -> float:
    """A counter at a moment, between the two readings around it; the first and last reading bound it."""
    for (t0, v0), (t1, v1) in _spans(rows, column):
        if t0 <= moment_s <= t1:
            return v0 + (v1 - v0) * (moment_s - t0) / (t1 - t0)
    return rows[0 if moment_s < (rows[0][0] or 0.0) else -1][column] or 0.0


def reached(rows: Rows, column: int, count: float) -> float | None:
    """The first moment at which a counter has grown by ``count`` since its first reading; None if it has not."""
    start = rows[0][column] or 0.0
    for (t0, v0), (t1, v1) in _spans(rows, column):
        if v1 - start >= count:
            return t0 if v1 == v0 else max(t0, t0 + (t1 - t0) * (start + count - v0) / (v1 - v0))
    return None


def growth(rows: Rows, column: int) -> float:
    """Growth of a counter over all readings. Raises ParseError for one that ran backwards."""
    return sum(later - earlier for (_, earlier), (_, later) in _spans(rows, column))


def _spans(rows: Rows, column: int) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """Neighbouring readings. Raises ParseError for a counter that ran backwards."""
    for earlier, later in pairwise((row[0] or 0.0, row[column] or 0.0) for row in rows):
        if later[1] < earlier[1]:
            raise ParseError(TOOL, "a counter of bytes ran backwards")
        yield earlier, later
