"""Identities of the nodes: recorded when a run begins or is resumed, and after every stage."""

from __future__ import annotations

from collections.abc import Iterable

from rackproof.core.evidence import Kind, NodeIdentity
from rackproof.evidence.session import Session
from rackproof.parse import ParseError
from rackproof.parse.identity import IDENTITY_COMMAND, parse_identity

_TIMEOUT_S = 30.0


def record_identities(session: Session, nodes: Iterable[str]) -> dict[str, NodeIdentity]:
    """Ask the nodes who they are, all at once, and record the answers; a node that is silent was lost."""
    identities: dict[str, NodeIdentity] = {}
    for node, result in session.run(dict.fromkeys(nodes, IDENTITY_COMMAND), _TIMEOUT_S).items():
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
