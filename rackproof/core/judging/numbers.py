"""Reduction of samples to one number per node, pair, rack or group, or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final, NamedTuple

from rackproof.core import group_testing
from rackproof.core.architecture import Curve, Gate, Quantity, Reduce, Statistic
from rackproof.core.architecture.entries import SPREADS
from rackproof.core.evidence import Scope
from rackproof.core.judging.bars import amount, number_text
from rackproof.core.judging.conditions import RequiredConditions, required_conditions, unmet
from rackproof.core.judging.gates import fault_of, gates_of
from rackproof.core.judging.members import Members, named, subject_name
from rackproof.core.judging.select import Answer, Index, Labels, NoNumber, sources_of
from rackproof.core.judging.statistics import cv_pct, reduce_members, samples_needed, statistic_of
from rackproof.core.metrics import METRICS, Metric
from rackproof.core.status import Status
from rackproof.core.units import UnitError, convert
from rackproof.core.wording import some

_LISTED = 8
"""Maximum number of samples listed in a message."""
_PLACES = 3
"""Maximum number of places of wrong content in a message."""
_MOST = 1e15
"""Limit of a sample in any unit; larger ones are parsing errors and could overflow."""
_MOST_PERCENT = 102.0
"""Limit of percentages; clocks and counters are not exact."""
_ROUNDING = 1e-9
"""Relative tolerance of a limit for unit conversions."""


@dataclass(frozen=True, slots=True)
class Question:
    """A quantity to look up and how to reduce its samples."""

    metric: str
    scope: Scope
    labels: Labels
    statistic: Statistic
    min_samples: int = 1
    max_cv_pct: float | None = None
    warmup: int = 0
    conditions: RequiredConditions = ()
    gates: tuple[Gate, ...] = ()

    @property
    def use(self) -> str:
        """Use of the drives, from the label ``use``; empty without that label."""
        return next((value for key, value in self.labels if key == "use"), "")


def question(quantity: Quantity | Curve, scope: Scope, where: Mapping[str, str]) -> Question:
    """The question of ``quantity`` with fixed labels."""
    return Question(
        quantity.metric,
        scope,
        frozenset(where.items()),
        quantity.statistic,
        quantity.min_samples,
        quantity.max_cv_pct,
        quantity.warmup,
        required_conditions(quantity.conditions),
        gates_of(quantity),
    )


class Number(NamedTuple):
    """A finite number in the metric's own unit."""

    value: float
    samples: tuple[float, ...]
    """In the metric's own unit; of a group, the number of each member."""
    cv_pct: float | None
    raw: tuple[str, ...]
    simulated: bool
    remark: str = ""
    """Note for the verdict's message."""
    records: tuple[int, ...] = ()
    counts: tuple[int, int] | None = None
    """Smallest and largest number of samples of a group's members; None for a single member."""
    starved: str = ""
    """Why it may be too low: the starved machine and the cause (``core.starvation``), or why it is a lower bound."""
    drive: str = ""
    """Model, serial number and place of a single drive."""


MEASURE_AGAIN: Final = "Remove the cause, then measure again: rackproof certify INVENTORY --resume RUN."
"""Hint for a number that cannot be judged; a criterion's hint is for a failing number."""


def unusable(number: Number, status: Status, why: str) -> NoNumber:
    """A measured number that must not be judged, with its samples and sources."""
    return NoNumber(
        status, why, number.value, number.samples, number.cv_pct, number.raw, number.simulated, number.records
    )


NODE_COUNTS: Final = ("nodes", "clients")
"""Labels that count the nodes that took part."""


def _nodes_asked(question: Question) -> int:
    """Number of nodes that a question's labels ask for; 0 where they leave it open."""
    counts = [int(value) for name, value in question.labels if name in NODE_COUNTS and value.isdecimal()]
    return min(counts, default=0)


