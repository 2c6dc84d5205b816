"""Attribution of a failing pair to one of its nodes, from the other pairs.

A single failing pair does not show which node is faulty. A node is good if it passes the test with any partner. A node
is blamed if it passes with no partner and fails against two good partners: then neither a partner nor one cable can be
the cause. Of a pair of which group testing cleared one node and names the other, the other is blamed. If both nodes are
good, the fault is between them. All other cases are undetermined.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from rackproof.core.status import Status
from rackproof.core.verdict import Verdict, amended

BETWEEN = "between the two, neither node alone"
UNDETERMINED = "pair, undetermined"

_GOOD = (Status.PASS, Status.WARN)


def attributed(
    verdicts: Iterable[Verdict], cleared: Collection[str] = (), named: Collection[str] = ()
) -> Iterator[Verdict]:
    """The verdicts of one test on pairs, with ``blame`` set on the failed ones. INVALID and UNMEASURED are ignored.

    ``cleared``, ``named``: nodes that group testing cleared, or names as faulty.
    """
    verdicts = list(verdicts)
    good: set[str] = set()
    failed: dict[str, set[str]] = defaultdict(set)
    for verdict in verdicts:
        pair = _pair(verdict)
        if pair and verdict.status in _GOOD:
            good.update(pair)
        elif pair and verdict.status is Status.FAIL:
            failed[pair[0]].add(pair[1])
            failed[pair[1]].add(pair[0])
    # Two witnesses suffice for any pair: one of them may be the partner.
    witnesses = {node: sorted(partners & good)[:2] for node, partners in failed.items()}
    for verdict in verdicts:
        pair = _pair(verdict)
        if not pair or verdict.status is not Status.FAIL:
            yield verdict
            continue
        blame, why = _blame(pair, good, witnesses)
        if blame == UNDETERMINED and (faulty := set(pair) & set(named)) and (sound := set(pair) & set(cleared)):
            (blame,), (partner,) = faulty, sound
            why = f"blamed on {blame}: group testing names it, and cleared {partner}"
        yield amended(verdict, blame=blame, message=f"{verdict.message}; {why}")


def _blame(pair: tuple[str, str], good: set[str], witnesses: dict[str, list[str]]) -> tuple[str, str]:
    """The blame, and a sentence for the message."""
    if good.issuperset(pair):
        return BETWEEN, f"{BETWEEN}: each of them passes with another node"
    for node, partner in (pair, pair[::-1]):
        others = [name for name in witnesses[node] if name != partner]
        if partner in good and node not in good and others:
            return node, f"blamed on {node}: it fails against {others[0]} too, and both partners pass with others"
    return UNDETERMINED, UNDETERMINED


def _pair(verdict: Verdict) -> tuple[str, str] | None:
    a, bar, b = verdict.subject.partition("|")
    return (a, b) if bar else None
