"""``iperf3 -J``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from rackproof.core.wording import exact
from rackproof.parse.errors import ParseError, Unreliable
from rackproof.parse.jsondoc import Json, find_json

TOOL: Final = "iperf3"
_TOLERANCE: Final = 0.02
"""Relative, between a rate and bytes over seconds."""


@dataclass(frozen=True, slots=True)
class Iperf3Result:
    """Rates are payload bits a second, summed over the streams."""

    version: str
    protocol: str
    """TCP, UDP or SCTP."""
    streams: int
    reverse: bool
    """The server sends and the client receives."""
    received_bits_per_s: float
    """Received rate: the number to judge."""
    received_bytes: int
    received_seconds: float
    retransmits: int | None
    """None where the sender does not count them (UDP)."""
    server: str | None
    """The address that the client was given; None where the version does not report it."""
    seconds_asked: int | None = None
    """``-t``; 0 where bytes or blocks end the test, None where the tool does not say."""
    sent_bytes: int = 0
    mss_bytes: int | None = None
    local_hosts: frozenset[str] = frozenset()
    """Addresses of the client's ends of the streams."""
    remote_hosts: frozenset[str] = frozenset()


def parse_iperf3(output: str | bytes) -> Iperf3Result:
    """Read one finished test. A document with ``error`` raises ParseError with that text.

    Raises Unreliable where a rate is not its bytes over its seconds.
    """
    document = Json(TOOL, "", find_json(TOOL, output, _is_report).value)
    if "error" in document.values:
        raise ParseError(TOOL, str(document.values["error"]) or "unnamed error")
    start, end = document.child("start"), document.child("end")
    if not end.has("sum_received"):
        raise ParseError(TOOL, "no summary of the receiver: the test did not finish")
    received, sent, test = end.child("sum_received"), end.child("sum_sent"), start.child("test_start")
    seconds = received.number("seconds")
    if seconds <= 0:
        received.refuse("seconds", "is 0: nothing was measured")
    for summary in (received, sent):
        _check(summary)
    streams = start.children("connected") if start.has("connected") else []
    return Iperf3Result(
        version=start.string("version").removeprefix("iperf "),
        protocol=test.string("protocol"),
        streams=test.integer("num_streams", minimum=1),
        reverse=bool(test.integer("reverse")) if test.has("reverse") else False,
        received_bits_per_s=received.number("bits_per_second"),
        received_bytes=received.integer("bytes"),
        received_seconds=seconds,
        retransmits=sent.integer("retransmits") if sent.has("retransmits") else None,
        server=_server(start),
        seconds_asked=test.integer("duration") if test.has("duration") else None,
        sent_bytes=sent.integer("bytes"),
        mss_bytes=start.integer("tcp_mss_default", minimum=1) if start.has("tcp_mss_default") else None,
        local_hosts=frozenset(stream.string("local_host") for stream in streams if stream.has("local_host")),
        remote_hosts=frozenset(stream.string("remote_host") for stream in streams if stream.has("remote_host")),
    )


def _server(start: Json) -> str | None:
    return start.child("connecting_to").string("host") if start.has("connecting_to") else None


def _check(summary: Json) -> None:
    """Raises Unreliable where the rate of a summary is not bytes over seconds."""
    seconds, rate, count = summary.number("seconds"), summary.number("bits_per_second"), summary.integer("bytes")
    if seconds > 0 and abs(rate - 8 * count / seconds) > _TOLERANCE * max(rate, 8 * count / seconds):
        raise Unreliable(TOOL, f"{count} B in {seconds:g} s contradict {exact(rate)} bit/s")


def _is_report(value: Any) -> bool:
    return isinstance(value, dict) and ("error" in value or ("start" in value and isinstance(value.get("end"), dict)))
