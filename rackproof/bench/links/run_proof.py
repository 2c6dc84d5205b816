"""Proof of one run of a link tool by the port counters of both ends. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rackproof.bench.links.figures import GPU_BANDWIDTH, GPU_BOTH, RDMA_BANDWIDTH, RDMA_BOTH, RDMA_RETRIES, Figure
from rackproof.bench.port_proof import (
    by_interface,
    by_rdma,
    protected_priority,
    prove,
    prove_priority,
    rdma_retries,
)
from rackproof.core.architecture import Fabric
from rackproof.parse.port_counters import PortCounters

Ends = tuple[PortCounters, PortCounters]
"""Counters of server and client."""
_BANDWIDTHS: Final = (RDMA_BANDWIDTH, RDMA_BOTH, GPU_BANDWIDTH, GPU_BOTH)


class Run(NamedTuple):
    values: dict[str, float]
    """Values by metric."""
    companions: dict[str, float]
    conditions: Mapping[str, Any]


def proven(
    program: str,
    rail: int,
    nodes: tuple[str, str],
    figure: Figure,
    ends: tuple[Ends, Ends],
    fabric: Fabric,
) -> Run:
    """Raises Mismatch if the ports of this rail did not carry the traffic that the tool reports."""
    (server, client), (server_after, client_after) = ends
    name = f"{fabric.interface_prefix}{rail}"
    moved = [
        by_rdma(before, after, fabric, rail) if figure.rdma else by_interface(before, after, name)
        for before, after in ((server, server_after), (client, client_after))
    ]
    at_server, at_client = moved
    ports = [f"{name} of {member}" for member in nodes]
    prove(program, ports[1], "sent", figure.payload_bytes, at_client.sent_bytes)
    prove(program, ports[0], "received", figure.payload_bytes, at_server.received_bytes)
    if figure.both:
        prove(program, ports[0], "sent", figure.payload_bytes, at_server.sent_bytes)
        prove(program, ports[1], "received", figure.payload_bytes, at_client.received_bytes)
    for port, traffic in zip(ports, moved, strict=True):
        prove(program, port, "sent", figure.packets, traffic.sent_packets, "packets")
        prove(program, port, "received", figure.packets, traffic.received_packets, "packets")
    priority = protected_priority(fabric)
    # A latency test moves less than the port's background.
    in_priority = {}
    if priority is not None and not figure.values.keys().isdisjoint(_BANDWIDTHS):
        ways = [(client, client_after, True), (server, server_after, False)]
        if figure.both:
            ways += [(server, server_after, True), (client, client_after, False)]
        in_priority["priority_bytes"] = float(
            min(
                prove_priority(program, before, after, [name], sent, figure.payload_bytes, priority)
                for before, after, sent in ways
            )
        )
    values = dict(figure.values)
    companions = (
        dict(figure.companions)
        | in_priority
        | {
            "application_bytes": float(figure.payload_bytes),
            "counter_bytes": float(min(at_client.sent_bytes, at_server.received_bytes)),
        }
    )
    if figure.rdma:
        device = f"{fabric.rdma_prefix}{rail}"
        retries = [rdma_retries(before, after, device) for before, after in zip(*ends, strict=True)]
        counted = [count for count in retries if count is not None]
        if counted:
            values[RDMA_RETRIES] = companions["rdma_retries"] = float(sum(counted))
    return Run(values, companions, figure.conditions)
