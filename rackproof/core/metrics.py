"""The one vocabulary of metrics: criteria may name nothing else, benchmarks produce nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from rackproof.core.evidence import Scope


@dataclass(frozen=True, slots=True)
class Metric:
    """``unit`` is the one that benchmarks report in; criteria may use any unit of the same dimension."""

    name: str
    unit: str
    higher_is_better: bool
    scopes: tuple[Scope, ...]
    labels: tuple[str, ...]
    """Labels that tell its measurements apart; a criterion's ``where`` may use these and no others."""
    benchmark: str
    meaning: str

    @property
    def zero_is_possible(self) -> bool:
        """A count or a rate can be nought; a latency that is nought was not measured."""
        return self.higher_is_better or self.unit == "1"


_NODE_RACK = (Scope.NODE, Scope.RACK)
_STORAGE = ("storage", "block_bytes")
_COLLECTIVE = ("op", "bytes", "engine")

METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric("storage.read_bandwidth", "MB/s", True, _NODE_RACK, _STORAGE, "storage",
               "sequential read, every client at once; node: that client, rack: the sum"),
        Metric("storage.write_bandwidth", "MB/s", True, _NODE_RACK, _STORAGE, "storage",
               "sequential write with a closing fsync, every client at once"),
        Metric("storage.random_read_iops", "1/s", True, _NODE_RACK, _STORAGE, "storage",
               "random reads a second, every client at once"),
        Metric("storage.random_read_latency", "us", False, (Scope.NODE,), _STORAGE, "storage",
               "mean completion latency of the random reads"),
        Metric("link.rdma_write_bandwidth", "Gb/s", True, (Scope.PAIR,), ("rail",), "links",
               "ib_write_bw average between two nodes"),
        Metric("link.rdma_write_latency", "us", False, (Scope.PAIR,), ("rail",), "links",
               "ib_write_lat typical latency between two nodes"),
        Metric("link.tcp_bandwidth", "Gb/s", True, (Scope.PAIR,), ("rail",), "links",
               "iperf3 bits received a second between two nodes"),
        Metric("collective.busbw", "GB/s", True, (Scope.RACK,), _COLLECTIVE, "collectives",
               "bus bandwidth as nccl-tests defines it, out of place"),
        Metric("collective.algbw", "GB/s", True, (Scope.RACK,), _COLLECTIVE, "collectives",
               "algorithm bandwidth as nccl-tests defines it, out of place"),
        Metric("collective.wrong_values", "1", False, (Scope.RACK,), _COLLECTIVE, "collectives",
               "elements of the result that differ from the expected value"),
    )
}  # fmt: skip
