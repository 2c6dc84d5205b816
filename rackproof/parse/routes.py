"""Routing rules and tables: ``ip -j rule show`` and ``ip -j route show``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.jsondoc import find_array

TOOL: Final = "ip"
MAIN: Final = "main"


@dataclass(frozen=True, slots=True)
class Rule:
    priority: int
    source: str
    """``all``, an address or a network."""
    table: str
    """Name or number; empty for a rule without a table (``blackhole``)."""


@dataclass(frozen=True, slots=True)
class Route:
    destination: str
    """``default``, an address or a network."""
    device: str | None
    table: str


def parse_rules(output: str | bytes) -> tuple[Rule, ...]:
    """Rules by priority. Raises ParseError without rules, which the kernel always has."""
    rules = []
    for entry in find_array(TOOL, output, "entries"):
        source = entry.string("src")
        length = entry.values.get("srclen")
        if isinstance(length, int) and source != "all" and length != 32:
            source = f"{source}/{length}"
        rules.append(Rule(entry.integer("priority"), source, str(entry.values.get("table", ""))))
    if not rules:
        raise ParseError(TOOL, "no rule listed")
    return tuple(sorted(rules, key=lambda rule: rule.priority))


def parse_routes(output: str | bytes) -> tuple[Route, ...]:
    """Routes of all tables, one for each next hop. Raises ParseError."""
    return tuple(
        Route(entry.string("dst"), str(device) if (device := hop.values.get("dev")) else None,
              str(entry.values.get("table", MAIN)))
        for entry in find_array(TOOL, output, "entries")
        for hop in (entry.children("nexthops") if entry.has("nexthops") else (entry,))
    )  # fmt: skip
