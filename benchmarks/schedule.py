"""Simulate the schedules of links: group testing against all pairs, on racks with random faults.

    python benchmarks/schedule.py [--patterns 10000] [--nodes 232] [--rails 8] [--seed 1] [--kinds KIND …]

Every pattern has 0 to 4 faults: a bad node, a bad link between two nodes, a bad rail of a node, a bad leaf switch, a
node that fails only half to most of its jobs, a node that is sick only while seven tenths of all nodes are busy. With
``--kinds`` also a rail or a link that fails so. The search names such a rail, and most such links not: it takes a pair
that has passed together for sound. It then ends after some 240 jobs, and does not clear both ends.
The table shows jobs, the share of patterns with at most 35 of them, rounds (jobs of a round run at once), how many
faults showed, how many of these have no name, and how many names are wrong. A fault showed if it alone made a job fail;
one that a larger fault hides does not count. "least" is what no search can undercut on average for an intermittent
node: its jobs are a Z-channel, which fails with the node's share and always passes without the node.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import log2
from random import Random
from statistics import median

from rackproof.core.fault_search import locate
from rackproof.core.group_testing import Fault, FaultKind, Job, Places, Result
from rackproof.core.pairing import rounds

UNIT = 32
"""Nodes behind one set of leaf switches: a scalable unit of NVIDIA's DGX SuperPOD."""
KINDS = ("node", "link", "rail", "leaf", "intermittent", "load")
ON_REQUEST = ("intermittent rail", "intermittent link")
"""Kinds of ``--kinds`` that the patterns leave out."""
BUSY = 0.7
BAR = 35
"""Most jobs with one fault."""
SHARES = ((0.5, 0.65), (0.65, 0.8), (0.8, 0.95))
"""Numbers of intermittent nodes, one row of the table each."""


@dataclass
class Sick:
    """One fault of the simulation. ``shown``: it made a job fail that no other fault makes fail."""

    kind: str
    nodes: frozenset[str]
    rail: int | None = None
    share: float = 1.0
    """Share of its jobs that an intermittent fault lets fail."""
    shown: bool = False

    @property
    def title(self) -> str:
        return self.kind if self.share == 1 or self.kind == "intermittent" else f"intermittent {self.kind}"

    def strikes(self, job: Job, busy: float, random: Random) -> bool:
        if self.rail is not None and self.rail not in job.rails:
            return False
        if not (self.nodes <= job.nodes if self.kind == "link" else self.nodes & job.nodes):
            return False
        return busy >= BUSY if self.kind == "load" else random.random() < self.share

    def within(self, other: Sick) -> bool:
        """Whether ``other`` hides it: its jobs fail anyway."""
        if other is self or other.kind == "link":
            return False
        same_rail = other.rail is None or other.rail == self.rail
        part = bool(self.nodes & other.nodes) if self.kind == "link" else self.nodes <= other.nodes
        return part and same_rail


@dataclass
class SimulatedRack:
    places: Places
    faults: list[Sick]
    random: Random
    jobs: int = 0
    widths: list[int] = field(default_factory=list)

    def run(self, jobs: Sequence[Job]) -> list[bool]:
        seen: set[str] = set()
        for job in jobs:
            if len(job.nodes) < 2 or not job.rails or seen & job.nodes:
                raise ValueError("jobs of one round share a node, or a job has one node or no rail")
            seen |= job.nodes
        busy = len(seen) / len(self.places.names)
        answers = []
        for job in jobs:
            striking = [fault for fault in self.faults if fault.strikes(job, busy, self.random)]
            if len(striking) == 1:
                striking[0].shown = True
            answers.append(not striking)
        return answers


def places_of(nodes: int, rails: int) -> Places:
    names = tuple(f"gpu-{number:03d}" for number in range(1, nodes + 1))
    leaves = {name: tuple(f"leaf-{k // UNIT}-{rail}" for rail in range(rails)) for k, name in enumerate(names)}
    return Places(names, rails, leaves)


def fault_of(kind: str, places: Places, random: Random) -> Sick:
    rail = random.randrange(places.rails)
    node = random.choice(places.names)
    match kind:
        case "link":
            return Sick(kind, frozenset(random.sample(places.names, 2)))
        case "rail":
            return Sick(kind, frozenset({node}), rail)
        case "leaf":
            unit = next(unit for unit in places.units() if node in unit)
            return Sick(kind, frozenset(unit), rail)
        case "intermittent":
            return Sick(kind, frozenset({node}), None, random.uniform(0.5, 0.95))
        case "intermittent rail" | "intermittent link":
            solid = fault_of(kind.removeprefix("intermittent "), places, random)
            return replace(solid, share=random.uniform(0.5, 0.95))
    return Sick(kind, frozenset({node}))


def names(fault: Sick, named: Fault) -> bool:
    """Whether a named fault is this one."""
    if fault.kind == "leaf":
        return named.kind is FaultKind.LEAF and fault.nodes == set(named.nodes) and fault.rail == named.rail
    if fault.kind == "link":
        return named.kind is FaultKind.LINK and fault.nodes == set(named.nodes)
    if fault.kind == "rail":
        return set(named.nodes) == fault.nodes and named.rail in (fault.rail, None)
    return set(named.nodes) == fault.nodes


def _blames(fault: Sick, named: Fault) -> bool:
    """Whether a named fault is this one, or a part of it: one rail of a sick node, one node of a leaf switch's rail."""
    if names(fault, named):
        return True
    if named.kind is FaultKind.LINK or not set(named.nodes) <= fault.nodes or fault.kind == "link":
        return False
    return fault.rail is None or fault.rail == named.rail


