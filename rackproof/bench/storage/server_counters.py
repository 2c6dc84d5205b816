"""Bytes that a storage's servers read from their drives and sent during a run: nothing else shows reads that their
memory answered."""

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
    rdma: bool = True
    """Whether RDMA devices of every server count bytes."""


def served_bytes(served: Served | str | None, read: int | None) -> dict[str, float]:
    """Numbers for the gate ``server_drives``; empty where one is not known, or nothing was read. ``read``: by all
    clients in the time that ``served`` is about."""
    if not isinstance(served, Served) or not read:
        return {}
    return {"clients_read_bytes": float(read), "server_drives_bytes": float(served.drives)}


def served_between(before: Mapping[str, CommandResult], after: Mapping[str, CommandResult]) -> Served:
    """Growth between two answers of every server. Raises ParseError."""
    if not before or before.keys() != after.keys():
        raise ParseError(_TOOL, "expected an answer of every server before and after the run")
    drives, ports, rdma = 0, dict[str, int](), True
    for node in before:
        old, new = _state(before[node]), _state(after[node])
        if old.drives.keys() != new.drives.keys():
            raise ParseError(_TOOL, f"{node} had other drives after the run")
        new.ports.check_since(old.ports)
        own = [new.drives[name] - old.drives[name] for name in old.drives]
        if min(own) < 0 or (sent := _sent(old, new)) < 0:
            raise ParseError(_TOOL, f"{node}: its counters began again during the run")
        drives, ports[node] = drives + sum(own), sent
        rdma = rdma and old.ports.rdma is not None and new.ports.rdma is not None
    return Served(drives, sum(ports.values()), ports, rdma)


def _state(answer: CommandResult) -> ServerState:
    if not answer.ok:
        raise ParseError(_TOOL, f"{answer.node}: {answer.why}")
    return parse_server_state(answer.stdout)


def _sent(old: ServerState, new: ServerState) -> int:
    """Adapters that do RDMA count it in the RDMA device only, others in the interface only."""
    pairs = [(old.ports.kernel, new.ports.kernel), (old.ports.wire, new.ports.wire), (old.ports.rdma, new.ports.rdma)]
    return max(b.written - a.written for a, b in pairs if a is not None and b is not None)
