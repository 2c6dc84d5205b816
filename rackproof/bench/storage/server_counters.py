"""What the servers of a storage read from their drives and sent during a run: reads that their memory answered are
seen nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rackproof.parse import ParseError
from rackproof.parse.server_state import ServerState, parse_server_state
from rackproof.remote.command import CommandResult

_TOOL = "server state"


class Served(NamedTuple):
    """Bytes of all servers in one run, with those of other programs."""

    drives: int
    """Read by the drives."""
    ports: int
    """Sent by the ports."""
    of_servers: Mapping[str, int] = {}
    """Sent by each server's ports."""


def served_between(before: Mapping[str, CommandResult], after: Mapping[str, CommandResult]) -> Served:
    """Growth between two answers of every server. Raises ParseError."""
    if not before or before.keys() != after.keys():
        raise ParseError(_TOOL, "expected an answer of every server before and after the run")
    drives, ports = 0, dict[str, int]()
    for node in before:
        old, new = _state(before[node]), _state(after[node])
        if old.drives.keys() != new.drives.keys():
            raise ParseError(_TOOL, f"{node} had other drives after the run")
        own = [new.drives[name] - old.drives[name] for name in old.drives]
        if min(own) < 0 or (sent := _sent(old, new)) < 0:
            raise ParseError(_TOOL, f"{node}: its counters began again during the run")
        drives, ports[node] = drives + sum(own), sent
    return Served(drives, sum(ports.values()), ports)


def _state(answer: CommandResult) -> ServerState:
    if not answer.ok:
        raise ParseError(_TOOL, f"{answer.node}: {answer.why}")
    return parse_server_state(answer.stdout)


def _sent(old: ServerState, new: ServerState) -> int:
    """Adapters that do RDMA count it in the RDMA device only, others in the interface only."""
    pairs = ((a, b) for a, b in zip(old.ports, new.ports, strict=True) if a is not None and b is not None)
    return max(b.written - a.written for a, b in pairs)
