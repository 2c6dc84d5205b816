"""Verdicts on criteria: one for every member in scope, measured or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rackproof.core.architecture import Alternative, Architecture, Criterion, Reduce
from rackproof.core.architecture.entries import SPREADS
from rackproof.core.evidence import Scope
from rackproof.core.judging.alternatives import either, variants_of
from rackproof.core.judging.attribution import attributed
from rackproof.core.judging.bars import amount, bar_text, compare, level_reached, settled
from rackproof.core.judging.ceilings import Capacity, Whole, physical, too_fast
from rackproof.core.judging.entry import about
from rackproof.core.judging.folding import folded
from rackproof.core.judging.members import named, no_device, several, subject_name
from rackproof.core.judging.numbers import MEASURE_AGAIN, Number, Numbers, counted, question, unusable
from rackproof.core.judging.select import NoNumber, Sources, sources_of
from rackproof.core.judging.statistics import extreme_of, ratio_of, reduce_members
from rackproof.core.metrics import METRICS
from rackproof.core.rack import fold
from rackproof.core.status import Status
from rackproof.core.units import convert
from rackproof.core.verdict import Verdict, amended, template, trusted
from rackproof.core.wording import exact

BROKEN_SHARE = 100.0
"""A larger multiple of the reference is invalid."""


class _Share(NamedTuple):
    """One number as a share of another; both in the metric's own unit."""

    measured: float
    ceiling: float
    of: str
    """Name of the ceiling."""
    member: str = ""
    """Member of the number if it is not the subject, with a colon."""
    starved: str = ""
    """Why the ceiling may be too low, if the number itself is not affected."""


def judge_criterion(architecture: Architecture, criterion: Criterion, numbers: Numbers) -> Iterator[Verdict]:
    """One verdict per variant of the criterion and member, or per variant for reduced members; pairs are folded."""
    for id_, where in criterion.variants():
        verdicts = _Case(architecture, criterion, criterion, id_, where, numbers).verdicts()
        if criterion.any_of:
            ways = [
                [
                    list(_Case(architecture, criterion, way, id_, labels, numbers).verdicts())
                    for labels in variants_of(way, criterion, where)
                ]
                for way in criterion.any_of
            ]
            verdicts = either(list(verdicts), ways)
        if criterion.scope is Scope.PAIR:
            names = numbers.members.group(criterion.members)
            verdicts = attributed(verdicts, numbers.cleared, numbers.named(criterion.metric))
            verdicts = folded(verdicts, numbers.covering(criterion.metric, names))
        yield from verdicts


