"""One verdict per node instead of one per pair: of its worst pair, which the message names.

A rack of 256 nodes has 32,640 pairs; their numbers stay in the evidence as measurements. A failing pair that is blamed
on one of its nodes (``attribution``) counts for that node alone: its partner passes with others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rackproof.core.grouping import grouped
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict, amended
from rackproof.core.wording import counted

FEWEST: Final = 4
"""Number of nodes from which on pairs are folded; fewer nodes have no more pairs than nodes."""


def folded(verdicts: Iterable[Verdict], remark: str = "") -> Iterator[Verdict]:
    """Groups pair verdicts by node. Other verdicts, and racks below ``FEWEST`` nodes, stay unchanged.

    ``remark``: about pairs without a verdict, for every message.
    """
    verdicts = list(verdicts)
    if remark:
        verdicts = [amended(verdict, message=f"{verdict.message}; {remark}") for verdict in verdicts]
    by_node = grouped((end, verdict) for verdict in verdicts for end in verdict.subject.split("|"))
    if len(by_node) < FEWEST or not all("|" in verdict.subject for verdict in verdicts):
        yield from verdicts
        return
    for node, pairs in by_node.items():
        own = [pair for pair in pairs if pair.blame not in _others(pair, node)]
        yield _of_node(node, own) if own else _without_pair(node, pairs)


def _others(pair: Verdict, node: str) -> list[str]:
    return [end for end in pair.subject.split("|") if end != node]


def _without_pair(node: str, pairs: list[Verdict]) -> Verdict:
    """The node is not blamed for any pair, and no pair shows that it is well."""
    message = (
        f"no pair shows this node: each of its {counted(len(pairs), 'pair')} fails, and is blamed on the other node"
    )
    return amended(
        pairs[0], subject=node, status=Status.UNMEASURED, message=message, blame=None, value=None, samples=(),
        distance_pct=None, measured=None, cv_pct=None, simulated=any(pair.simulated for pair in pairs),
    )  # fmt: skip


def _of_node(node: str, pairs: list[Verdict]) -> Verdict:
    worst = max(pairs, key=lambda verdict: (verdict.status.rank, -_distance(verdict), verdict.subject))
    same = [verdict for verdict in pairs if verdict.status is worst.status]
    if len(pairs) == 1:
        counts = "the only pair"
    elif worst.status in (Status.PASS, Status.WARN):
        counts = f"the worst of {len(pairs)} pairs"
    else:
        counts = f"{len(same)} of {len(pairs)} pairs, this one first"
    message = f"{worst.subject.replace('|', ' ↔ ')}: {worst.message}; {counts}"
    records = worst.records
    if worst.status in (Status.INVALID, Status.UNMEASURED):  # each of their steps may have to be repeated
        records = tuple(dict.fromkeys(seq for verdict in same for seq in verdict.records))
    simulated = any(verdict.simulated for verdict in pairs)
    return amended(worst, subject=node, message=message, records=records, simulated=simulated)


def _distance(verdict: Verdict) -> float:
    return 0.0 if verdict.distance_pct is None else verdict.distance_pct
