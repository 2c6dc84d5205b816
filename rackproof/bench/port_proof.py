"""Proof that traffic took the ports that were measured: differences of their own counters. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rackproof.core.architecture import Fabric
from rackproof.parse import Mismatch, ParseError
from rackproof.parse.port_counters import BEGINS, TOOL, Counters, PortCounters, counters_command, parse_port_counters
from rackproof.remote.command import CommandResult

LEAST_SHARE: Final = 0.95
"""Least share of the payload that a port must have counted. Headers make a port count more than the payload."""
WORD: Final = 4
"""Bytes in which ``port_xmit_data`` and ``port_rcv_data`` count (InfiniBand Architecture, PortCounters)."""
RETRIES: Final = (
    # mlx5
    "local_ack_timeout_err", "rnr_nak_retry_err", "packet_seq_err", "implied_nak_seq_err", "out_of_sequence",
    "roce_adp_retrans",
    # rxe
    "completer_retry_err", "retry_exceeded_err", "retry_rnr_exceeded_err", "rcvd_rnr_err", "rcvd_seq_err",
    "out_of_seq_request",
    # both
    "duplicate_request",
)  # fmt: skip
"""RDMA counters of packets that were lost, sent again or came in the wrong order (drivers' hw_counters)."""


class Moved(NamedTuple):
    """What passed a port between two readings."""

    sent_bytes: int
    received_bytes: int
    sent_packets: int
    received_packets: int


def reading_command(fabric: Fabric, rails: Iterable[int]) -> str:
    """Command that reads the counters of a node's ports on these rails."""
    rails = list(rails)
    return counters_command(
        [f"{fabric.interface_prefix}{rail}" for rail in rails], [f"{fabric.rdma_prefix}{rail}" for rail in rails]
    )


def readings_of(answers: Iterable[CommandResult]) -> list[CommandResult]:
    """The readings of counters among answers."""
    return [answer for answer in answers if answer.command.startswith(BEGINS)]


def counters_of(answer: CommandResult) -> PortCounters:
    if not answer.ok:
        raise ParseError(TOOL, f"{answer.node}: {answer.why}")
    return parse_port_counters(answer.text)


def by_interface(before: PortCounters, after: PortCounters, interface: str) -> Moved:
    """What the network interface counted. On most adapters without the traffic of RDMA."""
    pair = _both(before.netdevs, after.netdevs, interface)
    if pair is None:
        raise ParseError(TOOL, f"{after.hostname} has no port {interface}")
    names = ("tx_bytes", "rx_bytes", "tx_packets", "rx_packets")
    return Moved(*(_grown(*pair, name, f"{after.hostname} {interface}") for name in names))


def by_device(before: PortCounters, after: PortCounters, device: str) -> Moved | None:
    """What the RDMA device counted; None where it has no counters of data, as RDMA in software."""
    pair = _both(before.rdma, after.rdma, device)
    names = ("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets")
    if pair is None or not all(name in counters for counters in pair for name in names):
        return None
    sent, received, sent_packets, received_packets = (
        _grown(*pair, name, f"{after.hostname} {device}") for name in names
    )
    return Moved(WORD * sent, WORD * received, sent_packets, received_packets)


def by_rdma(before: PortCounters, after: PortCounters, fabric: Fabric, rail: int) -> Moved:
    """What passed as RDMA: by the device's counters, or by those of the interface where the device has none."""
    moved = by_device(before, after, f"{fabric.rdma_prefix}{rail}")
    return moved or by_interface(before, after, f"{fabric.interface_prefix}{rail}")


def received_on(before: PortCounters, after: PortCounters, fabric: Fabric) -> int:
    """Bytes that a node received on all rails, of either kind; the larger one where a port counts both as one."""
    total = 0
    for rail in range(fabric.rails):
        own = by_interface(before, after, f"{fabric.interface_prefix}{rail}").received_bytes
        rdma = by_device(before, after, f"{fabric.rdma_prefix}{rail}")
        total += max(own, rdma.received_bytes if rdma else 0)
    return total


def rdma_retries(before: PortCounters, after: PortCounters, device: str) -> int | None:
    """Retries and losses that the device counted; None where it counts none of them."""
    pair = _both(before.rdma, after.rdma, device)
    names = [name for name in RETRIES if pair and name in pair[0] and name in pair[1]]
    if pair is None or not names:
        return None
    return sum(_grown(*pair, name, f"{after.hostname} {device}") for name in names)


def tcp_retransmitted(before: PortCounters, after: PortCounters) -> int:
    """TCP segments that the whole node sent again."""
    return _grown(before.tcp, after.tcp, "RetransSegs", after.hostname)


def prove(tool: str, port: str, verb: str, needed: int, counted: int, what: str = "B") -> None:
    """Raises Mismatch where a port counted less than what the tool says it moved."""
    if counted < LEAST_SHARE * needed:
        raise Mismatch(
            tool, f"expected {port} to have {verb} at least {needed} {what}, its counters say {counted}: another path"
        )


def _both(before: Mapping[str, Counters], after: Mapping[str, Counters], name: str) -> tuple[Counters, Counters] | None:
    if name in before and name in after:
        return before[name], after[name]
    return None


def _grown(before: Counters, after: Counters, name: str, where: str) -> int:
    if name not in before or name not in after:
        raise ParseError(TOOL, f"{where} has no counter {name}")
    if after[name] < before[name]:
        raise ParseError(TOOL, f"{where}: {name} fell from {before[name]} to {after[name]}: it began anew")
    return after[name] - before[name]
