"""``ping -q``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, real


@dataclass(frozen=True, slots=True)
class Ping:
    """Round-trip times in milliseconds; None without a reply."""

    sent: int
    received: int
    fastest_ms: float | None = None
    mean_ms: float | None = None
    slowest_ms: float | None = None
    duplicates: int = 0
    """Further replies to a packet, which ``received`` does not count: a loop, or two nodes with one address."""

    @property
    def lost_pct(self) -> float:
        return 100 * (self.sent - self.received) / self.sent


def parse_ping(output: str) -> Ping:
    """Statistics of ``ping -q``. Raises ParseError where more replies than packets are counted."""
    matches = re.findall(r"(?m)^(\d+) packets transmitted, (\d+) received(?:, \+(\d+) duplicates)?", output)
    if len(matches) != 1:
        raise ParseError("ping", f"expected statistics once, got {excerpt(output)}")
    sent, received, duplicates = (int(number or 0) for number in matches[0])
    if received > sent or not sent:
        raise ParseError("ping", f"{received} replies to {sent} packets")
    times = re.search(r"(?m)^rtt min/avg/max/mdev = ([\d.]+)/([\d.]+)/([\d.]+)/[\d.]+ ms", output)
    if times is None or not received:
        return Ping(sent, received, duplicates=duplicates)
    fastest, mean, slowest = (real("ping", "rtt", time) for time in times.groups())
    return Ping(sent, received, fastest, mean, slowest, duplicates)


def parse_answered_sizes(output: str) -> tuple[str, ...]:
    """Answered sizes, from the lines ``small STATUS`` and ``large STATUS`` (ping's exit status, 0 or 1)."""
    match = re.fullmatch(r"small ([01])\nlarge ([01])\n", output)
    if match is None:
        raise ParseError("ping", f"unexpected answer {excerpt(output)}")
    return tuple(size for size, status in zip(("small", "large"), match.groups(), strict=True) if status == "0")
