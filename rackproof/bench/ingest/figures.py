"""Figures of one node in one run of the input pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from rackproof.bench.ingest.caches import LocalReads
from rackproof.bench.ingest.runs import TOOL, Part
from rackproof.bench.ingest.series import MOUNTS, PORTS, RDMA, at, growth
from rackproof.parse import ParseError


@dataclass(frozen=True)
class Figures:
    """One node in one run, proven."""

    node: str
    part: Part
    counted: int | None
    """Bytes from the storage over the whole run; None without an exact counter, or where nothing is read."""
    local: Callable[[], LocalReads] | None = None
    """Reads of its local cache; raises ParseError where the kernel does not count them. None for a storage without."""

    @property
    def ratio(self) -> float:
        """Bytes from the storage over bytes read."""
        if self.counted is None:
            raise ParseError(TOOL, f"{self.node}: no counter tells the bytes of the storage without headers")
        return self.counted / self.part.read

    @property
    def storage_rate(self) -> float:
        """B/s from the storage in the timed part, by counters of the mount, else of the ports."""
        rows, begin_s = self.part.series, float(self.part.config["warmup_s"])
        column = MOUNTS if rows[0][MOUNTS] is not None else max((PORTS, RDMA), key=lambda one: growth(rows, one))
        return (at(rows, column, begin_s + self.part.window_s) - at(rows, column, begin_s)) / self.part.window_s

    @property
    def peak_cpu(self) -> float:
        """Highest utilisation of the processors in about a second of the timed part, 0 to 1."""
        begin_s = float(self.part.config["warmup_s"])
        spans = [
            ((later[1] or 0) - (earlier[1] or 0), (later[2] or 0) - (earlier[2] or 0))
            for earlier, later in pairwise(self.part.series)
            if (earlier[0] or 0) >= begin_s - 0.5 and (later[0] or 0) - (earlier[0] or 0) >= 0.5
        ]
        shares = [busy / every for busy, every in spans if every > 0]
        if not shares:
            raise ParseError(TOOL, f"{self.node}: no second of the timed part was observed")
        return max(shares)

    @property
    def mean_cpu(self) -> float:
        first, last = self.part.series[0], self.part.series[-1]
        return ((last[1] or 0) - (first[1] or 0)) / max(1.0, (last[2] or 0) - (first[2] or 0))
