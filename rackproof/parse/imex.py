"""State of an IMEX domain as its service reports it, and the list of its nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rackproof.parse.errors import ParseError
from rackproof.parse.jsondoc import Json, find_object
from rackproof.parse.text import excerpt, text_of

_TOOL: Final = "nvidia-imex-ctl"
_LIST: Final = "nodes_config.cfg"


@dataclass(frozen=True, slots=True)
class ImexNode:
    """One node of the domain, as the node that was asked sees it."""

    host: str
    """Address in nodes_config.cfg."""
    status: str
    """READY when it works; UNAVAILABLE, WAITING_FOR_PEERS, INIT_GPU …"""
    version: str | None
    """None where its service does not answer."""
    connections: Mapping[str, str]
    """By address: CONNECTED when it works; INVALID, DISCONNECTED …"""


@dataclass(frozen=True, slots=True)
class ImexDomain:
    status: str
    """UP, DEGRADED or DOWN."""
    nodes: tuple[ImexNode, ...]


def parse_imex(output: str | bytes) -> ImexDomain:
    """``nvidia-imex-ctl -N -j`` (NVIDIA, IMEX guide, IMEX Service Command Service). Raises ParseError."""
    whole = find_object(_TOOL, output, "nodes")
    return ImexDomain(whole.string("status"), tuple(_node(entry) for entry in _entries(whole, "nodes")))


def _node(entry: Json) -> ImexNode:
    connections = {peer.string("host"): peer.string("status") for peer in _entries(entry, "connections")}
    version = entry.string("version") if entry.has("version") else None
    return ImexNode(entry.string("host"), entry.string("status"), version, connections)


def _entries(of: Json, key: str) -> list[Json]:
    """Objects of an object whose keys are numbers."""
    numbered: dict[str, Any] = of.child(key).values
    return [of.child(key).child(number) for number in numbered]


def parse_nodes_config(text: str) -> tuple[str, ...]:
    """Addresses in ``nodes_config.cfg``, one a line. Raises ParseError where there is none."""
    lines = (line.partition("#")[0].strip() for line in text_of(_LIST, text).splitlines())
    addresses = tuple(line for line in lines if line)
    if not addresses:
        raise ParseError(_LIST, "names no node")
    if odd := next((line for line in addresses if not re.fullmatch(r"[A-Za-z0-9.:_-]+", line)), None):
        raise ParseError(_LIST, f"expected an address, got {excerpt(odd)}")
    return addresses