class _Case:
    """One criterion or alternative, with fixed labels."""

    def __init__(
        self,
        architecture: Architecture,
        criterion: Criterion,
        asks: Criterion | Alternative,
        id_: str,
        where: dict[str, str],
        numbers: Numbers,
    ) -> None:
        self.asks, self.where, self.numbers = asks, where, numbers
        self.group = criterion.members
        self.names = numbers.members.group(criterion.members)
        self.bar = settled(asks.pass_, architecture.level)
        self.metric = METRICS[asks.metric]
        self.question = question(asks, asks.scope, where)
        self.is_share = self.bar.of is not None or asks.reduce in SPREADS
        self.bar_text = bar_text(self.bar, architecture.level)
        self.per_member = asks.reduce is Reduce.EACH or asks.scope is Scope.RACK
        self.common: dict[str, Any] = {
            **about(criterion, id_),
            "metric": asks.metric,
            "labels": where,
            "unit": self.bar.unit,
            "bar": self.bar_text,
            "statistic": self._statistic_text(),
        }
        """Fields that all verdicts of the case share."""
        self.template = template(**self.common)
        self.whole = Whole(architecture, self.bar.of, asks, self.names, numbers) if self.bar.of else None
        self.physical = physical(architecture, criterion, asks)
        if self.whole is not None and self.whole.link is not None and criterion.ceiling is None:
            self.physical = self.whole.link

    def verdicts(self) -> Iterator[Verdict]:
        scope, members = self.asks.scope, self.numbers.members
        if not self.names:
            yield self._without("rack", NoNumber(Status.UNMEASURED, f"no node in group {self.group}"))
        elif not self.per_member:
            number, values = self.numbers.ask_group(self.question, self.asks.reduce, self.names)
            if self.asks.reduce in SPREADS and isinstance(number, Number):
                fastest = number._replace(value=max(values.values()))
                if fault := too_fast(fastest, self.physical):
                    yield self._without("rack", unusable(fastest, Status.INVALID, fault))
                else:
                    yield self._spread(number, values)
            else:
                yield self._judge("rack", self.names, number)
        elif scope is Scope.PAIR and (why := members.nothing(scope, self.names) or self._no_pair()):
            yield self._without("rack", NoNumber(Status.UNMEASURED, why))
        else:
            for name in members.bare(scope, self.names, self.question.use):
                yield self._without(name, NoNumber(Status.UNMEASURED, no_device(scope, [name])))
            for subject in self.numbers.subjects(self.question, self.names):
                name = subject_name(scope, subject)
                if scope is Scope.PAIR and (suspects := self.numbers.suspects(self.asks.metric, subject)):
                    yield self._uncovered(name, suspects)
                else:
                    yield self._judge(name, subject, self.numbers.ask(self.question, subject))

    def _no_pair(self) -> str:
        """Why there is no pair to judge, although group testing covers all pairs; empty where there is one."""
        one = next(self.numbers.subjects(self.question, self.names), None)
        return f"no measurement of {self.asks.metric} between these nodes" if one is None else ""

    def _uncovered(self, subject: str, suspects: Sequence[str]) -> Verdict:
        """A pair that was not scheduled, and that group testing does not cover."""
        why = f"not measured, and group testing does not cover {fold(suspects)}"
        verdict = self._without(subject, NoNumber(Status.UNMEASURED, why))
        return amended(verdict, blame=suspects[0]) if len(suspects) == 1 else verdict

    def _judge(self, subject: str, members: Sequence[str], number: Number | NoNumber) -> Verdict:
        if isinstance(number, NoNumber):
            return self._without(subject, number)
        if self.physical is not None and (fault := too_fast(number, self.physical)):
            return self._without(subject, unusable(number, Status.INVALID, fault))
        if self.whole is None:
            return self._verdict(subject, number, convert(number.value, self.metric.unit, self.bar.unit))
        of, whole = self.whole.text, self.whole.number(members, self.question)
        sources = sources_of((number, whole))
        if isinstance(whole, NoNumber):
            status, why = whole.status, f"no reference for the share: {of}: {whole.why}"
        else:
            try:
                ratio = ratio_of(number.value, whole.value)
            except ZeroDivisionError:
                status, why = Status.INVALID, f"no reference for the share: {of} is 0"
            else:
                if ratio > BROKEN_SHARE:
                    return self._without(subject, self._broken(number, whole.value, sources))
                remark = "; ".join(filter(None, (number.remark, whole.remark))) if whole.remark else number.remark
                both = number._replace(remark=remark, **sources)
                share = _Share(number.value, whole.value, of, starved="" if number.starved else whole.starved)
                return self._verdict(subject, both, convert(ratio, "ratio", self.bar.unit), share)
        return self._without(subject, NoNumber(status, why, **sources))

    def _broken(self, number: Number, whole: float, sources: Sources) -> NoNumber:
        unit, of = self.metric.unit, self.whole.text if self.whole else ""
        why = f"{amount(number.value, unit)} of {amount(whole, unit)}, {of}"
        why += f": more than {exact(BROKEN_SHARE)} times the reference, so one of the two is wrong"
        return unusable(number, Status.INVALID, why)._replace(**sources)

    def _spread(self, ratio: Number, values: Mapping[str, float]) -> Verdict:
        """The verdict names the extreme members with their numbers."""
        scope, reduce, unit = self.asks.scope, self.asks.reduce, self.metric.unit
        numbers = list(values.values())
        extreme, middle = extreme_of(numbers, reduce), reduce_members(numbers, Reduce.MEDIAN)

        def members_with(number: float) -> str:
            return named(scope, [subject for subject, value in values.items() if value == number])

        if reduce is Reduce.SPREAD_OVER_MEDIAN:
            low, high = min(numbers), max(numbers)
            text = f"{members_with(low)} {amount(low, unit, high)}, {members_with(high)} {amount(high, unit, low)}: "
        else:
            text = f"{members_with(extreme)}: "
        share = _Share(extreme, middle, f"the median of {several(scope)}", text)
        return self._verdict("rack", ratio, convert(ratio.value, "ratio", self.bar.unit), share)

    def _verdict(self, subject: str, number: Number, value: float, share: _Share | None = None) -> Verdict:
        """Judge ``value``, which is in the bar's unit."""
        result = compare(self.bar, value)
        of_reference = share.starved if share is not None and result.status is Status.PASS else ""
        if cause := of_reference or (number.starved if result.status is Status.FAIL else ""):
            return self._without(subject, unusable(number, Status.INVALID, cause))
        own, unit = self.metric.unit, self.bar.unit
        expected, actual = self.bar_text, amount(value, unit, result.edge)
        if share is not None:
            expected += f" of {share.of}"
            actual += f" ({share.member}{amount(share.measured, own)} of {amount(share.ceiling, own)})"
        samples = len(number.samples)
        remarks = [_each(number.counts) if number.counts else counted(self.asks.statistic, samples)]
        level = None
        if self.bar.levels:
            level = level_reached(self.bar, value)
            remarks.append(f"reaches {level or 'no level'}")
        if result.status is Status.WARN and self.bar.warn is not None:
            remarks.append(f"warns {'below' if self.bar.op == 'ge' else 'above'} {amount(self.bar.warn, unit)}")
        remarks += filter(None, (number.drive, number.remark))
        fields = self.template.copy()
        self._own(number, fields)
        self._ceiling(share, fields)
        fields["subject"] = subject
        fields["status"] = result.status
        fields["message"] = f"expected {expected}, actual {actual}; {'; '.join(remarks)}"
        fields["value"] = value
        fields["bar_value"] = result.edge
        fields["distance_pct"] = result.distance_pct
        fields["level"] = level
        if share is not None:
            fields["measured"], fields["measured_unit"] = share.measured, own
        return trusted(fields)

    def _without(self, subject: str, number: NoNumber) -> Verdict:
        value: float | None = None
        if number.value is not None and not self.is_share:
            value = convert(number.value, self.metric.unit, self.bar.unit)
        fields = self.template.copy()
        self._own(number, fields)
        self._ceiling(None, fields)
        fields["subject"] = subject
        fields["status"] = number.status
        fields["message"] = number.why
        if number.status is Status.INVALID:
            fields["hint"] = MEASURE_AGAIN
        fields["value"] = value
        fields["bar_value"] = self.bar.value
        if self.is_share:
            fields["measured"], fields["measured_unit"] = number.value, self.metric.unit
        return trusted(fields)

    def _own(self, number: Number | NoNumber, fields: dict[str, Any]) -> None:
        """Copy the number's fields to the verdict."""
        samples = number.samples
        if not self.is_share and self.bar.unit != self.metric.unit:
            samples = tuple(convert(sample, self.metric.unit, self.bar.unit) for sample in samples)
        fields["samples"] = samples
        fields["cv_pct"] = number.cv_pct
        fields["raw"] = number.raw
        fields["records"] = number.records
        fields["simulated"] = number.simulated

    def _ceiling(self, share: _Share | None, fields: dict[str, Any]) -> None:
        """The reference of a share, otherwise the link capacity, where known."""
        if share is not None:
            fields["ceiling"], fields["ceiling_unit"], fields["ceiling_of"] = share.ceiling, self.metric.unit, share.of
        elif isinstance(self.physical, Capacity):
            unit = self.metric.unit if self.is_share else self.bar.unit
            fields["ceiling"] = convert(self.physical.value, self.physical.unit, unit)
            fields["ceiling_unit"], fields["ceiling_of"] = unit, self.physical.text

    def _statistic_text(self) -> str:
        """``median``, or ``min of nodes, median of each``."""
        own = self.asks.statistic.value
        if self.per_member:
            return own
        return f"{self.asks.reduce.value.replace('_', ' ')} of {several(self.asks.scope)}, {own} of each"


def _each(counts: tuple[int, int]) -> str:
    """Number of samples per member of a group, as text."""
    least, most = counts
    if least == most:
        return "one sample each" if least == 1 else f"{least} samples each"
    return f"{least} to {most} samples each"