class Numbers:
    """Answers to questions about the evidence of one run."""

    def __init__(self, index: Index, members: Members, engine: str | None = None) -> None:
        """``engine``: engine of the profile's group testing, which covers the pairs that are not measured."""
        self._index = index
        self.members = members
        self._engine = engine
        self._sound_nodes: dict[str, frozenset[str]] = {}
        self._remembered: dict[tuple[Question, str], dict[Sequence[str] | str, Number | NoNumber]] = {}

    def ask(self, question: Question, members: Sequence[str]) -> Number | NoNumber:
        """The number of one node, one pair, or the rack (``members``: nodes that must have taken part)."""
        if question.scope is Scope.RACK and 0 < (asked := _nodes_asked(question)) < len(members):
            return self._of_few(question, members, asked)
        answer = self._index.find(question.metric, question.scope, members, question.labels)
        if isinstance(answer, NoNumber):
            return answer
        if self.members.simulated and self.members.replayed(question.metric, question.scope, members):
            answer = answer._replace(simulated=True)
        return _number(question, answer)

    def _of_few(self, question: Question, names: Sequence[str], asked: int) -> Number | NoNumber:
        """The rack's number of fewer nodes than it has: ``clients: 1`` is that of one node alone."""
        number, members = self.ask_part(question, names)
        if isinstance(number, Number) and len(members) != asked:
            why = f"expected it on {asked} of the nodes, actual {len(members)} took part"
            return unusable(number, Status.INVALID, why)
        return number

    @cached_property
    def _faults(self) -> dict[str, float]:
        """Faults of nodes that group testing decided on; 0 for a node that it cleared."""
        if self._engine is None:
            return {}
        labels = frozenset({("engine", self._engine)})
        asked = Question(group_testing.METRIC, Scope.NODE, labels, Statistic.MAX)
        answers = {name: self.ask(asked, (name,)) for name in self.members.group("all")}
        return {name: own.value for name, own in answers.items() if isinstance(own, Number)}

    @cached_property
    def cleared(self) -> frozenset[str]:
        """Nodes that group testing cleared: all pairs of them passed a job together."""
        return frozenset(name for name, count in self._faults.items() if count == 0)

    def named(self, metric: str) -> frozenset[str]:
        """Nodes that group testing names as faulty; empty where its jobs do not prove the transport of ``metric``."""
        return frozenset(name for name, count in self._faults.items() if count and self.stands_for(metric))

    def subjects(self, question: Question, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Members that must have a number: of pairs without a measurement those that group testing does not cover."""
        for members in self.members.subjects(question.scope, names, question.use):
            if not self.covered(question.metric, question.scope, members):
                yield members

    def covered(self, metric: str, scope: Scope, members: Sequence[str]) -> bool:
        """Whether group testing covers a pair of which no measurement was tried."""
        return (
            scope is Scope.PAIR
            and self.stands_for(metric)
            and not self._index.tried(metric, scope, members)
            and self._sound(metric).issuperset(members)
        )

    def stands_for(self, metric: str) -> bool:
        """Whether jobs of group testing prove the transport of a metric; False without group testing."""
        return self._engine is not None and metric in group_testing.stands_for(self._engine)

    def covering(self, metric: str, names: Sequence[str]) -> str:
        """Contribution of group testing to a criterion over pairs, in words; empty if it covers none."""
        if not self.stands_for(metric):
            return ""
        count = sum(self.covered(metric, Scope.PAIR, pair) for pair in self.members.subjects(Scope.PAIR, names))
        return f"{count} other pairs of the rack were not scheduled: group testing cleared both of their nodes"

    def suspects(self, metric: str, members: Sequence[str]) -> tuple[str, ...]:
        """Ends of a pair without a measurement that group testing did not clear, or that were measured with no node.

        Empty if group testing covers no pair of the metric.
        """
        if not self.stands_for(metric) or self._index.tried(metric, Scope.PAIR, members):
            return ()
        return tuple(name for name in members if name not in self._sound(metric))

    def _sound(self, metric: str) -> frozenset[str]:
        """Cleared nodes whose metric was tried with another node."""
        if metric not in self._sound_nodes:
            self._sound_nodes[metric] = self.cleared & self._index.ends_of_pairs(metric)
        return self._sound_nodes[metric]

    def ask_part(self, question: Question, names: Sequence[str]) -> tuple[Number | NoNumber, frozenset[str]]:
        """The rack's number measured on nodes of ``names`` only, and those nodes."""
        answer = self._index.find_part(question.metric, names, question.labels)
        if isinstance(answer, NoNumber):
            return answer, frozenset()
        return _number(question, answer), answer.members

    def remembering(self, question: Question) -> Callable[[Sequence[str]], Number | NoNumber]:
        """``ask`` with a cache, for references of many criteria."""
        # repr: conditions True and 1 compare equal but differ.
        answers = self._remembered.setdefault((question, repr(question.conditions)), {})
        rack = question.scope is Scope.RACK

        def ask(members: Sequence[str]) -> Number | NoNumber:
            # the rack's number depends on the group
            subject = tuple(members) if rack else subject_name(question.scope, members)
            answer = answers.get(subject)
            if answer is None:
                answer = answers[subject] = self.ask(question, members)
            return answer

        return ask

    def ask_group(
        self, question: Question, reduce: Reduce, names: Sequence[str]
    ) -> tuple[Number | NoNumber, dict[str, float]]:
        """One number for all members of ``names``, and their numbers by subject.

        An incomplete group has no number: an unmeasured member may be the worst.
        """
        scope = question.scope
        if why := self.members.nothing(scope, names, question.use):
            return NoNumber(Status.UNMEASURED, why), {}
        subjects = self.subjects(question, names)
        answers = {subject_name(scope, m): self.ask(question, m) for m in subjects}
        if not answers:
            return NoNumber(Status.UNMEASURED, f"no measurement of {question.metric}"), {}
        values = {subject: answer.value for subject, answer in answers.items() if isinstance(answer, Number)}
        sources = sources_of(answers.values())

        def refused(status: Status, why: str, numbers: tuple[float, ...] = ()) -> tuple[NoNumber, dict[str, float]]:
            return NoNumber(status, why, samples=numbers, **sources), values

        if fault := incomplete(scope, answers):
            return refused(*fault)
        numbers = tuple(values.values())
        try:
            value = reduce_members(numbers, reduce)
        except ValueError as error:
            return refused(Status.UNMEASURED, str(error), numbers)
        except ZeroDivisionError:
            why = f"{question.metric} cannot be compared between members: the median is 0"
            return refused(Status.INVALID, why, numbers)
        remarks = dict.fromkeys(a.remark for a in answers.values() if isinstance(a, Number) and a.remark)
        counts = [len(answer.samples) for answer in answers.values()]
        span = min(counts), max(counts)
        starved = first_starved(answers.values())
        worst = (min if METRICS[question.metric].higher_is_better else max)(numbers)
        members_with = [a for a in answers.values() if isinstance(a, Number) and a.value == worst]
        if reduce in SPREADS and starved and not first_starved(members_with):
            return refused(Status.INVALID, starved, numbers)  # the median may be too low
        number = Number(
            value, numbers, cv_pct=None, remark="; ".join(remarks), counts=span, starved=starved, **sources
        )  # fmt: skip
        return number, values


def _number(question: Question, answer: Answer) -> Number | NoNumber:
    metric = METRICS[question.metric]
    samples = answer.samples
    if answer.disproven is not None:
        return _refused(Status.INVALID, answer.disproven, answer)
    if answer.in_use and not metric.of_content:
        return _refused(Status.INVALID, f"in use before the measurement: {answer.in_use}", answer)
    if not answer.raw:
        return _refused(Status.INVALID, "the measurement refers to no raw output", answer)
    try:
        if answer.unit != metric.unit:
            samples = tuple(convert(sample, answer.unit, metric.unit) for sample in samples)
    except UnitError as error:
        return _refused(Status.INVALID, str(error), answer)
    if fault := _implausible(samples, metric):
        return _refused(Status.INVALID, fault, answer)
    every = len(samples)
    samples = samples[question.warmup :]
    if question.conditions and (fault := unmet(question.conditions, answer.conditions)):
        return _refused(Status.INVALID, fault, answer, samples)
    if why := _too_few(question, len(samples)):
        return _refused(Status.UNMEASURED, why, answer, samples)
    value, scatter = statistic_of(samples, question.statistic), cv_pct(samples)
    if question.gates and (fault := fault_of(question.gates, answer.companions, every, question.warmup)):
        return _refused(Status.INVALID, fault, answer, samples, value, scatter)
    limit = question.max_cv_pct
    if limit is not None and scatter is None:
        why = f"scatter needs two samples or more, actual {len(samples)}"
        return _refused(Status.UNMEASURED, why, answer, samples, value)
    if limit is not None and scatter is not None and scatter > limit * (1 + _ROUNDING):
        why = _scatters(samples, metric.unit, scatter, limit)
        return _refused(Status.INVALID, why, answer, samples, value, scatter)
    remarks = [some(answer.damage, _PLACES, "; ")] if answer.damage else []
    if answer.replaced:
        remarks.append(f"the latest of {answer.replaced + 1} measurements")
    if answer.later is not None:
        remarks.append(f"a later attempt failed: {answer.later}")
    if answer.faults:
        remarks.append(answer.faults)
    return Number(
        value, samples, scatter, answer.raw, answer.simulated, "; ".join(remarks), answer.records, None,
        "" if metric.of_content else answer.starved, answer.drive,
    )  # fmt: skip


def _too_few(question: Question, count: int) -> str | None:
    if count < question.min_samples or not count:
        after = f" after {question.warmup} of warm-up" if question.warmup else ""
        return f"expected {question.min_samples} or more samples{after}, actual {count}"
    if count < (needed := samples_needed(question.statistic)):
        return f"{question.statistic} needs {needed} samples, actual {count}"
    return None


@cache
def counted(statistic: Statistic, samples: int) -> str:
    """``one sample``, ``median of 5 samples``."""
    return "one sample" if samples == 1 else f"{statistic} of {samples} samples"


def first_starved(answers: Iterable[Number | NoNumber]) -> str:
    """Why one of the numbers may be too low; empty where nothing says so."""
    return next((answer.starved for answer in answers if isinstance(answer, Number) and answer.starved), "")


def incomplete(scope: Scope, answers: Mapping[str, Number | NoNumber]) -> tuple[Status, str] | None:
    """Status and message for missing or invalid members; None without any."""
    for status, verb in ((Status.UNMEASURED, "unmeasured"), (Status.INVALID, "invalid")):
        bad = {s: a.why for s, a in answers.items() if isinstance(a, NoNumber) and a.status is status}
        if bad:
            first = next(iter(bad.values()))
            return status, f"{verb} on {named(scope, list(bad))} ({len(bad)} of {len(answers)}): {first}"
    return None


def _implausible(samples: Sequence[float], metric: Metric) -> str | None:
    """Fault of negative samples, latencies of 0, and percentages above the limit; None: plausible."""
    most = _MOST_PERCENT if metric.unit == "percent" and not metric.over_whole else _MOST
    if math.isfinite(sum(samples)) and min(samples) > 0 and max(samples) <= most:
        return None
    for sample in samples:
        if not math.isfinite(sample):
            return f"a sample is {sample}, which is not a finite number"
        if not 0 <= sample <= most or (sample == 0 and not metric.zero_is_possible):
            return f"a sample is {amount(sample, metric.unit)}, which is impossible"
    return None


def _scatters(samples: Sequence[float], unit: str, scatter: float, limit: float) -> str:
    listed = some([number_text(sample) for sample in samples], _LISTED)
    actual, most = amount(scatter, "percent", limit), amount(limit, "percent")
    return f"{len(samples)} samples scatter by {actual}, more than {most}: {listed} {unit}"


def _refused(
    status: Status,
    why: str,
    answer: Answer,
    samples: tuple[float, ...] = (),
    value: float | None = None,
    scatter: float | None = None,
) -> NoNumber:
    return NoNumber(status, why, value, samples, scatter, answer.raw, answer.simulated, answer.records)
