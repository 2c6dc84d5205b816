"""Adaptive group testing: name the faulty nodes, links, rails and leaf switches of a rack with few collectives. Pure.

Three rounds screen the rack: all nodes, rows (nodes behind the same leaf switches) and columns (nodes of every row).
If all nodes together fail, rows are halved instead, and columns run only for rows that fail. What a passing job
contains is cleared. ``fault_solid`` searches what no passing job contains, ``fault_hidden`` the rest. The search ends
when every failed job contains a named fault, and all other nodes pass one job together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from rackproof.core.fault_hidden import Hidden
from rackproof.core.fault_jobs import Jobs, TooManyJobsError
from rackproof.core.fault_solid import SAMPLED, Solid
from rackproof.core.group_testing import COLUMNS, Fault, FaultKind, Job, Places, Result, Run, chunks

TRIES: Final = 3
"""Number of failed searches for hidden faults after which the nodes of the failed job stay unlocated."""
REPEATS: Final = (2, 6)
"""Repetitions of the last job, which all sound nodes pass together, if an intermittent fault was named: alone, and as
one of several. Another one may have passed."""


def locate(places: Places, run: Run, seed: int = 0) -> Result:
    """Search the faults of a rack. ``seed`` decides how nodes are shuffled; equal answers give an equal search.

    Raises ValueError for fewer than two nodes.
    """
    if len(places.names) < 2:
        raise ValueError("group testing needs two nodes")
    return Search(Jobs(places, run, seed)).result()


class Search:
    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.tries = self.repeats = 0

    def result(self) -> Result:
        jobs = self.jobs
        with suppress(TooManyJobsError):
            self._search()
        self._suspect_units()
        self._drop_parts()
        ends = Counter(name for fault in jobs.faults if fault.kind is FaultKind.LINK for name in fault.nodes)
        jobs.faults += [Fault(FaultKind.NODE, (name,), None, True) for name, links in ends.items() if links > 1]
        self._drop_parts()
        unconfirmed = [fault for fault in jobs.faults if not confirmed(fault, jobs.faults, jobs.history)]
        jobs.faults = [fault for fault in jobs.faults if fault not in unconfirmed]
        jobs.unlocated += [frozenset(fault.nodes) for fault in unconfirmed]
        unlocated = [frozenset(job.nodes) for job in jobs.unexplained(True)] + jobs.unlocated
        doubtful = frozenset(name for nodes in unlocated for name in nodes)
        named = {name for fault in jobs.faults for name in fault.nodes}
        cleared = jobs.together(frozenset(jobs.places.names) - named - doubtful)
        unique = tuple(dict.fromkeys(unlocated))
        return Result(tuple(jobs.faults), cleared, unique, tuple(jobs.rounds), tuple(jobs.history))

    def _search(self) -> None:
        jobs = self.jobs
        self._screen()
        before: tuple[int, ...] = ()
        while before != (now := (len(jobs.history), len(jobs.faults), len(jobs.unlocated), self.tries, self.repeats)):
            before = now  # without a new job the next turn would be the same
            if (suspects := jobs.suspects()) and Solid(jobs).narrow(suspects):
                continue
            if failed := jobs.unexplained():
                self._hidden(min(failed, key=lambda job: len(job.nodes)))
            elif missing := jobs.unverified():
                jobs.round([missing[0]])
            elif self.repeats < REPEATS[len(jobs.faults) > 1] and any(fault.intermittent for fault in jobs.faults):
                self.repeats += 1
                jobs.round(jobs.last()[:1])
            else:
                return

    def _hidden(self, failed: Job) -> None:
        search = Hidden(self.jobs, failed)
        if not search.search():
            self.tries += 1
            if self.tries >= TRIES:
                self.jobs.unlocated.append(failed.nodes)

    def _screen(self) -> None:
        jobs = self.jobs
        (together,) = jobs.round([Job(frozenset(jobs.places.names), jobs.rails)])
        if len(jobs.rows) < 2:
            return
        if together:
            failing = jobs.rows
            jobs.round([Job(frozenset(row), jobs.rails) for row in jobs.rows])
        else:
            failing = self._failing_rows()
        if failing:
            columns = jobs.places.columns(jobs.rows, 2 if len(failing) == 1 else COLUMNS)
            jobs.round([Job(frozenset(column), jobs.rails) for column in columns])

    def _failing_rows(self) -> list[tuple[str, ...]]:
        """Rows that fail beside nodes that passed, by halving those that fail together; empty for a fault between rows,
        or of a node that fails now and then."""
        jobs = self.jobs
        failing, single, good = [tuple(jobs.rows)], list[tuple[str, ...]](), list[str]()
        while failing:
            halves = [half for rows in failing for half in chunks(rows, 2)]
            parts = [[name for row in half for name in row] for half in halves]
            answers = jobs.round(
                [Job(frozenset((*part, *good[n :: len(parts)])), jobs.rails) for n, part in enumerate(parts)]
            )
            good += [name for part, passed in zip(parts, answers, strict=True) if passed for name in part]
            failed = [half for half, passed in zip(halves, answers, strict=True) if not passed]
            single += [half[0] for half in failed if len(half) == 1]
            failing = [half for half in failed if len(half) > 1]
        return single

    def _drop_parts(self) -> None:
        """Leave out rails and links of named nodes: a sick node explains them, and does not accuse their other end."""
        sick = {fault.nodes[0] for fault in self.jobs.faults if fault.kind is FaultKind.NODE}
        self.jobs.faults = [
            f for f in self.jobs.faults if f.kind in (FaultKind.NODE, FaultKind.LEAF) or sick.isdisjoint(f.nodes)
        ]

    def _suspect_units(self) -> None:
        """Replace ``SAMPLED`` or more named nodes behind the same leaf switches by one unlocated set."""
        for unit in self.jobs.places.units() if self.jobs.places.leaves or self.jobs.places.racks else ():
            sick = [fault for fault in self.jobs.faults if fault.kind is FaultKind.NODE and fault.nodes[0] in unit]
            if len(sick) >= SAMPLED:
                self.jobs.faults = [fault for fault in self.jobs.faults if fault not in sick]
                self.jobs.unlocated.append(frozenset(unit))


def confirmed(fault: Fault, faults: Iterable[Fault], jobs: Sequence[tuple[Job, bool]]) -> bool:
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
