"""Likelihoods of one more fault by all answers of a search: a link, an intermittent node, a node that load makes sick.

Nodes are bits of whole numbers. Only sums, products and quotients are used, whose results are the same on all
machines: ``judge`` makes a search again by its answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from math import fsum
from typing import Final, NamedTuple

SHARES: Final = (0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
"""Assumed failure rates of the jobs of an intermittent node, all equally likely."""
STRAY: Final = 0.5
"""Probability that another fault makes a job of all nodes fail; in proportion for a job of fewer nodes."""
BUSY: Final = 0.7
"""Minimum share of all nodes that run jobs in a round for it to count as under load."""
SURPRISE: Final = 0.03
"""Likelihood that a node which load makes sick passes a round under load, or fails another one."""
LOADS: Final = 0.1
"""Prior of a node that fails only under load, relative to that of an intermittent node."""
PARTLY: Final = 0.05
"""Likelihood of a pair that some failed job does not contain, against one that all failed jobs contain."""
FEW: Final = 12
"""Maximum number of links whose weights are computed one by one; of more, only their sum is."""


class Guess(NamedTuple):
    """A hypothesis. ``nodes``: one, or the two ends of a link; ``share``: its likelihood among all hypotheses."""

    nodes: tuple[int, ...]
    share: float
    load: bool = False


class Suspect(NamedTuple):
    node: int
    weight: float
    fails: float
    """Likelihood that it lets the next job fail."""


@cache
def _terms(failed: int, passed: int) -> tuple[float, ...]:
    """Likelihood of so many failed and passed jobs by share."""
    if failed:
        return tuple(term * share for term, share in zip(_terms(failed - 1, passed), SHARES, strict=True))
    if passed:
        return tuple(term * (1 - share) for term, share in zip(_terms(0, passed - 1), SHARES, strict=True))
    return (1.0,) * len(SHARES)


@cache
def likelihood(failed: int, passed: int) -> float:
    """Likelihood of so many failed and passed jobs of an intermittent node, mean over ``SHARES``."""
    return fsum(_terms(failed, passed)) / len(SHARES)


def bits(mask: int) -> Iterator[int]:
    """Positions of the bits that are set."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Beliefs:
    """Evidence of the answers for one more fault, beside those that explain some failed jobs."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.failed, self.passed = [0] * count, [0] * count
        self.outside, self.loaded = [1.0] * count, [1.0] * count
        """By node: likelihood of the failed jobs that do not contain it; of its jobs if it fails only under load."""
        self.apart = [(1 << count) - 1 & ~(1 << node) for node in range(count)]
        """Nodes that no passing job contains together with this one."""
        self.whole = list(self.apart)
        """Nodes of ``apart`` that every failed job contains together with this node."""
        self.failures: list[tuple[int, float]] = []

    def add(self, mask: int, ok: bool, load: float) -> None:
        """One job, with the share of all nodes that worked in its round."""
        for node in bits(mask):
            if ok:
                self.passed[node] += 1
                self.apart[node] &= ~mask
                self.whole[node] &= ~mask
            else:
                self.failed[node] += 1
                self.whole[node] &= mask
            if ok == (load >= BUSY):
                self.loaded[node] *= SURPRISE
        if not ok:
            stray = STRAY * mask.bit_count() / self.count
            self.failures.append((mask, stray))
            for node in bits(((1 << self.count) - 1) & ~mask):
                self.outside[node] *= stray
                self.whole[node] = 0

    def good(self) -> int:
        """Nodes that have passed a job."""
        return sum(1 << node for node, passed in enumerate(self.passed) if passed)

    def intermittent(self, focus: int) -> list[Suspect]:
        suspects = []
        for node in bits(focus):
            failed, passed = self.failed[node], self.passed[node]
            here = likelihood(failed, passed)
            fails = likelihood(failed + 1, passed) / here
            suspects.append(Suspect(node, self.outside[node] * here / self.count, fails))
        return suspects

    def overloaded(self, focus: int) -> list[Suspect]:
        return [Suspect(node, self.outside[node] * self.loaded[node] * LOADS / self.count, 1.0) for node in bits(focus)]

    def _pairs(self, partners: Sequence[int], focus: int) -> list[tuple[int, int]]:
        return [(a, b) for a in bits(focus) for b in bits(partners[a] & focus) if a < b]

    def link(self, a: int, b: int) -> float:
        """Weight of a link by every failed job; 0 if both passed together."""
        if not self.apart[a] >> b & 1:
            return 0.0
        both, weight = 1 << a | 1 << b, 2 / (self.count * (self.count - 1))
        for mask, stray in self.failures:
            if mask & both != both:
                weight *= stray
        return weight

    def best(self, focus: int) -> Guess:
        """The likeliest fault within nodes that failed together."""
        nodes, loads = self.intermittent(focus), self.overloaded(focus)
        guesses: list[tuple[tuple[int, ...], float, bool]] = [
            ((one.node,), one.weight + loaded.weight, loaded.weight > one.weight)
            for one, loaded in zip(nodes, loads, strict=True)
        ]
        links = self.weights()
        rest = 0.0
        in_all_failed = sum((links.whole[a] & focus).bit_count() for a in bits(focus)) // 2
        possible = sum((self.apart[a] & focus).bit_count() for a in bits(focus)) // 2
        if possible <= FEW:
            guesses += [((a, b), self.link(a, b), False) for a, b in self._pairs(self.apart, focus)]
        else:
            rest = fsum(links.mass(a, focus) for a in bits(focus)) / 2
            if in_all_failed <= FEW:
                pairs = self._pairs(self.whole, focus)
                guesses += [(pair, links.unit, False) for pair in pairs]
                rest -= len(pairs) * links.unit
        total = fsum((rest, *(weight for _, weight, _ in guesses)))
        chosen, weight, load = max(guesses, key=lambda guess: guess[1])
        return Guess(chosen, weight / total if total else 0.0, load)

    def weights(self) -> Links:
        return Links(2 / (self.count * (self.count - 1)), self.whole, self.apart, self.outside)

    def part(self, focus: int, orders: Sequence[Sequence[int]], load: bool) -> int:
        """The prefix of an order whose answer is expected to tell most; ``load``: its job runs under load."""
        nodes, loads, links = self.intermittent(focus), self.overloaded(focus), self.weights()
        pairs = fsum(links.mass(a, focus) for a in bits(focus)) / 2
        total = fsum((pairs, *(one.weight for one in nodes), *(one.weight for one in loads))) or 1.0
        own = {one.node: one for one in nodes}
        sick = {one.node: one.weight if load else 0.0 for one in loads}
        most, chosen = -1.0, 0
        for order in orders:
            part = 0
            failing = doubt = 0.0
            for number, node in enumerate(order[:-1]):
                one = own[node]
                failing += (one.weight * one.fails + sick[node] + links.mass(node, part)) / total
                doubt += one.weight * one.fails * (1 - one.fails) / total
                part |= 1 << node
                gain = failing * (1 - failing) - doubt
                if number and gain > most:
                    most, chosen = gain, part
        return chosen


class Links(NamedTuple):
    """Weights of links."""

    unit: float
    """Weight of a pair that all failed jobs contain."""
    whole: Sequence[int]
    apart: Sequence[int]
    outside: Sequence[float]

    def mass(self, node: int, others: int) -> float:
        """Weight of all links between a node and others."""
        whole = (self.whole[node] & others).bit_count()
        partly = (self.apart[node] & others).bit_count() - whole
        return self.unit * (whole + PARTLY * self.outside[node] * partly)
