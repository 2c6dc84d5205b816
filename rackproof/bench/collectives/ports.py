"""Traffic of the nodes' ports during a collective, by their counters. Pure.

On lossless RoCE the traffic of NCCL must have been in the priority with PFC, which nothing else shows: NCCL marks its
packets by /etc/nccl.conf and the adapter's driver, and says nothing about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rackproof.bench.collectives.command import MPIRUN, Requested
from rackproof.bench.collectives.nccl_used import goes_over_nvlink
from rackproof.bench.port_proof import (
    protected_priority,
    prove,
    prove_priority,
    rdma_retries,
    received_on,
    tcp_retransmitted,
)
from rackproof.core.architecture import Architecture, Fabric
from rackproof.core.collective import least_received
from rackproof.parse.nccl_log import TOOL
from rackproof.parse.port_counters import PortCounters

Counted = Mapping[str, tuple[PortCounters, PortCounters]]
"""Counters before and after a run, by node."""


def passed(
    requested: Requested,
    sizes: Sequence[int],
    counters: Counted,
    architecture: Architecture,
    fabric: Fabric,
    *,
    beside: bool,
) -> dict[str, Any]:
    """Conditions from the counters of all nodes' ports. Raises Mismatch if the traffic took another way.

    ``sizes``: of the arrays, bytes; ``beside``: other traffic used the ports at the same time.
    """
    split = 1 if requested.rail is None else requested.ranks_per_node
    needed = split * sum(
        requested.iterations
        * least_received(requested.op, size, len(requested.hosts), requested.ranks_per_node // split)
        for size in sizes
    )
    rails = [
        rail for rail in range(fabric.rails) if requested.interface in (None, f"{fabric.interface_prefix}{rail}")
    ]  # fmt: skip
    received = {node: received_on(*pair, fabric, rails) for node, pair in counters.items()}
    least = min(received, key=lambda node: received[node])
    path = "fabric" if received[least] >= needed else "NVLink"
    in_priority = {}
    if not goes_over_nvlink(requested.asked(len(requested.hosts)), architecture):
        prove(MPIRUN, f"{requested.interface or 'the fabric ports'} of {least}", "received", needed, received[least])
        if "NCCL_DEBUG" in requested.environment and (priority := protected_priority(fabric)) is not None:
            ports = [f"{fabric.interface_prefix}{rail}" for rail in rails]
            in_priority["priority_bytes_least"] = _in_priority(counters, ports, needed, priority, beside)
    retries = [
        count
        for pair in counters.values()
        for rail in rails
        if (count := rdma_retries(*pair, f"{fabric.rdma_prefix}{rail}")) is not None
    ]
    return {
        "path": path if needed else "none",
        "received_bytes_least": received[least],
        "received_bytes_needed": needed,
        **in_priority,
        "tcp_retransmitted": sum(tcp_retransmitted(*pair) for pair in counters.values()),
        **({"rdma_retries": sum(retries)} if retries else {}),
    }


def _in_priority(counters: Counted, ports: Sequence[str], needed: int, priority: int, beside: bool) -> int:
    """Bytes in the priority with PFC that the node with fewest of them received.

    Senders are asked first: what one of them marks wrongly, others receive. A node sends at least what another one
    needs of it. Raises Mismatch and ParseError as ``prove_priority``.
    """
    for before, after in counters.values():
        prove_priority(TOOL, before, after, ports, True, needed // len(counters), priority, beside=beside)
    return min(
        prove_priority(TOOL, before, after, ports, False, needed, priority, beside=beside)
        for before, after in counters.values()
    )