@dataclass
class Outcome:
    faults: list[Sick]
    result: Result

    @property
    def jobs(self) -> int:
        return sum(self.result.rounds)

    def unnamed(self) -> list[Sick]:
        """Faults that showed, are hidden by no other one, and have no name."""
        return [
            fault
            for fault in self.faults
            if fault.shown
            and not any(fault.within(other) for other in self.faults)
            and not any(names(fault, named) for named in self.result.faults)
            and not self._stood_for(fault)
        ]

    def _stood_for(self, fault: Sick) -> bool:
        """Whether a link has the name of an end with another fault: a node with several faults is one name."""
        ends = {named.nodes[0] for named in self.result.faults if named.kind is FaultKind.NODE} & fault.nodes
        others = (other for other in self.faults if other is not fault)
        return fault.kind == "link" and any(ends & other.nodes for other in others)

    def blamed(self) -> list[Fault]:
        """Names of nodes, links and rails without a fault. A node with two faulty links may stand for them."""
        ends = Counter(node for fault in self.faults if fault.kind == "link" for node in fault.nodes)
        return [
            named
            for named in self.result.faults
            if not any(_blames(fault, named) for fault in self.faults) and max(ends[node] for node in named.nodes) < 2
        ]

    def falsely_cleared(self) -> list[Sick]:
        """Faults that are always there, and none of whose nodes is left without a clearance."""
        solid = [fault for fault in self.faults if fault.title in ("node", "link", "rail", "leaf")]
        return [fault for fault in solid if fault.nodes <= self.result.cleared]


def simulate(patterns: int, nodes: int, rails: int, seed: int, kinds: Sequence[str] = KINDS) -> Iterator[Outcome]:
    places = places_of(nodes, rails)
    for number in range(patterns):
        random = Random(f"{seed} {number}")  # noqa: S311 - patterns, no secrets
        faults = [fault_of(random.choice(kinds), places, random) for _ in range(number % 5)]
        rack = SimulatedRack(places, faults, random)
        result = locate(places, rack.run, seed=number)
        yield Outcome(faults, replace(result, history=()))  # the table needs no jobs, which take gigabytes


def least_jobs(share: float, nodes: int) -> float:
    """Fewest jobs, on average, that tell which node fails this share of its jobs: bits of a name over bits of a job."""
    bits_of_a_job = log2(1 + share * (1 - share) ** ((1 - share) / share))
    return log2(nodes) / bits_of_a_job


def table(outcomes: Sequence[Outcome], nodes: int = 232) -> Iterator[str]:
    yield (
        f"{'pattern':<30} {'number':>7} {'jobs median':>12} {'p99':>5} {'max':>5} {f'<= {BAR}':>8}"
        f" {'rounds median':>14} {'max':>5}"
        f" {'shown':>7} {'unnamed':>8} {'wrong':>6}"
    )

    def row(title: str, of: list[Outcome]) -> str:
        jobs, waves = sorted(o.jobs for o in of), [len(o.result.rounds) for o in of]
        shown = sum(fault.shown for o in of for fault in o.faults)
        unnamed, wrong = sum(len(o.unnamed()) for o in of), sum(len(o.blamed()) for o in of)
        within = 100 * sum(count <= BAR for count in jobs) / len(jobs)
        return (
            f"{title:<30} {len(of):>7} {median(jobs):>12g} {jobs[-(-99 * len(jobs) // 100) - 1]:>5} {jobs[-1]:>5}"
            f" {within:>6.1f} % {median(waves):>14g} {max(waves):>5} {shown:>7} {unnamed:>8} {wrong:>6}"
        )

    tests: list[tuple[str, Callable[[Outcome], bool]]] = [("healthy", lambda o: not o.faults)]
    tests += [
        (f"one fault: {kind}", lambda o, kind=kind: [f.title for f in o.faults] == [kind])  # type: ignore[misc]
        for kind in KINDS + ON_REQUEST
    ]
    tests += [
        (
            f"  share {low:g}-{high:g}, least {least_jobs(low, nodes):.0f}-{least_jobs(high, nodes):.0f}",
            lambda o, low=low, high=high: (  # type: ignore[misc]
                [f.kind for f in o.faults] == ["intermittent"] and low <= o.faults[0].share < high
            ),
        )
        for low, high in SHARES
    ]
    tests += [(f"{n} faults", lambda o, n=n: len(o.faults) == n) for n in (2, 3, 4)]  # type: ignore[misc]
    for title, test in tests:
        if of := [outcome for outcome in outcomes if test(outcome)]:
            yield row(title, of)
    yield row("all", list(outcomes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patterns", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=232)
    parser.add_argument("--rails", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS + ON_REQUEST)
    options = parser.parse_args()
    began = time.perf_counter()
    outcomes = list(simulate(options.patterns, options.nodes, options.rails, options.seed, options.kinds))
    everyone = [str(number) for number in range(options.nodes)]
    schedule = rounds(everyone)
    elapsed = time.perf_counter() - began
    print(f"{options.nodes} nodes, {options.rails} rails, {options.patterns} patterns, {elapsed:.0f} s")
    print(f"all pairs: {sum(map(len, schedule))} jobs in {len(schedule)} rounds, on each rail")
    for line in table(outcomes, options.nodes):
        print(line)
    if any(outcome.unnamed() or outcome.blamed() for outcome in outcomes):
        sys.exit(1)


if __name__ == "__main__":
    main()
