"""References and physical limits of numbers: other measured quantities, and link capacities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rackproof.core.architecture import Alternative, Architecture, Ceiling, Criterion, LinkShare, Reduce, Reference
from rackproof.core.architecture.plausibility import carried, ceiling_of
from rackproof.core.evidence import Scope
from rackproof.core.judging.bars import amount, number_text
from rackproof.core.judging.conditions import required_conditions
from rackproof.core.judging.gates import gates_of
from rackproof.core.judging.numbers import Number, Numbers, Question
from rackproof.core.judging.select import NoNumber, quantity, sources_of
from rackproof.core.judging.statistics import ALONE
from rackproof.core.metrics import METRICS
from rackproof.core.status import Status
from rackproof.core.units import UnitError, convert, same_dimension

BEYOND_PCT = 2.0
"""Tolerance above link capacity, %: clocks and counters are not exact."""


class Capacity(NamedTuple):
    """Total capacity of links of one kind."""

    value: float
    unit: str
    """The metric's unit."""
    text: str
    """``link spine (4 × 400 Gb/s)``."""
    per_member: bool = False
    """Per member of a group; otherwise shared by all members."""


def capacity(architecture: Architecture, share: LinkShare | Ceiling, unit: str) -> Capacity | NoNumber:
    """Capacity of a link in ``unit``; UNMEASURED where its rate is unpublished."""
    link = architecture.links.get(share.link)
    if link is None or link.each.value is None:
        why = "it is not among the links" if link is None else "its rate is not published"
        return NoNumber(Status.UNMEASURED, why)
    try:
        ceiling = carried(link, share.times, unit)
    except UnitError as error:
        return NoNumber(Status.UNMEASURED, str(error))
    if ceiling is None:
        return NoNumber(Status.UNMEASURED, "its rate is not published")
    many = link.count * share.times
    times = f"{number_text(many)} × " if many != 1 else ""
    return Capacity(ceiling.value, unit, f"link {share.link} ({times}{amount(link.each.value, link.each.unit)})")


def physical(
    architecture: Architecture, criterion: Criterion, asks: Criterion | Alternative
) -> Capacity | NoNumber | None:
    """Physical limit of a criterion or one of its alternatives; None where unknown.

    The criterion's ceiling applies to all alternatives of its dimension. Links without a ceiling are bounded by the
    fabric's line rate.
    """
    unit, named = METRICS[asks.metric].unit, criterion.ceiling
    if named is not None and same_dimension(unit, METRICS[criterion.metric].unit):
        return capacity(architecture, named, unit)
    ceiling = ceiling_of(architecture, criterion.model_copy(update={"metric": asks.metric, "ceiling": None}))
    rate = architecture.fabric.line_rate_gbps if architecture.fabric else None
    if ceiling is None or rate is None:
        return None
    return Capacity(ceiling.value, unit, f"fabric.line_rate_gbps ({amount(rate, 'Gb/s')})", per_member=True)


def too_fast(number: Number, ceiling: Capacity | NoNumber | None) -> str | None:
    """Why a number is impossible: its fastest sample exceeds the link capacity.

    The fastest, not the median: a further slow sample must not make an impossible measurement credible. For a group
    that shares the links, the number itself is compared, because its samples are the members'.
    """
    if not isinstance(ceiling, Capacity):
        return None
    shared = number.counts and not ceiling.per_member
    fastest = number.value if shared else max(number.samples, default=number.value)
    if fastest <= ceiling.value * (1 + BEYOND_PCT / 100):
        return None
    actual = amount(fastest, ceiling.unit, ceiling.value)
    return f"faster than its link can carry: {actual} of {amount(ceiling.value, ceiling.unit)}, {ceiling.text}"


class Whole:
    """Reference of a relative bar, in the unit of the judged metric."""

    def __init__(
        self,
        architecture: Architecture,
        of: Reference | LinkShare,
        asks: Criterion | Alternative,
        names: Sequence[str],
        numbers: Numbers,
    ) -> None:
        unit = METRICS[asks.metric].unit
        self.link: Capacity | NoNumber | None = None
        self._unit, self._names, self._numbers = unit, names, numbers
        self._common: Number | NoNumber | None = None
        if isinstance(of, LinkShare):
            self.link = capacity(architecture, of, unit)
            self.text = f"link {of.link}" if isinstance(self.link, NoNumber) else self.link.text
            self._common = self.link if isinstance(self.link, NoNumber) else _published(self.link.value)
            return
        self.text = quantity(of.metric, of.where)
        self._of, self._own_unit = of, METRICS[of.metric].unit
        self._question = reference_question(of, asks)
        self._ask = numbers.remembering(self._question)

    def number(self, members: Sequence[str], asked: Question) -> Number | NoNumber:
        """The same member's number with ``reduce: each``, otherwise one number for the whole group.

        ``asked``: the judged quantity, which is no share of itself in a group of one.
        """
        whole = self._number(members)
        if isinstance(whole, Number) and whole.counts and len(whole.samples) == 1 and self._is(asked):
            return NoNumber(Status.UNMEASURED, ALONE, **sources_of((whole,)))
        return whole

    def _is(self, asked: Question) -> bool:
        own = self._question
        related = own.labels <= asked.labels or own.labels >= asked.labels
        return (own.metric, own.scope) == (asked.metric, asked.scope) and related

    def _number(self, members: Sequence[str]) -> Number | NoNumber:
        if self.link is None and self._of.reduce is Reduce.EACH and self._of.scope is not Scope.RACK:
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


def reference_question(of: Reference, asks: Criterion | Alternative) -> Question:
    """A reference inherits samples, scatter and warm-up from the criterion unless it sets them, but not conditions and
    gates, which belong to another quantity."""
    return Question(
        of.metric,
        of.scope,
        frozenset(of.where.items()),
        of.statistic,
        asks.min_samples if of.min_samples is None else of.min_samples,
        asks.max_cv_pct if of.max_cv_pct is None else of.max_cv_pct,
        asks.warmup if of.warmup is None else of.warmup,
        required_conditions(of.conditions),
        gates_of(of),
    )


def _published(value: float) -> Number:
    """A published number, which has no samples."""
    return Number(value, (), None, (), False)
