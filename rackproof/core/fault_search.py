"""Adaptive group testing: name the faulty nodes, links, rails and leaf switches of a rack with few collectives. Pure.

Three rounds screen the rack: all nodes, rows (nodes behind the same leaf switches) and columns (nodes of every row).
What a passing job contains is cleared. Suspects are halved, each half with known-good partners, and most nodes stay
busy, so that faults which need the load of all nodes show. A fault is named only with evidence from disjoint partners.
The search ends when every failed job contains a named fault, and all other nodes pass one job together.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Final

from rackproof.core.fault_evidence import confirmed, doubt, likely, never_together
from rackproof.core.group_testing import ROWS, Fault, FaultKind, Job, Places, Result, Run, chunks

MOST_JOBS: Final = 400
"""Limit of a search; what is not located by then stays unlocated."""
SAMPLED: Final = 4
"""Nodes behind a leaf switch that must all fail on its rail, each with other partners."""
ATTEMPTS: Final = 14
"""Repetitions of a job that failed once and then passed."""
DOUBT: Final = 1e-4
"""Largest likelihood that an intermittent node gave all answers of what is named a faulty link."""
WITNESSES: Final = 3
"""Disjoint pairs of partners with which a node fails before it is named."""
BUSY: Final = 0.7
"""Share of all nodes that are busy in a round; otherwise the idle ones run a job of their own."""
TRIES: Final = 4
"""Fruitless searches for intermittent faults."""
REPEATS: Final = 3
"""Repetitions of the last job, which all sound nodes pass together, if several faults were named: an intermittent one
may have passed."""
LOOSE_ROUNDS: Final = 40
"""Rounds in search of one fault that does not always show."""
CERTAIN: Final = 0.9
"""Likelihood with which a node is tried by itself."""
DECODED: Final = 6
"""Pairs that are tried where a search of one node has ended."""


def locate(places: Places, run: Run, seed: int = 0) -> Result:
    """Search the faults of a rack. ``seed`` decides how nodes are shuffled; equal answers give an equal search.

    Raises ValueError for fewer than two nodes.
    """
    if len(places.names) < 2:
        raise ValueError("group testing needs two nodes")
    return _Search(places, run, seed).result()


class _TooManyJobs(Exception):
    """The search ends; what has no name by then stays without one."""


class _Search:
    def __init__(self, places: Places, run: Run, seed: int) -> None:
        self.places, self.run, self.seed, self.shuffles = places, run, seed, 0
        self.rails = frozenset(range(max(1, places.rails)))
        self.faults: list[Fault] = []
        self.history: list[tuple[Job, bool]] = []
        self.rounds: list[int] = []
        self.unlocated: list[frozenset[str]] = []
        self.rows = places.rows()
        self.tries = self.repeats = 0

    def result(self) -> Result:
        with suppress(_TooManyJobs):
            self._search()
        self._suspect_units()
        self._drop_parts()
        ends = Counter(name for fault in self.faults if fault.kind is FaultKind.LINK for name in fault.nodes)
        self.faults += [Fault(FaultKind.NODE, (name,), None, True) for name, links in ends.items() if links > 1]
        self._drop_parts()
        unconfirmed = [fault for fault in self.faults if not confirmed(fault, self.faults, self.history)]
        self.faults = [fault for fault in self.faults if fault not in unconfirmed]
        self.unlocated += [frozenset(fault.nodes) for fault in unconfirmed]
        unlocated = [frozenset(job.nodes) for job in self._unexplained(True)] + self.unlocated
        doubtful = frozenset(name for nodes in unlocated for name in nodes)
        named = {name for fault in self.faults for name in fault.nodes}
        cleared = self._together(frozenset(self.places.names) - named - doubtful)
        return Result(
            tuple(self.faults), cleared, tuple(dict.fromkeys(unlocated)), tuple(self.rounds), tuple(self.history)
        )

    def _drop_parts(self) -> None:
        """Leave out rails and links of named nodes: a sick node explains them, and does not accuse their other end."""
        sick = {fault.nodes[0] for fault in self.faults if fault.kind is FaultKind.NODE}
        self.faults = [f for f in self.faults if f.kind in (FaultKind.NODE, FaultKind.LEAF) or sick.isdisjoint(f.nodes)]

    def _together(self, names: frozenset[str]) -> frozenset[str]:
        """Those of the nodes that pass one job together, so that each pair of them does."""
        if len(names) < 2:
            return frozenset()
        shown = any(good and job.nodes >= names and job.rails >= self.rails for job, good in self.history)
        if not shown and len(self.history) < MOST_JOBS:
            self._passes(names, busy=False)
        together = (job.nodes & names for job, good in self.history if good and job.rails >= self.rails)
        most = max(together, key=len, default=frozenset[str]())
        return most if len(most) > 1 else frozenset()

    def _search(self) -> None:
        self._screen()
        while True:
            if suspects := self._suspects():
                self._narrow(suspects)
            elif failed := self._unexplained():
                self._search_links(failed[-1])
            elif missing := self._unverified():
                self._round([missing[0]])
            elif self.repeats < REPEATS and len(self.faults) > 1 and any(fault.intermittent for fault in self.faults):
                self.repeats += 1
                self._round(self._last_jobs()[:1])
            else:
                return

    def _suspect_units(self) -> None:
        """Many sick nodes behind the same leaf switches are no names, but one set of suspects."""
        for unit in self.places.units() if self.places.leaves or self.places.racks else ():
            sick = [fault for fault in self.faults if fault.kind is FaultKind.NODE and fault.nodes[0] in unit]
            if len(sick) >= SAMPLED:
                self.faults = [fault for fault in self.faults if fault not in sick]
                self.unlocated.append(frozenset(unit))

    def _screen(self) -> None:
        (together,) = self._round([Job(frozenset(self.places.names), self.rails)])
        if len(self.rows) > 1:
            rows = self._round([Job(frozenset(row), self.rails) for row in self.rows])
            if not together and all(rows):
                return  # a link between rows, or a node that fails now and then
            self._round([Job(frozenset(column), self.rails) for column in self.places.columns(self.rows)])

    def _round(self, jobs: Sequence[Job], busy: bool = True) -> list[bool]:
        """Run jobs at once, beside one of all idle nodes if ``busy``. A job of one node passes: it does nothing."""
        if len(self.history) >= MOST_JOBS:
            raise _TooManyJobs
        real = [job for job in jobs if len(job.nodes) > 1]
        idle = frozenset(self.places.names).difference(*(job.nodes for job in real))
        filler = [Job(idle, self.rails)] if busy and real and len(idle) > (1 - BUSY) * len(self.places.names) else []
        answers = list(self.run([*real, *filler])) if real else []
        self.history += zip([*real, *filler], answers, strict=True)
        if real:
            self.rounds.append(len(answers))
        left = iter(answers)
        return [next(left) if len(job.nodes) > 1 else True for job in jobs]

    def _shuffled(self, names: Sequence[str]) -> list[str]:
        """The names in an order that depends on the seed and on the number of shuffles so far."""
        self.shuffles += 1
        start = f"{self.seed} {self.shuffles} ".encode()
        return sorted(names, key=lambda name: hashlib.sha256(start + name.encode()).digest())

    def _passes(self, nodes: Iterable[str], rails: Collection[int] | None = None, busy: bool = True) -> bool:
        return self._round([Job(frozenset(nodes), self.rails if rails is None else frozenset(rails))], busy)[0]

    def _unexplained(self, every: bool = False) -> list[Job]:
        """Failed jobs without a named fault; those of unlocated sets only if ``every``."""
        return [
            job
            for job, passed in self.history
            if not passed
            and not any(fault.touches(job) for fault in self.faults)
            and (every or not any(nodes & job.nodes for nodes in self.unlocated))
        ]

    def _suspects(self) -> list[str]:
        """Nodes of unexplained jobs that no passing job clears, on a rail that is not yet named."""
        passed: dict[str, set[int]] = {}
        for job, good in self.history:
            if good:
                for name in job.nodes:
                    passed.setdefault(name, set()).update(job.rails)
        open_: set[str] = set()
        for job in self._unexplained():
            open_.update(name for name in job.nodes if job.rails - passed.get(name, set()))
        return [name for name in self.places.names if name in open_]

    def _sound(self, name: str) -> frozenset[int]:
        """Rails of a node without a named fault; links are left aside."""
        bad: set[int] = set()
        for fault in self.faults:
            if name in fault.nodes and fault.kind is not FaultKind.LINK:
                bad |= self.rails if fault.rail is None else {fault.rail}
        return self.rails - bad

    def _unverified(self) -> list[Job]:
        """Of the last jobs those that have not passed yet."""
        passed = [job for job, good in self.history if good]
        return [
            job
            for job in self._last_jobs()
            if not any(job.nodes <= p.nodes and job.rails <= p.rails for p in passed)
            if not any(nodes & job.nodes for nodes in self.unlocated)
        ]

    def _last_jobs(self) -> list[Job]:
        """Jobs that must pass at the end: all sound nodes together, and the sound rails of the others."""
        sound = {name: self._sound(name) for name in self.places.names}
        whole = frozenset(name for name in sound if sound[name] == self.rails)
        links = [fault.nodes for fault in self.faults if fault.kind is FaultKind.LINK]
        needed = [Job(whole - {ends[end] for ends in links}, self.rails) for end in ((0, 1) if links else (0,))]
        base = whole - {ends[0] for ends in links}
        for rails in dict.fromkeys(sound[name] for name in self.places.names if sound[name] != self.rails):
            if rails:
                needed.append(Job(base | {name for name in sound if sound[name] == rails}, rails))
        return [job for job in needed if len(job.nodes) > 1]

    # solid faults: suspects that no job clears

    def _narrow(self, suspects: Sequence[str]) -> None:
        base = self._base(suspects)
        if len(base) < 2:
            self._first_good(suspects)
            return
        of_leaves: set[str] = set()
        for unit in self.places.units() if self.places.leaves or self.places.racks else ():
            group = [name for name in unit if name in suspects]
            if len(group) == len([name for name in unit if self._sound(name)]) >= SAMPLED:
                of_leaves.update(group if self._leaf(unit, group, base) else ())
        left = [name for name in suspects if name not in of_leaves]
        for rails in dict.fromkeys(self._sound(name) for name in left):
            groups = [[name for name in row if name in left and self._sound(name) == rails] for row in self.rows]
            for name in self._isolate(groups, base, rails):
                self._examine(name, base, rails)

    def _first_good(self, suspects: Sequence[str]) -> None:
        """Where all rows and columns fail: smaller and smaller parts, until one passes."""
        for parts in (2 * ROWS, 4 * ROWS, 8 * ROWS, len(suspects) // 2):
            if any(
                self._round([Job(frozenset(part), self.rails) for part in chunks(suspects, parts) if len(part) > 1])
            ):
                return
        self.unlocated.append(frozenset(suspects))

    def _base(self, suspects: Collection[str]) -> list[str]:
        """Known-good partners: all but suspects and named ones if these pass one job; otherwise a part that does."""
        ends = {fault.nodes[0] for fault in self.faults if fault.kind is FaultKind.LINK}
        names = [
            name
            for name in self.places.names
            if name not in suspects and name not in ends and self._sound(name) == self.rails
        ]
        wanted = frozenset(names)
        passed = [job.nodes & wanted for job, good in self.history if good and job.rails == self.rails]
        if wanted not in passed:
            if len(names) > 1 and self._passes(names):
                return names
            passed = [job.nodes & wanted for job, good in self.history if good and job.rails == self.rails]
            wanted = max(passed, key=len, default=frozenset())
        return [name for name in names if name in wanted]

    def _leaf(self, unit: Sequence[str], group: Sequence[str], base: Sequence[str]) -> bool:
        """Whether all nodes of a unit fail because of its leaf switches, which are then named."""
        sample = self._shuffled(group)[:SAMPLED]
        if not self._all_fail(sample, base, self.rails):
            return False
        bad = self.rails
        for first in range(0, SAMPLED, 2):
            failing = (
                self._bad_rails(sample[first : first + 2], base, self.rails) if len(self.rails) > 1 else self.rails
            )
            bad = failing if len(failing) < len(bad) else bad
            if len(bad) == 1:
                break
        named = [rail for rail in sorted(bad) if self._all_fail(sample, base, frozenset({rail}))]
        if len(bad) == len(self.rails) > 1 or not named:
            return False
        self.faults += [Fault(FaultKind.LEAF, tuple(unit), rail) for rail in named]
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
            answers += self._round(jobs)
        return answers

    def _isolate(self, groups: Sequence[Sequence[str]], base: Sequence[str], rails: frozenset[int]) -> list[str]:
        """Halve failing groups until single nodes fail."""
        single: list[str] = []
        groups = [group for group in groups if group]
        while groups:
            parts = [list(part) for group in groups for part in (chunks(group, 2) if len(group) > 1 else [group])]
            failing = [part for part, ok in zip(parts, self._beside(parts, base, rails), strict=True) if not ok]
            single += [part[0] for part in failing if len(part) == 1]
            groups = [part for part in failing if len(part) > 1]
        return single

    def _examine(self, name: str, base: Sequence[str], rails: frozenset[int]) -> None:
        """Name the fault of a node that failed with some partners: with others, too, or a link, or neither."""
        last = next(job for job, ok in reversed(self.history) if not ok and name in job.nodes)
        first = [other for other in base if other in last.nodes]
        second = [other for other in base if other not in last.nodes] or first
        if not self._passes([name, *second], rails):
            # few partners: none of them is sick; of the first ones: a link has its other end in one half only
            few = self._shuffled(first if len(first) > 1 and second is not first else base)
            if not any(self._passes([name, *pair], rails) for pair in (few[:2], few[2:4] or few[:2])):
                self._refine(name, base, rails)
                return
            if self._fails_with_all(name, base, rails):
                return
        bad, good = [1, 0], [0, 1]
        for attempt in range(ATTEMPTS):
            side = attempt % 2
            ok = self._passes([name, *(second if side else first)], rails)
            (good if ok else bad)[side] += 1
            if bad[0] and bad[1]:
                if self._fails_with_all(name, base, rails):
                    return
                break
            if bad[0] >= 3 and not good[0]:
                mark = len(self.history)
                other = self._first_failing([name], first, rails)
                if self._link(name, other, range(mark, len(self.history)), range(0), rails):
                    return
                break
        self._loose(frozenset((name, *first)), rails)

    def _refine(self, name: str, base: Sequence[str], rails: frozenset[int]) -> None:
        """Name a node, or its faulty rails."""
        passed = any(ok and name in job.nodes and job.rails >= rails for job, ok in self.history)
        bad = rails if passed or len(rails) == 1 else self._bad_rails([name], base, rails)
        if len(bad) > 1 and (len(bad) <= len(rails) / 2 or len(rails) < len(self.rails)):
            again = [rail for rail in sorted(rails) if not self._passes([name, *self._shuffled(base)[:2]], [rail])]
            passed = set(again) != bad
        if passed or (len(bad) > len(rails) / 2 and len(self.rails) == len(rails)):
            self.faults.append(Fault(FaultKind.NODE, (name,), None, passed or len(bad) < len(rails)))
        else:
            self.faults += [Fault(FaultKind.RAIL, (name,), rail) for rail in sorted(bad)]

    def _bad_rails(self, names: Sequence[str], base: Sequence[str], among: frozenset[int]) -> frozenset[int]:
        """Rails on which the nodes fail: the first, the last, one of the others by halving; all of them if need be."""
        several = [*names, *base]
        rails = sorted(among)
        ends = {rail: self._passes(several, [rail]) for rail in dict.fromkeys((rails[0], rails[-1]))}
        bad = {rail for rail, ok in ends.items() if not ok}
        left = [rail for rail in rails if rail not in ends]
        if len(bad) < len(ends) and left and not self._passes(several, left):
            halves = left
            while len(halves) > 1:
                half = halves[: len(halves) // 2]
                halves = halves[len(half) :] if self._passes(several, half) else half
            bad.update(halves)
            left = [rail for rail in left if rail not in halves]
            if not left or self._passes(several, left):
                left = []
        elif len(bad) < len(ends):
            left = []
        return frozenset((*bad, *(rail for rail in left if not self._passes(several, [rail]))))

    # faults of which every node passes in some job

    def _search_links(self, failed: Job) -> None:
        """Search the two ends of a faulty link in a failed job whose nodes all pass elsewhere."""
        order = [name for row in self.rows for name in row if name in failed.nodes]
        begin, rails = len(self.history), failed.rails
        end = self._first_failing([], order, rails)
        together = [job.nodes for job, ok in self.history if ok and end in job.nodes and job.rails >= rails]
        before = [name for name in order[: order.index(end)] if not any(name in nodes for nodes in together)]
        middle = len(self.history)
        if before:
            other = self._first_failing([end], before, rails)
            if self._link(end, other, range(middle, len(self.history)), range(begin, middle), rails):
                return
        self._loose(failed.nodes, rails)

    def _first_failing(self, fixed: Sequence[str], order: Sequence[str], rails: frozenset[int]) -> str:
        """The node with which a growing job begins to fail; all together fail."""
        low, high = (1 if fixed else 2), len(order)
        while low < high:
            middle = (low + high) // 2
            if self._passes([*fixed, *order[:middle]], rails, busy=False):
                low = middle + 1
            else:
                high = middle
        return order[min(low, len(order)) - 1]

    def _link(self, a: str, b: str, chose_b: range, chose_a: range, rails: frozenset[int]) -> bool:
        """Name a link once the evidence excludes an intermittent node.

        Jobs that chose one end say nothing about the other: any of their answers leads to some node.
        """
        named = Fault(FaultKind.LINK, (a, b))
        others = len(self.faults)
        self.faults.append(named)
        try:
            if self._excludes_nodes(named, chose_b, chose_a, rails, DOUBT / (100 if others else 1)):
                return True
        except _TooManyJobs:
            self.faults.remove(named)
            raise
        self.faults.remove(named)
        return False

    def _excludes_nodes(self, named: Fault, chose_b: range, chose_a: range, rails: frozenset[int], most: float) -> bool:
        """Repeat until neither end alone gave the answers. ``most``: largest likelihood that one did."""
        a, b = named.nodes
        most_jobs = len(self.history) + 2 * ATTEMPTS
        pending = self._unverified()
        partners = [name for name in self.places.names if self._sound(name) >= rails and name not in (a, b)]
        failed_apart = 0
        while failed_apart < 2 and len(self.history) < most_jobs:
            doubts = [
                doubt(named, end, without, self.faults, self.history) for end, without in ((a, chose_b), (b, chose_a))
            ]
            if None in doubts:
                break
            alone = any(not ok and job.nodes == {a, b} for job, ok in self.history)
            if alone and all(one is not None and one <= most for one in doubts):
                return True
            if not alone:
                self._passes([a, b], rails, busy=False)
            elif pending:
                self._round([pending.pop(0)])
            elif partners and self._apart_is_rarer(named, end := b if (doubts[0] or 0) < (doubts[1] or 0) else a):
                failed_apart += not self._passes([end, self._shuffled(partners)[0]], rails, busy=False)
            else:
                self._passes([a, b], rails, busy=False)
        return False

    def _apart_is_rarer(self, link: Fault, end: str) -> bool:
        """Whether passing jobs of one end alone are rarer than failing ones of both."""
        together = sum(not ok and link.touches(job) for job, ok in self.history)
        return sum(ok and end in job.nodes for job, ok in self.history) < together

    def _loose(self, nodes: frozenset[str], rails: frozenset[int]) -> None:
        """Search a node that fails now and then: half of what is likely by all answers so far, again and again.

        What is left then may be several faults at once: pairs that no job has shown together.
        """
        others = [name for name in self.places.names if self._sound(name) >= rails]
        start = frozenset(others) & nodes
        refuted = set[str]()
        for attempt in range(LOOSE_ROUNDS):
            if len(self.history) >= MOST_JOBS:
                break
            busy = attempt >= LOOSE_ROUNDS // 2  # some faults need the load of all nodes
            candidates = likely(self.history, self.faults, start - refuted, rails)
            if not candidates:
                break
            first, most = next(iter(candidates.items()))
            if most >= CERTAIN:
                if self._fails_with_all(first, others, rails, busy=busy):
                    return
                if not self._unexplained(True):  # what it named meanwhile explains them
                    return
                refuted.add(first)
                continue
            half, mass = set[str](), 0.0
            for name in self._shuffled(list(candidates)):
                if mass + candidates[name] / 2 <= 0.5 or not half:
                    half.add(name)
                    mass += candidates[name]
            rest = self._shuffled([name for name in others if name not in candidates and name not in half])
            self._passes([*half, *rest[: max(2, len(rest) // 2)]], rails, busy)
        if self._decode(start, rails):
            return
        self.tries += 1
        if self.tries > TRIES:
            self.unlocated.append(start)

    def _decode(self, nodes: frozenset[str], rails: frozenset[int]) -> bool:
        """Name a link of the nodes, from the pairs that no passing job contains and many failed ones do."""
        for pair in never_together(self.history, self._unexplained(True), nodes, rails, DECODED):
            if len(self.history) >= MOST_JOBS:
                break
            if not self._passes(pair, rails, busy=False) and self._link(*pair, range(0), range(0), rails):
                return True
        return False

    def _fails_with_all(self, name: str, others: Sequence[str], rails: frozenset[int], busy: bool = True) -> bool:
        """Whether a node fails with each of several disjoint pairs of partners; it is then named.

        Large sets would hold faults of their own that are not named yet. Where there are other faults, there may be
        more of them: more pairs must agree.
        """
        partners = self._shuffled([other for other in others if other != name])
        count = WITNESSES + min(WITNESSES, len(self.faults))
        sets = [partners[start : start + 2] for start in range(0, 2 * count, 2) if partners[start:]]
        for attempt in range(ATTEMPTS):
            if not sets:
                break
            partners = sets[attempt % len(sets)]
            if not self._passes([name, *partners], rails, busy):
                sets.remove(partners)
            elif attempt == 5 and len(sets) == count:
                break
        if sets:
            return False
        self.faults.append(Fault(FaultKind.NODE, (name,), None, True))
        return True
