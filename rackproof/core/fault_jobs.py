"""The jobs of one search of faults: what ran, what the answers leave open, and what must pass at the end. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from rackproof.core.fault_beliefs import BUSY
from rackproof.core.group_testing import Fault, FaultKind, Job, Places, Run
from rackproof.errors import RackproofError

MOST_JOBS: Final = 400
"""Limit of a search; what is not located by then stays unlocated."""


class TooManyJobsError(RackproofError):
    """The search has run ``MOST_JOBS`` jobs; faults that are not located by then stay unlocated."""


class Jobs:
    def __init__(self, places: Places, run: Run, seed: int) -> None:
        self.places, self.run, self.seed, self.shuffles = places, run, seed, 0
        self.rails = frozenset(range(max(1, places.rails)))
        self.rows = places.rows()
        self.faults: list[Fault] = []
        self.unlocated: list[frozenset[str]] = []
        self.history: list[tuple[Job, bool]] = []
        self.loads: list[float] = []
        """Share of all nodes that worked at once, by job."""
        self.rounds: list[int] = []
        self._bit = {name: 1 << number for number, name in enumerate(places.names)}
        self._masks: dict[frozenset[str], int] = {}

    # nodes as bits

    def mask(self, nodes: frozenset[str]) -> int:
        if nodes not in self._masks:
            self._masks[nodes] = sum(self._bit[name] for name in nodes)
        return self._masks[nodes]

    def names(self, mask: int) -> list[str]:
        """In the order of the inventory."""
        return [name for name, bit in self._bit.items() if mask & bit]

    # running

    def round(self, jobs: Sequence[Job], busy: bool = True) -> list[bool]:
        """Run jobs at once, beside one of all idle nodes if ``busy``. A job of one node passes: it does nothing."""
        if len(self.history) >= MOST_JOBS:
            raise TooManyJobsError
        real = [job for job in jobs if len(job.nodes) > 1]
        count = len(self.places.names)
        idle = frozenset(self.places.names).difference(*(job.nodes for job in real))
        filler = [Job(idle, self.rails)] if busy and real and len(idle) > (1 - BUSY) * count else []
        answers = list(self.run([*real, *filler])) if real else []
        load = sum(len(job.nodes) for job in (*real, *filler)) / count
        for job, passed in zip((*real, *filler), answers, strict=True):
            self.record(job, passed, load)
        if real:
            self.rounds.append(len(answers))
        left = iter(answers)
        return [next(left) if len(job.nodes) > 1 else True for job in jobs]

    def record(self, job: Job, passed: bool, load: float = 0.0) -> None:
        self.history.append((job, passed))
        self.loads.append(load)

    def passes(self, nodes: Iterable[str], rails: Collection[int] | None = None, busy: bool = True) -> bool:
        return self.round([Job(frozenset(nodes), self.rails if rails is None else frozenset(rails))], busy)[0]

    def shuffled(self, names: Sequence[str]) -> list[str]:
        """The names in an order that depends on the seed and on the number of shuffles so far."""
        self.shuffles += 1
        stream = hashlib.shake_256(f"{self.seed} {self.shuffles}".encode()).digest(8 * len(names))
        keys = {name: stream[8 * number : 8 * number + 8] for number, name in enumerate(names)}
        return sorted(names, key=lambda name: keys[name])

    # what the answers leave open

    def unexplained(self, every: bool = False) -> list[Job]:
        """Failed jobs without a named fault; those of unlocated sets only if ``every``."""
        return [
            job
            for job, passed in self.history
            if not passed
            and not any(fault.touches(job) for fault in self.faults)
            and (every or not any(nodes & job.nodes for nodes in self.unlocated))
        ]

    def suspects(self) -> list[str]:
        """Nodes of unexplained jobs that no passing job clears, on a rail that is not yet named."""
        cleared = dict.fromkeys(self.rails, 0)
        for job, passed in self.history:
            if passed:
                for rail in job.rails:
                    cleared[rail] |= self.mask(job.nodes)
        suspects = 0
        for job in self.unexplained():
            for rail in job.rails:
                suspects |= self.mask(job.nodes) & ~cleared[rail]
        return self.names(suspects)

    def sound(self, name: str) -> frozenset[int]:
        """Rails of a node without a named fault; links are left aside."""
        bad: set[int] = set()
        for fault in self.faults:
            if name in fault.nodes and fault.kind is not FaultKind.LINK:
                bad |= self.rails if fault.rail is None else {fault.rail}
        return self.rails - bad

    def unverified(self, links: Iterable[Fault] = ()) -> list[Job]:
        """Final jobs (``last``) that have not passed yet; ``links``: treated as named, too."""
        passed = [job for job, good in self.history if good]
        return [
            job
            for job in self.last(links)
            if not any(job.nodes <= p.nodes and job.rails <= p.rails for p in passed)
            if not any(nodes & job.nodes for nodes in self.unlocated)
        ]

    def last(self, more: Iterable[Fault] = ()) -> list[Job]:
        """Jobs that must pass at the end: all sound nodes together, and the sound rails of the others."""
        sound = {name: self.sound(name) for name in self.places.names}
        whole = frozenset(name for name in sound if sound[name] == self.rails)
        links = [fault.nodes for fault in (*self.faults, *more) if fault.kind is FaultKind.LINK]
        others = [rails for rails in dict.fromkeys(sound.values()) if rails and rails != self.rails]
        needed: list[Job] = []
        for end in (0, 1) if links else (0,):
            left_out = {ends[end] for ends in links}
            needed.append(Job(whole - left_out, self.rails))
            for rails in others:
                group = {name for name in sound if sound[name] == rails}
                if not end or any(group.intersection(ends) for ends in links):
                    needed.append(Job((whole | group) - left_out, rails))
        return [job for job in needed if len(job.nodes) > 1]

    def together(self, names: frozenset[str]) -> frozenset[str]:
        """Nodes of ``names`` that pass one job together, so that each pair of them does."""
        if len(names) < 2:
            return frozenset()
        shown = any(good and job.nodes >= names and job.rails >= self.rails for job, good in self.history)
        if not shown and len(self.history) < MOST_JOBS:
            self.passes(names, busy=False)
        together = (job.nodes & names for job, good in self.history if good and job.rails >= self.rails)
        most = max(together, key=len, default=frozenset[str]())
        return most if len(most) > 1 else frozenset()
