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
        raise ParseError("ping", f"no statistics: {excerpt(output)}")
    return Ping(int(match[1]), int(match[2]))
