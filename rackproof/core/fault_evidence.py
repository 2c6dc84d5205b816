"""What the jobs of group testing say about nodes, pairs and named faults. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from math import exp, log
from typing import Final

from rackproof.core.group_testing import Fault, FaultKind, Job

Jobs = Sequence[tuple[Job, bool]]
"""Every job and whether it passed, in order."""
SHARE: Final = 0.7
"""Assumed share of its jobs that an intermittent node lets fail."""
STRAY: Final = 0.05
"""Assumed share of jobs that another fault lets fail."""


def likely(jobs: Jobs, faults: Iterable[Fault], names: Iterable[str], rails: frozenset[int]) -> dict[str, float]:
    """Likelihood of each node that it alone lets those jobs fail that no fault explains; highest first."""
    named, weight = list(faults), dict.fromkeys(sorted(names), 0.0)
    for job, ok in jobs:
        if not ok and any(fault.touches(job) for fault in named):
            continue
        inside, outside = (log(1 - SHARE), 0.0) if ok else (log(SHARE), log(STRAY))
        for name in weight:
            weight[name] += inside if name in job.nodes and job.rails & rails else outside
    top = max(weight.values(), default=0.0)
    scaled = {name: exp(value - top) for name, value in weight.items()}
    whole = sum(scaled.values())
    return {name: scaled[name] / whole for name in sorted(scaled, key=lambda name: (-scaled[name], name))}


def never_together(
    jobs: Jobs, failed: Iterable[Job], nodes: frozenset[str], rails: frozenset[int], most: int
) -> list[tuple[str, str]]:
    """Pairs that no passing job contains, those first that most of the failed jobs do."""
    places = dict.fromkeys(sorted(nodes), 0)
    for number, (job, ok) in enumerate(jobs):
        if ok and job.rails >= rails:
            for name in job.nodes & nodes:
                places[name] |= 1 << number
    counts: Counter[tuple[str, str]] = Counter()
    for job in failed:
        inside = sorted(job.nodes & nodes)
        counts.update(pair for pair in combinations(inside, 2) if not places[pair[0]] & places[pair[1]])
    return [pair for pair, _ in counts.most_common(most)]


def confirmed(fault: Fault, faults: Iterable[Fault], jobs: Jobs) -> bool:
    """Whether a failed job has no other explanation, and its other nodes pass a job together.

    A link is in doubt while a failed job that nothing explains contains one of its ends: that node may be the fault.
    """
    others = [other for other in faults if other is not fault]
    passed = [job for job, ok in jobs if ok]
    if fault.kind is FaultKind.LINK:
        for job, ok in jobs:
            if not ok and len(job.nodes.intersection(fault.nodes)) == 1 and not any(o.touches(job) for o in others):
                return False
    for job, ok in jobs:
        if ok or not fault.touches(job) or any(other.touches(job) for other in others):
            continue
        left = job.nodes - frozenset(fault.nodes)
        if not left or any(left <= good.nodes and job.rails <= good.rails for good in passed):
            return True
    return False


def doubt(link: Fault, end: str, without: range, faults: Iterable[Fault], jobs: Jobs) -> float | None:
    """Likelihood that an intermittent ``end`` gave all answers but those ``without``; None if the link cannot."""
    others = [fault for fault in faults if fault is not link]
    failed = passed = 0
    for at, (job, ok) in enumerate(jobs):
        if link.touches(job) and ok:
            return None
        if end not in job.nodes or at in without or any(fault.touches(job) for fault in others):
            continue
        failed += link.touches(job)
        passed += ok
    if not failed or not passed:
        return 1.0
    share = failed / (failed + passed)
    return exp(failed * log(share) + passed * log(1 - share))
