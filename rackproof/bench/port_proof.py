"""Prove by port counters that traffic used the measured ports. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from rackproof.core.architecture import Architecture, Fabric
from rackproof.core.wording import some
from rackproof.parse import Mismatch, ParseError
from rackproof.parse.port_counters import BEGINS, TOOL, Counters, PortCounters, counters_command, parse_port_counters
from rackproof.remote.command import CommandResult

LEAST_SHARE: Final = 0.95
"""Minimum share of the payload in a port's counters, which include headers."""
WORD: Final = 4
"""Bytes per unit of ``port_xmit_data`` and ``port_rcv_data`` (InfiniBand Architecture, PortCounters)."""
OTHERS_SHARE: Final = 0.01
"""Maximum share of the payload in all other priorities together: a port also carries ARP, LLDP, the tools' exchange of
parameters and congestion notifications. Traffic with a wrong mark would be all of it."""
OTHERS_LEAST: Final = 1 << 20
"""Bytes that other priorities may count in any case: a short run has as much of the background as a long one has in a
second."""
PRIORITIES: Final = range(8)
_SHOWN: Final = 3
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
"""RDMA counters of lost, retransmitted and reordered packets (drivers' hw_counters)."""


class Moved(NamedTuple):
    """Traffic of a port between two readings."""

    sent_bytes: int
    received_bytes: int
    sent_packets: int
    received_packets: int


def fabric_of(architecture: Architecture, tool: str) -> Fabric:
    """Raises ParseError without one."""
    if architecture.fabric is None:
        raise ParseError(tool, "the architecture has no fabric")
    return architecture.fabric


def protected_priority(fabric: Fabric) -> int | None:
    """The priority with PFC, into which the fabric's RDMA belongs; None on a fabric without PFC."""
    return fabric.lossless.pfc_priority if fabric.lossless else None


def reading_command(fabric: Fabric, rails: Iterable[int], priorities: bool = False) -> str:
    """Command that reads the counters of a node's ports on these rails; ``priorities``: bytes by priority, too."""
    rails = list(rails)
    return counters_command(
        [f"{fabric.interface_prefix}{rail}" for rail in rails],
        [f"{fabric.rdma_prefix}{rail}" for rail in rails],
        priorities,
    )


def readings_of(answers: Iterable[CommandResult]) -> list[CommandResult]:
    """Answers of ``reading_command``."""
    return [answer for answer in answers if answer.command.startswith(BEGINS)]


def counters_of(answer: CommandResult) -> PortCounters:
    if not answer.ok:
        raise ParseError(TOOL, f"{answer.node}: {answer.why}")
    return _parsed(answer.text)


_parsed: Final = lru_cache(maxsize=1024)(parse_port_counters)
"""Cached: the same reading is the one after a run and the one before the next."""


def by_interface(before: PortCounters, after: PortCounters, interface: str) -> Moved:
    """Traffic of the network interface; on most adapters without RDMA."""
    pair = _both(before.netdevs, after.netdevs, interface)
    if pair is None:
        raise ParseError(TOOL, f"{after.hostname} has no port {interface}")
    names = ("tx_bytes", "rx_bytes", "tx_packets", "rx_packets")
    return Moved(*(_grown(*pair, name, f"{after.hostname} {interface}") for name in names))


def by_device(before: PortCounters, after: PortCounters, device: str) -> Moved | None:
    """Traffic of the RDMA device; None if it does not count data, like software RDMA."""
    pair = _both(before.rdma, after.rdma, device)
    names = ("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets")
    if pair is None or not all(name in counters for counters in pair for name in names):
        return None
    sent, received, sent_packets, received_packets = (
        _grown(*pair, name, f"{after.hostname} {device}") for name in names
    )
    return Moved(WORD * sent, WORD * received, sent_packets, received_packets)


def by_rdma(before: PortCounters, after: PortCounters, fabric: Fabric, rail: int) -> Moved:
    """RDMA traffic, from the device's counters, or from the interface's if the device has none."""
    moved = by_device(before, after, f"{fabric.rdma_prefix}{rail}")
    return moved or by_interface(before, after, f"{fabric.interface_prefix}{rail}")


def received_on(before: PortCounters, after: PortCounters, fabric: Fabric, rails: Iterable[int]) -> int:
    """Bytes received on these rails; per rail the larger of both counters, because one may include the other."""
    total = 0
    for rail in rails:
        own = by_interface(before, after, f"{fabric.interface_prefix}{rail}").received_bytes
        rdma = by_device(before, after, f"{fabric.rdma_prefix}{rail}")
        total += max(own, rdma.received_bytes if rdma else 0)
    return total


def rdma_retries(before: PortCounters, after: PortCounters, device: str) -> int | None:
    """Retries and losses of the device; None without such counters."""
    pair = _both(before.rdma, after.rdma, device)
    names = [name for name in RETRIES if pair and name in pair[0] and name in pair[1]]
    if pair is None or not names:
        return None
    return sum(_grown(*pair, name, f"{after.hostname} {device}") for name in names)


def tcp_retransmitted(before: PortCounters, after: PortCounters) -> int:
    """TCP segments that the node retransmitted."""
    return _grown(before.tcp, after.tcp, "RetransSegs", after.hostname)


def prove(tool: str, port: str, verb: str, needed: int, counted: int, unit: str = "B") -> None:
    """Raises Mismatch if a port counted less than the tool reports."""
    if counted < LEAST_SHARE * needed:
        raise Mismatch(
            tool, f"expected {port} to have {verb} at least {needed} {unit}, its counters say {counted}: another path"
        )


def prove_priority(
    tool: str,
    before: PortCounters,
    after: PortCounters,
    ports: Sequence[str],
    sent: bool,
    needed: int,
    priority: int,
    *,
    beside: bool = False,
) -> int:
    """Bytes that a node's ports counted together in the priority with PFC.

    Raises Mismatch if the payload did not take this priority, or others took a share, and ParseError for a missing
    counter. ``ports``: interfaces, of which each may have its even part of the share; ``sent``: in this direction,
    otherwise received; ``beside``: other traffic used the ports at the same time.
    """
    counted = {port: _by_priority(before, after, port, "tx" if sent else "rx") for port in ports}
    own = sum(of_port[priority] for of_port in counted.values())
    others = {port: sum(of_port.values()) - of_port[priority] for port, of_port in counted.items()}
    worst = max(others, key=lambda port: others[port])
    strange = not beside and others[worst] > max(OTHERS_SHARE * max(needed, own) / len(ports), OTHERS_LEAST)
    if own < LEAST_SHARE * needed or strange:
        named, share = ([worst], needed // len(ports)) if strange else (list(ports), needed)
        sums = {n: sum(counted[port][n] for port in named) for n in PRIORITIES}
        moved = ", ".join(f"{n}: {count}" for n, count in sums.items() if count)
        raise Mismatch(
            tool,
            f"expected {after.hostname} {some(named, _SHOWN)} to have {'sent' if sent else 'received'} {share} B in"
            f" priority {priority}, which has PFC, its counters by priority say {moved or 'nothing'}:"
            " this traffic is not lossless",
        )
    return own


def _by_priority(before: PortCounters, after: PortCounters, port: str, way: str) -> dict[int, int]:
    """Bytes of each priority."""
    pair = _both(before.priorities, after.priorities, port) or ({}, {})
    return {n: _grown(*pair, f"{way}_prio{n}_bytes", f"{after.hostname} {port}") for n in PRIORITIES}


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
