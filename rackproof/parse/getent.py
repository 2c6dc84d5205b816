"""``getent ahostsv4``."""

from __future__ import annotations

import re

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, whole_lines


def parse_ahosts(output: str) -> tuple[str, ...]:
    """First address of each name of ``getent ahostsv4 NAME…``, whose line has the canonical name; others have none."""
    return tuple(re.findall(r"(?m)^([\d.]+)\s+STREAM[ ]+\S+$", output))


def parse_named_ahosts(output: str, names: tuple[str, ...]) -> dict[str, str | None]:
    """Address by name, from lines ``NAME ADDRESS STREAM …``; None for a line ``NAME``, which does not resolve."""
    addresses: dict[str, str | None] = {}
    for line in whole_lines("getent", output):
        match = re.fullmatch(r"(\S+) (?:([\d.]+)\s.*)?", line)
        if match is None or match[1] not in names:
            raise ParseError("getent", f"unexpected line {excerpt(line)}")
        addresses[match[1]] = match[2]
    return addresses
