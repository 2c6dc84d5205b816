"""Jobs, places and faults of group testing; ``fault_search`` plans the jobs. Pure.

A job is one collective that uses every pair of its nodes (all-to-all) on some rails; it fails if one of them is faulty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Final, TypeVar

from rackproof.core.grouping import grouped

METRIC: Final = "group.faults"
"""Number of named faults of a node; 0 for one that is cleared."""
FAULTS: Final = "faults"
"""Condition of such a number: what is named, in words."""
_PATH: Final = ("link.loss", "link.round_trip")
"""Metrics of the ports and cables between two nodes, whatever the transport."""
TRANSPORTS: Final = {"mpi": "TCP", "nccl-tests": "RDMA", "torch": "RDMA"}
"""By engine: what its jobs prove. NCCL's jobs count over RDMA only, and into GPU memory where the architecture declares
it; those of MPI are bound to an interface and run over TCP."""
_STANDS_FOR: Final[dict[str, tuple[str, ...]]] = {
    "TCP": ("link.tcp_bandwidth", "link.tcp_retransmitted", *_PATH),
    "RDMA": (
        "link.rdma_write_bandwidth", "link.rdma_write_bandwidth_both", "link.rdma_write_bandwidth_gpu",
        "link.rdma_write_bandwidth_gpu_both",
        "link.rdma_write_latency", "link.rdma_read_latency", "link.rdma_read_latency_gpu", "link.rdma_retries",
        *_PATH,
    ),
}  # fmt: skip
"""Metrics by transport."""
ROWS: Final = 4
COLUMNS: Final = 4
Item = TypeVar("Item")


def stands_for(engine: str) -> frozenset[str]:
    """Metrics of pairs without a measurement for which jobs of an engine stand; none for an unknown engine."""
    return frozenset(_STANDS_FOR.get(TRANSPORTS.get(engine, ""), ()))


class FaultKind(StrEnum):
    NODE = "node"
    RAIL = "rail"
    """One rail of one node."""
    LEAF = "leaf"
    """A leaf switch: one rail of all nodes behind it."""
    LINK = "link"
    """Between two nodes, each of which passes with others."""


@dataclass(frozen=True, slots=True)
class Job:
    """One collective over at least two nodes."""

    nodes: frozenset[str]
    rails: frozenset[int]


@dataclass(frozen=True, slots=True)
class Fault:
    """A named fault. ``nodes``: the node, both ends of the link, or all nodes behind the leaf switch."""

    kind: FaultKind
    nodes: tuple[str, ...]
    rail: int | None = None
    intermittent: bool = False
    """Whether jobs with it passed, too."""

    def touches(self, job: Job) -> bool:
        """Whether the job could fail because of it."""
        if self.rail is not None and self.rail not in job.rails:
            return False
        return (all if self.kind is FaultKind.LINK else any)(node in job.nodes for node in self.nodes)

    def __str__(self) -> str:
        match self.kind:
            case FaultKind.NODE:
                text = self.nodes[0]
            case FaultKind.RAIL:
                text = f"rail {self.rail} of {self.nodes[0]}"
            case FaultKind.LEAF:
                text = f"leaf switch of rail {self.rail} ({self.nodes[0]} … {self.nodes[-1]})"
            case FaultKind.LINK:
                text = f"between {self.nodes[0]} and {self.nodes[1]}"
        return f"{text}, intermittent" if self.intermittent else text


@dataclass(frozen=True, slots=True)
class Places:
    """Nodes in the order of the inventory, number of rails; where known, leaf switches by node, one name a rail."""

    names: tuple[str, ...]
    rails: int = 1
    leaves: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    racks: Mapping[str, str] = field(default_factory=dict)

    def units(self) -> list[tuple[str, ...]]:
        """Nodes that share all leaf switches, otherwise the rack; one unit where neither is known."""
        places = grouped((self.leaves.get(name) or self.racks.get(name), name) for name in self.names)
        return [tuple(names) for names in places.values()]

    def rows(self) -> list[tuple[str, ...]]:
        """At most ``ROWS`` groups of neighbours, along units where there are several."""
        units = self.units()
        if len(units) == 1:
            return chunks(self.names, min(ROWS, len(self.names) // 2))
        ordered = [tuple(name for unit in part for name in unit) for part in chunks(units, min(ROWS, len(units)))]
        return [row for row in ordered if len(row) > 1]

    def columns(self, rows: Sequence[Sequence[str]], most: int = COLUMNS) -> list[tuple[str, ...]]:
        """At most so many groups, each with nodes of every row."""
        order = [name for row in rows for name in row]
        count = max(1, min(most, len(order) // 2))
        dealt = [tuple(order[start::count]) for start in range(count)]
        if count % max(1, len(rows[0]) if rows else 1) == 0:  # columns would be rows
            return [tuple(name for row in rows for name in row[start::count]) for start in range(count)]
        return dealt


@dataclass(frozen=True, slots=True)
class Result:
    """Named faults, cleared nodes, and sets of nodes with a fault that was not located."""

    faults: tuple[Fault, ...]
    cleared: frozenset[str]
    unlocated: tuple[frozenset[str], ...]
    rounds: tuple[int, ...]
    """Number of jobs by round."""
    history: tuple[tuple[Job, bool], ...]
    """Every job and whether it passed, in order."""


Run = Callable[[Sequence[Job]], Sequence[bool]]
"""Runs jobs of disjoint nodes at once; True for those that passed. A job that could not be measured did not pass."""


def chunks(items: Sequence[Item], count: int) -> list[tuple[Item, ...]]:
    """``count`` consecutive parts of nearly equal size, without empty ones."""
    count = max(1, count)
    bounds = [len(items) * number // count for number in range(count + 1)]
    return [tuple(items[begin:end]) for begin, end in pairwise(bounds) if begin < end]
