"""``ping -q``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt


@dataclass(frozen=True, slots=True)
class Ping:
    sent: int
    received: int


def parse_ping(output: str) -> Ping:
    """Statistics of ``ping -q``."""
    match = re.search(r"(?m)^(\d+) packets transmitted, (\d+) received", output)
    if match is None:
        raise ParseError("ping", f"expected statistics, got {excerpt(output)}")
    return Ping(int(match[1]), int(match[2]))


def parse_answered_sizes(output: str) -> tuple[str, ...]:
    """Answered sizes, from the lines ``small STATUS`` and ``large STATUS`` (ping's exit status, 0 or 1)."""
    match = re.fullmatch(r"small ([01])\nlarge ([01])\n", output)
    if match is None:
        raise ParseError("ping", f"unexpected answer {excerpt(output)}")
    return tuple(size for size, status in zip(("small", "large"), match.groups(), strict=True) if status == "0")
