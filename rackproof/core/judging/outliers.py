"""Members that are far worse than their peers.

The limit is the larger of two distances from the median: ``rel_pct`` percent of it, and the deviation at which the
modified z score exceeds ``z``. Where the z limit is the larger one and more than half the median away, the peers differ
too much to identify an outlier, and all are INVALID. Where more than half of the members are equal, the median absolute
deviation is 0, every difference has an infinite score, and the relative distance alone decides.

A missing number can have any value. A member passes among incomplete peers only if it passes for all values of the
missing numbers: its relative distance from the best possible median is within the limit, and no values of the missing
numbers make the peers differ too much. Peers that agree thus pass even when one of them has no number.

Numbers of starved peers may be too low, and so may their median: a member passes among them only if it also passes
where each of them has any better number, or is from a starved machine itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from rackproof.core.architecture import Outlier
from rackproof.core.evidence import Scope
from rackproof.core.judging.attribution import attributed
from rackproof.core.judging.bars import amount, number_text
from rackproof.core.judging.entry import about
from rackproof.core.judging.folding import folded
from rackproof.core.judging.members import no_device, several, subject_name
from rackproof.core.judging.numbers import (
    MEASURE_AGAIN,
    Number,
    Numbers,
    Question,
    counted,
    incomplete,
    question,
    unusable,
)
from rackproof.core.judging.select import NoNumber, sources_of
from rackproof.core.metrics import METRICS
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict

CONSISTENCY = 0.6745
"""Ratio of median absolute deviation to standard deviation, normal distribution."""

LARGEST_SHARE = 0.5
"""Maximum distance of the limit, as a share of the median; a larger one would let a dead member pass."""

_ROUNDING = 1e-9


def judge_outlier(outlier: Outlier, numbers: Numbers) -> Iterator[Verdict]:
    """One verdict per variant and node, drive or pair; many pairs are folded."""
    for id_, where in outlier.variants():
        answers = _answers(outlier, question(outlier, outlier.scope, where), numbers)
        verdicts = _Peers(outlier, id_, where, answers).verdicts()
        if outlier.scope is Scope.PAIR:
            covering = numbers.covering(outlier.metric, numbers.members.group(outlier.members))
            yield from folded(attributed(verdicts), covering)
        else:
            yield from verdicts


def _answers(outlier: Outlier, quantity: Question, numbers: Numbers) -> dict[str, Number | NoNumber]:
    """Numbers by node, drive or pair; empty for the scope rack, which has no peers."""
    scope, members, names = outlier.scope, numbers.members, numbers.members.group(outlier.members)
    if scope in (Scope.GPU, Scope.NIC):
        return {name: _worst_device(scope, quantity, name, numbers) for name in names}
    if scope is Scope.RACK:
        return {}
    bare = members.bare(scope, names, quantity.use)
    answers: dict[str, Number | NoNumber] = {
        name: NoNumber(Status.UNMEASURED, no_device(scope, [name])) for name in bare
    }
    subjects = numbers.subjects(quantity, names)
    return answers | {subject_name(scope, m): numbers.ask(quantity, m) for m in subjects}


def _worst_device(scope: Scope, quantity: Question, node: str, numbers: Numbers) -> Number | NoNumber:
    """The worst device of a node: a job that uses all of them waits for it."""
    answers = {device: numbers.ask(quantity, (device,)) for device in numbers.members.devices_of(scope, node)}
    if not answers:
        return NoNumber(Status.UNMEASURED, no_device(scope, [node]))
    sources = sources_of(answers.values())
    if fault := incomplete(scope, answers):
        return NoNumber(*fault, **sources)
    measured = {device: answer for device, answer in answers.items() if isinstance(answer, Number)}
    worst = min if METRICS[quantity.metric].higher_is_better else max
    device = worst(measured, key=lambda name: measured[name].value)
    remark = "; ".join(filter(None, (f"{device}, the worst of {len(measured)}", measured[device].remark)))
    return measured[device]._replace(remark=remark, **sources)


class _Peers:
    """All members of one outlier test, with fixed labels."""

    def __init__(
        self, outlier: Outlier, id_: str, where: dict[str, str], answers: Mapping[str, Number | NoNumber]
    ) -> None:
        self.outlier, self.answers = outlier, answers
        self.metric = METRICS[outlier.metric]
        self.values = sorted(answer.value for answer in answers.values() if isinstance(answer, Number))
        self.missing = len(answers) - len(self.values)
        self.what = several(outlier.scope if outlier.scope in (Scope.PAIR, Scope.DRIVE) else Scope.NODE)
        self.of = f"the median of {len(self.values)} {self.what}"
        self.middle = median(self.values) if self.values else 0.0
        self.mad = median(abs(value - self.middle) for value in self.values) if self.values else 0.0
        self.best_middle = self._best_middle(self.values, self.missing)
        """The best median possible for any values of the missing members."""
        self.starved = [answer for answer in answers.values() if isinstance(answer, Number) and answer.starved]
        sound = [a.value for a in answers.values() if isinstance(a, Number) and not a.starved]
        self.unstarved_middle = self._best_middle(sound, self.missing + len(self.starved))
        """The best one for any better values of the starved members as well."""
        self.spread = self.mad * outlier.z / CONSISTENCY
        self.furthest = max(outlier.rel_pct / 100, LARGEST_SHARE)
        """Maximum distance of the limit, as a share of the median."""
        self.scatter_possible = self.missing > 0 and self._may_scatter()
        self.common: dict[str, Any] = {
            **about(outlier, id_),
            "metric": outlier.metric,
            "labels": where,
            "unit": self.metric.unit,
            "bar": f"{self._rule(outlier.rel_pct, '%')} the median",
            "statistic": self._statistic_text(),
        }

    def verdicts(self) -> Iterator[Verdict]:
        outlier = self.outlier
        if not self.answers:
            why = (
                "the rack has no peers" if outlier.scope is Scope.RACK else f"no {self.what} in group {outlier.members}"
            )
            yield self._without("rack", NoNumber(Status.UNMEASURED, why))
            return
        for subject, answer in self.answers.items():
            yield self._judge(subject, answer)

    def _judge(self, subject: str, answer: Number | NoNumber) -> Verdict:
        if isinstance(answer, NoNumber):
            return self._without(subject, answer)
        unit = self.metric.unit
        peers, least, of = len(self.values), self.outlier.min_peers, len(self.answers)
        if peers < least:
            why = f"{peers} of {of} {self.what} have a number, {least} are needed to identify an outlier"
            return self._without(subject, unusable(answer, Status.UNMEASURED, why))
        if not self.middle:
            why = f"{self.of} is 0, so relative distances are undefined"
            return self._without(subject, unusable(answer, Status.INVALID, why))
        if self.spread > self.middle * self.furthest * (1 + _ROUNDING):
            share = number_text(100 * self.spread / self.middle)
            why = (
                f"peers scatter too much: {self._rule(self.outlier.z, 'z')} {self.of}, {amount(self.middle, unit)}, is"
                f" {share} % away, more than {number_text(100 * self.furthest)} %"
            )
            return self._without(subject, unusable(answer, Status.INVALID, why))
        return self._compare(subject, answer)

    def _compare(self, subject: str, number: Number) -> Verdict:
        higher, unit, outlier, middle = self.metric.higher_is_better, self.metric.unit, self.outlier, self.middle
        floor = middle * outlier.rel_pct / 100
        limit = max(floor, self.spread)
        edge = middle - limit if higher else middle + limit
        worse = middle - number.value if higher else number.value - middle
        status, remarks = Status.PASS, [counted(outlier.statistic, len(number.samples))]
        if worse > limit * (1 + _ROUNDING):
            if number.starved:
                return self._without(subject, unusable(number, Status.INVALID, number.starved))
            status = Status.FAIL
        elif self.missing and not self._passes_anyway(number.value, self.best_middle):
            status = Status.UNMEASURED
            remarks.append(
                f"{self.missing} of {len(self.answers)} {self.what} have no number and could make this one an outlier"
            )
        elif self.scatter_possible:
            status = Status.UNMEASURED
            remarks.append(
                f"{self.missing} of {len(self.answers)} {self.what} have no number and could make the peers scatter"
            )
        elif self.starved and not number.starved and not self._passes_anyway(number.value, self.unstarved_middle):
            sources = sources_of((number, *self.starved))  # each of their steps may have to be repeated
            return self._without(subject, unusable(number, Status.INVALID, self.starved[0].starved)._replace(**sources))
        if not self.mad:
            remarks.append("half of the members are equal, so the relative distance alone decides")
        remarks += filter(None, (number.drive, number.remark))
        bar = f"{'≥' if higher else '≤'} {amount(edge, unit)}"
        rule = self._rule(outlier.rel_pct, "%") if limit == floor else self._rule(outlier.z, "z")
        actual = f"{amount(number.value, unit, edge)} ({self._away(worse)})"
        fields = self.common | _own(number) | {"bar": bar}
        return Verdict(
            **fields,
            subject=subject,
            status=status,
            message=f"expected {bar} ({rule} {self.of}, {amount(middle, unit)}), actual {actual}; {'; '.join(remarks)}",
            value=number.value,
            bar_value=edge,
            distance_pct=(100 * (limit - worse) / abs(edge)) if edge else None,
            ceiling=middle,
            ceiling_unit=unit,
            ceiling_of=self.of,
        )

    def _best_middle(self, values: Sequence[float], unknown: int) -> float:
        beyond = math.inf if self.metric.higher_is_better else 0.0
        return median([*values, *[beyond] * unknown]) if values or unknown else 0.0

    def _may_scatter(self) -> bool:
        """Whether values of the missing members could make the peers scatter too much; True in doubt.

        The median lies between those with all missing values 0 and all infinite, so a member's deviation is at most the
        larger of its distances from those two.
        """
        gone = [math.inf] * self.missing
        low, high = median([*self.values, *[0.0] * self.missing]), median([*self.values, *gone])
        if not low or math.isinf(high):
            return True
        mad = median([*(max(abs(value - low), abs(value - high)) for value in self.values), *gone])
        return mad * self.outlier.z / CONSISTENCY > low * self.furthest

    def _passes_anyway(self, value: float, best_middle: float) -> bool:
        """Whether this one is no outlier beside the best median possible."""
        if best_middle == math.inf:
            return False
        worse = best_middle - value if self.metric.higher_is_better else value - best_middle
        return worse <= best_middle * self.outlier.rel_pct / 100 * (1 + _ROUNDING)

    def _rule(self, limit: float, unit: str) -> str:
        """Allowed distance: ``10 % below``, ``z 3.5 above``."""
        side = "below" if self.metric.higher_is_better else "above"
        return f"{number_text(limit)} % {side}" if unit == "%" else f"z {number_text(limit)} {side}"

    def _away(self, worse: float) -> str:
        """``40 % below, z 24``."""
        if not worse:
            return "the median itself"
        side = "below" if (worse > 0) == self.metric.higher_is_better else "above"
        score = f", z {number_text(CONSISTENCY * abs(worse) / self.mad)}" if self.mad else ""
        return f"{number_text(100 * abs(worse) / self.middle)} % {side}{score}"

    def _without(self, subject: str, number: NoNumber) -> Verdict:
        hint = {"hint": MEASURE_AGAIN} if number.status is Status.INVALID else {}
        return Verdict(
            **{**self.common, **hint},
            **_own(number),
            subject=subject,
            status=number.status,
            message=number.why,
            value=number.value,
        )

    def _statistic_text(self) -> str:
        own = self.outlier.statistic.value
        if self.outlier.scope in (Scope.GPU, Scope.NIC):
            return f"worst of the {several(self.outlier.scope)} of a node, {own} of each"
        return own


def _own(number: Number | NoNumber) -> dict[str, Any]:
    return {
        "samples": number.samples,
        "cv_pct": number.cv_pct,
        "raw": number.raw,
        "records": number.records,
        "simulated": number.simulated,
    }
