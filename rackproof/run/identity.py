"""Identities of the nodes: recorded when a run begins or is resumed, and after every stage."""

from __future__ import annotations

from collections.abc import Collection

from rackproof.core.evidence import Kind, NodeIdentity
from rackproof.evidence.session import Session
from rackproof.parse import ParseError
from rackproof.parse.identity import IDENTITY_COMMAND, parse_identity
from rackproof.remote.command import CommandResult

_TIMEOUTS_S = (30.0, 120.0)
"""Of the first and of the last attempt: a node that was under load may be slow to answer."""


def record_identities(session: Session, nodes: Collection[str]) -> dict[str, NodeIdentity]:
    """Ask the nodes who they are, all at once, and record the answers; a node that is silent was lost."""
    identities: dict[str, NodeIdentity] = {}
    results: dict[str, CommandResult] = {}
    for timeout_s in _TIMEOUTS_S:
        slow = [node for node in nodes if node not in session.lost and not _answered(results.get(node))]
        results |= session.run(dict.fromkeys(slow, IDENTITY_COMMAND), timeout_s)
    for node, result in results.items():
        if result.rc is None:
            session.lose(node, result.why)
            continue
        try:
            machine_id, boot_id, serial = parse_identity(result.stdout)
        except ParseError:
            continue  # the judge misses its identity
        identities[node] = NodeIdentity(
            node=node, machine_id=machine_id, boot_id=boot_id, serial=serial,
            host_key=session.fleet[node].host_key, raw=session.outputs(result),
        )  # fmt: skip
        session.store.append(Kind.IDENTITY, identities[node])
    return identities


def _answered(result: CommandResult | None) -> bool:
    return result is not None and result.rc is not None
