"""Search of solid faults: nodes, rails and leaf switches that no job passes with. Pure.

Suspects are halved, each half with known-good partners, and most nodes stay busy, so that faults which need the load of
all nodes show. A fault is named only with evidence from disjoint partners.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from rackproof.core.fault_jobs import Jobs
from rackproof.core.group_testing import ROWS, Fault, FaultKind, Job, chunks

SAMPLED: Final = 4
"""Nodes behind a leaf switch that must all fail on its rail, each with other partners."""

PARTNERS: Final = 2
"""Number of known-good partners in tests of single rails, if a fault may hide among the known-good nodes."""

SEVERAL: Final = 3
"""Most faulty rails of a node that are located one by one; with more, all of its rails count as faulty."""


class Solid:
    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.hiding = False
        """Whether a fault may hide among the nodes that are no suspects, for example because they failed together."""

    def narrow(self, suspects: Sequence[str]) -> bool:
        """Name faults of suspects. False: a suspect passes with other partners, so a hidden fault made jobs fail."""
        base = self._base(suspects)
        if len(base) < 2:
            self._first_good(suspects)
            return True
        for unit in self.jobs.places.units() if self.jobs.places.leaves or self.jobs.places.racks else ():
            group = [name for name in unit if name in suspects]
            whole = len(group) == len([name for name in unit if self.jobs.sound(name)]) >= SAMPLED
            if whole and self._leaf(unit, group, base):
                return True
        for rails in dict.fromkeys(self.jobs.sound(name) for name in suspects):
            groups = [
                [name for name in row if name in suspects and self.jobs.sound(name) == rails] for row in self.jobs.rows
            ]
            for group in filter(None, groups):
                name = self._isolate(group, base, rails)
                if name is None or not self._examine(name, base, rails):
                    return False
        return True

    def _first_good(self, suspects: Sequence[str]) -> None:
        """Where all rows and columns fail: smaller and smaller parts, until one passes."""
        for parts in (2 * ROWS, 4 * ROWS, 8 * ROWS, len(suspects) // 2):
            if any(
                self.jobs.round(
                    [Job(frozenset(part), self.jobs.rails) for part in chunks(suspects, parts) if len(part) > 1]
                )
            ):
                return
        self.jobs.unlocated.append(frozenset(suspects))

    def _base(self, suspects: Collection[str]) -> list[str]:
        """Known-good partners: all but suspects and named ones if these pass one job; otherwise a part that does."""
        ends = {fault.nodes[0] for fault in self.jobs.faults if fault.kind is FaultKind.LINK}
        names = [
            name
            for name in self.jobs.places.names
            if name not in suspects and name not in ends and self.jobs.sound(name) == self.jobs.rails
        ]
        wanted = frozenset(names)
        passed = [job.nodes & wanted for job, good in self.jobs.history if good and job.rails == self.jobs.rails]
        if wanted not in passed:
            if len(names) > 1 and self.jobs.passes(names):
                return names
            self.hiding = len(names) > 1
            passed = [job.nodes & wanted for job, good in self.jobs.history if good and job.rails == self.jobs.rails]
            wanted = max(passed, key=len, default=frozenset())
        return [name for name in names if name in wanted]

    def _leaf(self, unit: Sequence[str], group: Sequence[str], base: Sequence[str]) -> bool:
        """Whether all nodes of a unit fail because of its leaf switches, which are then named."""
        sample = self.jobs.shuffled(group)[:SAMPLED]
        if not self._all_fail(sample, base, self.jobs.rails):
            return False
        bad = self.jobs.rails
        for first in range(0, SAMPLED, 2):
            failing = (
                self._bad_rails(sample[first : first + 2], base, self.jobs.rails)
                if len(self.jobs.rails) > 1
                else self.jobs.rails
            )
            bad = failing if len(failing) < len(bad) else bad
            if len(bad) == 1:
                break
            self.hiding = self.hiding or len(bad) == len(self.jobs.rails)
        named = [rail for rail in sorted(bad) if self._all_fail(sample, base, frozenset({rail}))]
        if len(bad) == len(self.jobs.rails) > 1 or not named:
            return False
        self.jobs.faults += [Fault(FaultKind.LEAF, tuple(unit), rail) for rail in named]
        return True

    def _all_fail(self, sample: Sequence[str], base: Sequence[str], rails: frozenset[int]) -> bool:
        parts = [[name] for name in sample]
        return not any(self._beside(parts, base, rails))

    def _beside(self, parts: Sequence[Sequence[str]], base: Sequence[str], rails: frozenset[int]) -> list[bool]:
        """Run each part with its share of the known-good nodes, as many at once as there are partners for."""
        answers: list[bool] = []
        most = max(1, len(base) // 2)
        for batch in chunks(parts, -(-len(parts) // most)):
            shares = [base[number :: len(batch)] for number in range(len(batch))]
            jobs = [Job(frozenset((*part, *share)), rails) for part, share in zip(batch, shares, strict=True)]
            answers += self.jobs.round(jobs)
        return answers

    def _isolate(self, group: Sequence[str], base: Sequence[str], rails: frozenset[int]) -> str | None:
        """A node of a failing group by halving it; another faulty one stays a suspect. None: both halves pass."""
        while len(group) > 1:
            halves = chunks(group, 2)
            failing = [half for half, ok in zip(halves, self._beside(halves, base, rails), strict=True) if not ok]
            if not failing:
                return None
            group = failing[0]
        return group[0]

    def _examine(self, name: str, base: Sequence[str], rails: frozenset[int]) -> bool:
        """Name the fault of a node that fails with other partners, too. False for one that passes."""
        last = next(job for job, ok in reversed(self.jobs.history) if not ok and name in job.nodes)
        first = [other for other in base if other in last.nodes]
        second = [other for other in base if other not in last.nodes] or first
        if self.jobs.passes([name, *second], rails):
            return False
        # few partners: none of them is sick; of the first ones: a link has its other end in one half only
        few = self.jobs.shuffled(first if len(first) > 1 and second is not first else base)
        if any(self.jobs.passes([name, *pair], rails) for pair in (few[:2], few[2:4] or few[:2])):
            return False
        self._refine(name, base, rails)
        return True

    def _refine(self, name: str, base: Sequence[str], rails: frozenset[int]) -> None:
        """Name a node, or its faulty rails, each of which fails once more while the others pass."""
        passed = any(ok and name in job.nodes and job.rails >= rails for job, ok in self.jobs.history)
        bad = rails if passed or len(rails) == 1 else self._bad_rails([name], base, rails)
        if len(bad) < len(rails):
            few = [name, *self.jobs.shuffled(base)[:2]]
            passed = any(self.jobs.passes(few, [rail], busy=False) for rail in sorted(bad))
        if passed or (len(bad) > len(rails) / 2 and len(self.jobs.rails) == len(rails)):
            self.jobs.faults.append(Fault(FaultKind.NODE, (name,), None, passed or len(bad) < len(rails)))
        else:
            self.jobs.faults += [Fault(FaultKind.RAIL, (name,), rail) for rail in sorted(bad)]

    def _bad_rails(self, names: Sequence[str], base: Sequence[str], among: frozenset[int]) -> frozenset[int]:
        """Rails on which the nodes fail, at least one: the first and the last, then one by one by halving.

        Where a fault hides among all partners, each job has a few others: an intermittent one spoils one answer.
        """

        def passes(rails: Sequence[int]) -> bool:
            partners = self.jobs.shuffled(base)[:PARTNERS] if self.hiding else base
            return self.jobs.passes([*names, *partners], rails)

        rails = sorted(among)
        ends = [rail for rail in dict.fromkeys((rails[0], rails[-1])) if not passes([rail])]
        left = [rail for rail in rails[1:-1] if rail not in ends]
        bad = set(ends)
        if len(bad) == 2:
            for rail in left:
                if not passes([rail]):
                    bad.add(rail)
                if len(bad) > SEVERAL:
                    return among
            return frozenset(bad)
        while left and not passes(left):
            if len(bad) == SEVERAL:
                return among
            halves: Sequence[int] = left
            while len(halves) > 1:
                half, rest = chunks(halves, 2)
                halves = rest if passes(half) else half
            bad.add(halves[0])
            left.remove(halves[0])
        return frozenset(bad)
