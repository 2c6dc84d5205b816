"""Limits of ports and drives in the kernel: answers of ``rackproof/bench/throttles/state.sh``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from rackproof.core.throttles import BPS, IOPS, NodeLimits
from rackproof.parse.errors import ParseError

TOOL: Final = "throttles"
MARK: Final = "rackproof throttles 1"
_OF_PORT: Final = ("7270:", "tbf", "rate")
_OF_CONNECTIONS: Final = ("7272:", "fq", "maxrate")
"""Handle and kind of the kit's queues, and the option with their limit."""
NFSD: Final = "rackproof.slice"
_UNITS: Final = ("user.slice", "system.slice")
_LIMIT: Final = re.compile(r"(rbps|riops)=(\d+)")


def parse_throttles(text: str) -> NodeLimits:
    """The limits that are in force for everything that uses a port or a drive. Raises ParseError."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines or lines[0] != MARK or lines[-1] != "end":
        raise ParseError(TOOL, "the answer is not complete")
    threads = [line.removeprefix("thread ") for line in lines if line.startswith("thread ")]
    rest = iter(line for line in lines[1:-1] if not line.startswith("thread "))
    ports: dict[str, float] = {}
    connections: dict[str, float] = {}
    drives: dict[str, dict[str, float]] = {}
    for line in rest:
        kind, _, name = line.partition(" ")
        if kind == "port":
            if (rate := _port(name, rest)) is not None:
                ports[name] = rate
        elif kind == "connections":
            if (rate := _connections(name, rest)) is not None:
                connections[name] = rate
        elif kind == "drive":
            drives[name] = _drive(name, rest, threads)
        else:
            raise ParseError(TOOL, f"unreadable line: {line[:60]}")
    return NodeLimits(ports, {name: limits for name, limits in drives.items() if limits}, connections)


def _port(name: str, lines: Iterator[str]) -> float | None:
    """bit/s of both directions; None without a limit."""
    sent, received = (_rate(next(lines, ""), _OF_PORT) for _ in range(2))
    redirected = next(lines, "")
    if (sent is None) != (received is None) or (sent is not None and (sent != received or redirected != "1")):
        raise ParseError(TOOL, f"{name} is limited in one direction only")
    return sent


def _connections(name: str, lines: Iterator[str]) -> float | None:
    """bit/s that each of them may send; None without a limit."""
    rate, filters = _rate(next(lines, ""), _OF_CONNECTIONS), next(lines, "")
    if rate is not None and filters != "4":
        raise ParseError(TOOL, f"{name}: not every connection is limited")
    return rate


def _rate(line: str, of: tuple[str, str, str]) -> float | None:
    handle, kind, option = of
    try:
        queues: Any = json.loads(line)
        own = [queue for queue in queues if queue.get("handle") == handle and queue.get("kind") == kind]
        return 8.0 * float(own[0]["options"][option]) if own else None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ParseError(TOOL, f"unreadable answer of tc: {line[:60]}") from error


def _drive(name: str, lines: Iterator[str], threads: Iterable[str]) -> dict[str, float]:
    """Limits by key; empty without any."""
    by_unit: dict[str, dict[str, float]] = {}
    for unit in (*_UNITS, NFSD):
        actual, _, words = next(lines, "").partition(" ")
        if actual != unit:
            raise ParseError(TOOL, f"{name}: the limits of {unit} are missing")
        by_unit[unit] = {{"rbps": BPS, "riops": IOPS}[match[1]]: float(match[2]) for match in _LIMIT.finditer(words)}
    first = by_unit[_UNITS[0]]
    bound = [by_unit[unit] for unit in _UNITS] + ([by_unit[NFSD]] if threads else [])
    outside = [thread for thread in threads if not thread.endswith(f":/{NFSD}")]
    if any(limits != first for limits in bound) or (first and outside):
        raise ParseError(TOOL, f"{name}: not everything that reads it is limited")
    return first
