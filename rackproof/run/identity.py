"""Record the nodes' identities, at the start and at each resume of a run, and after every stage."""

from __future__ import annotations

from collections.abc import Collection

from rackproof.core.evidence import Kind, NodeIdentity
from rackproof.evidence.session import Session
from rackproof.parse import ParseError
from rackproof.parse.identity import IDENTITY_COMMAND, parse_identity
from rackproof.remote.command import CommandResult

_TIMEOUTS_S = (30.0, 120.0)
"""Time limits of the first and the last attempt: a node after load may be slow."""


def record_identities(session: Session, nodes: Collection[str]) -> dict[str, NodeIdentity]:
    """Read the identities of all nodes at once, and record them. Silent nodes are lost."""
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
            machine = parse_identity(result.stdout)
        except ParseError:
            continue  # the judge reports the missing identity
        identities[node] = NodeIdentity(
            node=node, host_key=session.fleet[node].host_key, raw=session.outputs(result), **machine._asdict()
        )  # fmt: skip
        session.store.append(Kind.IDENTITY, identities[node])
    return identities


def _answered(result: CommandResult | None) -> bool:
    return result is not None and result.rc is not None
