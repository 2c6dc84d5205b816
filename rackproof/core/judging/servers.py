"""Failures of clients that are a server's: one verdict on the server instead of one on every client."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.core.grouping import grouped
from rackproof.core.judging.missing import severity_of
from rackproof.core.rack import fold
from rackproof.core.status import Status
from rackproof.core.verdict import SERVER, Verdict, with_item

FEWEST_CLIENTS = 2
"""A single client may be at fault itself."""

Blamed = Mapping[tuple[str, str, str], Sequence[CheckResult]]
"""Check, item and server: results of the clients that get no answer of it."""


def blamed(results: Collection[CheckResult]) -> Blamed:
    """Servers that several clients get no answer of, and that no client gets an answer of."""
    answered = {(r.check, r.item) for r in results if r.outcome is CheckOutcome.PASSED}
    by_server = grouped(
        ((result.check, result.item, result.blames), result)
        for result in results
        if result.blames and result.outcome is CheckOutcome.FAILED and (result.check, result.item) not in answered
    )
    return {key: clients for key, clients in by_server.items() if len(clients) >= FEWEST_CLIENTS}


def judge_servers(architecture: Architecture, silent: Blamed, nodes: Collection[str]) -> Iterator[Verdict]:
    """One failed verdict for each server, on it where it is a node of the rack."""
    for (check, item, server), clients in silent.items():
        name = server.partition(" ")[0]
        first = clients[0]
        id_ = with_item(check, item)
        yield Verdict(
            id=f"{SERVER}[{item}]" if name in nodes else f"{SERVER}[{item}, {name}]",
            kind="check",
            title=f"Server of {item}",
            subject=name if name in nodes else "rack",
            status=Status.FAIL,
            required=any(severity_of(architecture, id_, check, client.required) for client in clients),
            message=f"{server} does not answer {len(clients)} clients, {fold(client.node for client in clients)}",
            source=first.reads or None,
            reason=first.protects,
            hint=first.hint,
            raw=tuple(dict.fromkeys(sha for client in clients for sha in client.raw)),
        )
