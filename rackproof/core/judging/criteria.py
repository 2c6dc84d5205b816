"""Verdicts on criteria: every member in scope gets one, whether or not something was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rackproof.core.architecture import Criterion, Reduce, Reference, Severity
from rackproof.core.architecture.consistency import SPREADS
from rackproof.core.evidence import Scope
from rackproof.core.judging.bars import amount, bar_text, compare
from rackproof.core.judging.numbers import NoNumber, Number, Numbers, Question, named, too_few
from rackproof.core.judging.select import quantity, subject_name, subjects
from rackproof.core.judging.statistics import ratio_of, reduce_members
from rackproof.core.metrics import METRICS
from rackproof.core.status import Status
from rackproof.core.units import convert
from rackproof.core.verdict import Verdict

_SEVERAL = {Scope.NODE: "nodes", Scope.PAIR: "pairs", Scope.RACK: "the rack"}


class _Share(NamedTuple):
    """One number as a share of another; both in the metric's own unit."""

    measured: float
    ceiling: float
    of: str
    """What the ceiling is."""
    who: str = ""
    """Whose number it is, where the subject does not say so."""


def judge_criterion(criterion: Criterion, groups: Mapping[str, tuple[str, ...]], numbers: Numbers) -> Iterator[Verdict]:
    """One verdict for each variant of the criterion and each member, or one for the rack where members are reduced."""
    names = groups.get(criterion.members, ())
    for id_, where in criterion.variants():
        yield from _Case(criterion, id_, where, names, numbers).verdicts()


class _Ceiling:
    """What a bar is a share of, in ``unit``."""

    def __init__(self, of: Reference, unit: str, names: Sequence[str], numbers: Numbers) -> None:
        self.text = quantity(of.metric, of.where)
        self._of, self._unit, self._names, self._numbers = of, unit, names, numbers
        self._own_unit = METRICS[of.metric].unit
        labels = frozenset(of.where.items())
        self._question = Question(of.metric, of.scope, labels, of.statistic, max_cv_pct=of.max_cv_pct)
        self._ask = numbers.remembering(self._question)
        self._common: Number | NoNumber | None = None

    def number(self, members: Sequence[str]) -> Number | NoNumber:
        """Of the same member for ``each``, otherwise one for all members of the criterion's group."""
        if self._of.reduce is Reduce.EACH and self._of.scope is not Scope.RACK:
            return self._converted(self._ask(members))
        if self._common is None:
            self._common = self._converted(self._of_all())
        return self._common

    def _of_all(self) -> Number | NoNumber:
        if self._of.scope is Scope.RACK:
            return self._ask(self._names)
        return self._numbers.ask_group(self._question, self._of.reduce, self._names)[0]

    def _converted(self, answer: Number | NoNumber) -> Number | NoNumber:
        if isinstance(answer, NoNumber) or self._own_unit == self._unit:
            return answer
        return answer._replace(value=convert(answer.value, self._own_unit, self._unit))


