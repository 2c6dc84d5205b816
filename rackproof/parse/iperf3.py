"""``iperf3 -J``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from rackproof.parse.errors import ParseError
from rackproof.parse.jsondoc import Json, find_json

TOOL: Final = "iperf3"


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
    sent_bits_per_s: float
    """Rate at which the sender wrote to its socket; in a short run far above the received rate."""
    retransmits: int | None
    """None where the sender does not count them (UDP)."""
    server: str | None
    """The address that the client was given; None where the version does not report it."""
    received_back_bits_per_s: float | None
    """With ``--bidir``: rate that the client received; None otherwise."""


def parse_iperf3(output: str | bytes) -> Iperf3Result:
    """Read one finished test. A document with ``error`` raises ParseError with that text."""
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
    back = end.child("sum_received_bidir_reverse") if end.has("sum_received_bidir_reverse") else None
    return Iperf3Result(
        version=start.string("version").removeprefix("iperf "),
        protocol=test.string("protocol"),
        streams=test.integer("num_streams", minimum=1),
        reverse=bool(test.integer("reverse")) if test.has("reverse") else False,
        received_bits_per_s=received.number("bits_per_second"),
        received_bytes=received.integer("bytes"),
        received_seconds=seconds,
        sent_bits_per_s=sent.number("bits_per_second"),
        retransmits=sent.integer("retransmits") if sent.has("retransmits") else None,
        server=_server(start),
        received_back_bits_per_s=back.number("bits_per_second") if back else None,
    )


def _server(start: Json) -> str | None:
    return start.child("connecting_to").string("host") if start.has("connecting_to") else None


def _is_report(value: Any) -> bool:
    return isinstance(value, dict) and ("error" in value or ("start" in value and isinstance(value.get("end"), dict)))
