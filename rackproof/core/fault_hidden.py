"""Search of one fault whose nodes all pass some jobs: a link, a node that fails now and then or under load only. Pure.

Every job is a part of a set that failed, the part whose answer says most by the likelihoods of all answers so far.
A likely fault is tried by itself: a node with other partners each time, the ends of a link together and apart. As there
are more links than nodes, some 20 jobs must contain each end before neither can be an intermittent node.
A node that lets the share p of its jobs fail is found among n with log2(n) / log2(1 + p (1 - p)^((1 - p) / p)) jobs at
best: 24 of 232 nodes with p = 0.5, 9 with 0.95. ``benchmarks/schedule.py`` shows how many it takes.
"""

from __future__ import annotations

from typing import Final

from rackproof.core.fault_beliefs import Beliefs, Guess, bits
from rackproof.core.fault_jobs import MOST_JOBS, Jobs
from rackproof.core.group_testing import Fault, FaultKind, Job

DOUBT: Final = 2e-4
"""Largest likelihood that a name is wrong; a tenth of it where the name leaves failed jobs unexplained, or is one of
several. Half of it costs a link one job more, 36 at most, and the simulation has no wrong name with either."""
LIKELY: Final = 0.75
"""Minimum likelihood of a fault for a job that tests it alone; below it the set of nodes is halved."""
WITNESSES: Final = 2
"""Partners with each of which alone a node fails before it is named."""
ORDERS: Final = 6
"""Number of shuffled orders of the nodes; the next job is a prefix of one of them."""
HIDDEN_JOBS: Final = 80
"""Most jobs in search of one fault."""


class Hidden:
    """One search within a failed job."""

    def __init__(self, jobs: Jobs, failed: Job) -> None:
        self.jobs, self.rails = jobs, failed.rails
        self.names = jobs.places.names
        self.bit = {name: number for number, name in enumerate(self.names)}
        self.sound = jobs.mask(frozenset(name for name in self.names if jobs.sound(name) >= self.rails))
        self.focus = jobs.mask(failed.nodes) & self.sound
        self.beliefs = Beliefs(len(self.names))
        self.taken = 0
        self._take()

    def search(self) -> bool:
        """Run jobs until the fault is named. False: ``HIDDEN_JOBS`` or ``MOST_JOBS`` was reached before."""
        until = len(self.jobs.history) + HIDDEN_JOBS
        while len(self.jobs.history) < min(until, MOST_JOBS):
            guess = self.beliefs.best(self.focus)
            if guess.share < LIKELY and self.focus.bit_count() > 2:
                self._halve(guess.load)
            elif len(guess.nodes) == 1:
                if self._node(guess):
                    return True
            else:
                a, b = guess.nodes
                if self._link(a, b, guess.share):
                    return True
        return False

    def _take(self) -> None:
        """Learn from the jobs since the last call; the smallest failed set is searched next."""
        history = self.jobs.history
        for (job, ok), load in zip(history[self.taken :], self.jobs.loads[self.taken :], strict=True):
            explained = not ok and any(fault.touches(job) for fault in self.jobs.faults)
            if job.rails >= self.rails and not explained:
                mask = self.jobs.mask(job.nodes)
                self.beliefs.add(mask, ok, load)
                if not ok and self.taken and mask.bit_count() < self.focus.bit_count():
                    self.focus = mask & self.sound
        self.taken = len(history)

    def _run(self, mask: int, busy: bool = False) -> bool:
        ok = self.jobs.passes(self.jobs.names(mask), self.rails, busy)
        self._take()
        return ok

    def _halve(self, busy: bool) -> None:
        nodes = self.jobs.names(self.focus)
        orders = [[self.bit[name] for name in self.jobs.shuffled(nodes)] for _ in range(ORDERS)]
        self._run(self.beliefs.part(self.focus, orders, busy), busy)

    def _partner(self, *nodes: int) -> int:
        """A node beside these that has passed a job, has no named link with them and failed with none of them alone."""
        used = sum({1 << node for node in nodes})
        for mask, _ in self.beliefs.failures:
            if mask.bit_count() == 2 and mask & used:
                used |= mask
        ends = {self.names[node] for node in nodes}
        for fault in self.jobs.faults:
            if fault.kind is FaultKind.LINK and ends & set(fault.nodes):
                used |= self.jobs.mask(frozenset(fault.nodes))
        good = self.sound & self.beliefs.good()
        left = self.jobs.names(good & ~used) or self.jobs.names(good & ~sum({1 << node for node in nodes}))
        return 1 << self.bit[self.jobs.shuffled(left)[0]] if left else 0

    def _alone(self, node: int) -> int:
        """Number of partners with each of which alone the node failed."""
        return len({mask for mask, _ in self.beliefs.failures if mask >> node & 1 and mask.bit_count() == 2})

    def _explains_all(self, fault: Fault) -> bool:
        return all(fault.touches(job) for job in self.jobs.unexplained(True))

    def _named(self, fault: Fault, share: float) -> bool:
        """Name a fault if that is certain enough."""
        alone = not self.jobs.faults and self._explains_all(fault)
        if share < 1 - DOUBT / (1 if alone else 10):
            return False
        self.jobs.faults.append(fault)
        return True

    def _node(self, guess: Guess) -> bool:
        (node,) = guess.nodes
        fault = Fault(FaultKind.NODE, (self.names[node],), None, True)
        if self._alone(node) >= WITNESSES and self._named(fault, guess.share):
            return True
        self._run(1 << node | self._partner(node), guess.load)
        return False

    def _link(self, a: int, b: int, share: float) -> bool:
        both = 1 << a | 1 << b
        alone = any(mask == both for mask, _ in self.beliefs.failures)
        link = Fault(FaultKind.LINK, (self.names[a], self.names[b]))
        if not alone:
            self._run(both)
        elif self._named(link, share):
            return True
        elif pending := self._last_of_one(link):
            self.jobs.round([pending])
            self._take()
        else:
            doubts = self.beliefs.intermittent(both)
            gains = {both: sum(one.weight * (1 - one.fails) for one in doubts)}
            gains |= {1 << one.node: one.weight * one.fails for one in doubts}
            best = max(gains, key=lambda mask: gains[mask])
            self._run(best if best == both else best | self._partner(*bits(both)))
        return False

    def _last_of_one(self, link: Fault) -> Job | None:
        """A pending final job with one end of the link only; None without one, or if failed jobs stay unexplained."""
        if not self._explains_all(link):
            return None
        pending = [job for job in self.jobs.unverified([link]) if job.rails >= self.rails]
        return next((job for job in pending if len(job.nodes.intersection(link.nodes)) == 1), None)