class _Case:
    """One criterion with its labels settled."""

    def __init__(
        self, criterion: Criterion, id_: str, where: dict[str, str], names: Sequence[str], numbers: Numbers
    ) -> None:
        self.criterion, self.id, self.where, self.names, self.numbers = criterion, id_, where, names, numbers
        self.bar = criterion.pass_
        self.metric = METRICS[criterion.metric]
        self.question = Question(
            criterion.metric,
            criterion.scope,
            frozenset(where.items()),
            criterion.statistic,
            criterion.min_samples,
            criterion.max_cv_pct,
        )
        self.is_share = criterion.pass_.of is not None or criterion.reduce in SPREADS
        self.bar_text = bar_text(criterion.pass_)
        self.common: dict[str, Any] = {
            "id": id_,
            "kind": "criterion",
            "title": criterion.title,
            "required": criterion.severity is Severity.REQUIRED,
            "metric": criterion.metric,
            "labels": where,
            "unit": self.bar.unit,
            "bar": self.bar_text,
            "statistic": _statistic_text(criterion),
            "source": criterion.source,
            "reason": criterion.reason,
            "hint": criterion.hint,
        }
        """The same in every verdict of the case."""
        self.ceiling = _Ceiling(self.bar.of, self.metric.unit, names, numbers) if self.bar.of else None

    def verdicts(self) -> Iterator[Verdict]:
        scope = self.criterion.scope
        if not self.names:
            why = f"no node in group {self.criterion.members}"
            yield self._without("rack", NoNumber(Status.UNMEASURED, why))
        elif scope is Scope.PAIR and len(self.names) < 2:
            yield self._without("rack", NoNumber(Status.UNMEASURED, too_few(scope, self.names)))
        elif self.criterion.reduce is Reduce.EACH or scope is Scope.RACK:
            for members in subjects(scope, self.names):
                yield self._judge(subject_name(scope, members), members, self.numbers.ask(self.question, members))
        else:
            number, values = self.numbers.ask_group(self.question, self.criterion.reduce, self.names)
            if self.criterion.reduce in SPREADS and isinstance(number, Number):
                yield self._spread(number, values)
            else:
                yield self._judge("rack", self.names, number)

    def _judge(self, subject: str, members: Sequence[str], number: Number | NoNumber) -> Verdict:
        if isinstance(number, NoNumber):
            return self._without(subject, number)
        if self.ceiling is None:
            return self._verdict(subject, number, convert(number.value, self.metric.unit, self.bar.unit))
        of, ceiling = self.ceiling.text, self.ceiling.number(members)
        raw = tuple(dict.fromkeys(number.raw + ceiling.raw))
        simulated = number.simulated or ceiling.simulated
        if isinstance(ceiling, NoNumber):
            why = f"nothing to take a share of: {of}: {ceiling.why}"
            return self._without(subject, NoNumber(ceiling.status, why, raw=raw, simulated=simulated))
        try:
            ratio = ratio_of(number.value, ceiling.value)
        except ZeroDivisionError:
            why = f"nothing to take a share of: {of} is 0"
            return self._without(subject, NoNumber(Status.INVALID, why, raw=raw, simulated=simulated))
        remark = "; ".join(filter(None, (number.remark, ceiling.remark)))
        both = Number(number.value, number.samples, number.cv_pct, raw, simulated, remark)
        value = convert(ratio, "ratio", self.bar.unit)
        return self._verdict(subject, both, value, _Share(number.value, ceiling.value, of))

    def _spread(self, ratio: Number, values: Mapping[str, float]) -> Verdict:
        """The member that is furthest from the others is named, with its number."""
        extreme = (min if self.criterion.reduce is Reduce.MIN_OVER_MEDIAN else max)(values.values())
        who = named(self.criterion.scope, [subject for subject, value in values.items() if value == extreme])
        middle = reduce_members(list(values.values()), Reduce.MEDIAN)
        share = _Share(extreme, middle, f"the median of {_SEVERAL[self.criterion.scope]}", f"{who}: ")
        return self._verdict("rack", ratio, convert(ratio.value, "ratio", self.bar.unit), share)

    def _verdict(self, subject: str, number: Number, value: float, share: _Share | None = None) -> Verdict:
        """Judge ``value``, which is in the bar's unit."""
        result = compare(self.bar, value)
        own, unit = self.metric.unit, self.bar.unit
        expected, actual = self.bar_text, amount(value, unit, result.edge)
        if share is not None:
            expected += f" of {share.of}"
            actual += f" ({share.who}{amount(share.measured, own)} of {amount(share.ceiling, own)})"
        remarks = f"; {number.remark}" if number.remark else ""
        if result.status is Status.WARN and self.bar.warn is not None:
            remarks = f"; warns {'below' if self.bar.op == 'ge' else 'above'} {amount(self.bar.warn, unit)}{remarks}"
        return Verdict(
            **self.common,
            **self._own(number),
            subject=subject,
            status=result.status,
            message=f"expected {expected}, actual {actual}{remarks}",
            value=value,
            bar_value=result.edge,
            distance_pct=result.distance_pct,
            measured=share.measured if share else None,
            measured_unit=own if share else None,
            ceiling=share.ceiling if share else None,
            ceiling_unit=own if share else None,
            ceiling_of=share.of if share else None,
        )

    def _without(self, subject: str, number: NoNumber) -> Verdict:
        value: float | None = None
        if number.value is not None and not self.is_share:
            value = convert(number.value, self.metric.unit, self.bar.unit)
        return Verdict(
            **self.common,
            **self._own(number),
            subject=subject,
            status=number.status,
            message=number.why,
            value=value,
            bar_value=self.bar.value,
            measured=number.value if self.is_share else None,
            measured_unit=self.metric.unit if self.is_share else None,
        )

    def _own(self, number: Number | NoNumber) -> dict[str, Any]:
        """What a verdict takes over from its number."""
        samples = number.samples
        if not self.is_share and self.bar.unit != self.metric.unit:
            samples = tuple(convert(sample, self.metric.unit, self.bar.unit) for sample in samples)
        return {
            "samples": samples,
            "cv_pct": number.cv_pct,
            "raw": number.raw,
            "simulated": number.simulated,
        }


def _statistic_text(criterion: Criterion) -> str:
    """``median``, or ``min over nodes of the median``."""
    own = criterion.statistic.value
    if criterion.reduce is Reduce.EACH or criterion.scope is Scope.RACK:
        return own
    return f"{criterion.reduce.value.replace('_', ' ')} of {_SEVERAL[criterion.scope]}, {own} of each"
