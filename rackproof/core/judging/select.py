"""Select the measurement of a quantity, or say why there is none.

The quantities come from the run's nodes and the architecture, never from the measurements. A resumed run may measure
the same quantity (metric, scope, members, labels) again: a measurement with samples replaces every earlier one, a
measurement without samples replaces only one without. So the latest number counts, never the best; of wrong content the
largest count does. ``Answer.later`` notes a later attempt that failed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypedDict

from rackproof.core.evidence import Measurement, Scope
from rackproof.core.group_testing import FAULTS
from rackproof.core.judging.members import subject_name
from rackproof.core.metrics import AT_LEAST, DAMAGE, DRIVE, OF_CONTENT
from rackproof.core.rack import fold
from rackproof.core.starvation import IN_USE, starved
from rackproof.core.status import Status

Labels = frozenset[tuple[str, str]]


class Answer(NamedTuple):
    """The fields of a measurement that the judge needs; a large run has too many to keep whole measurements."""

    unit: str
    samples: tuple[float, ...]
    reason: str | None
    """Why there is no number; None where there is one."""
    raw: tuple[str, ...]
    simulated: bool
    labels: Labels
    members: frozenset[str]
    """Participating nodes of a rack measurement; empty for other scopes."""
    replaced: int = 0
    """Number of replaced measurements with samples."""
    conditions: Mapping[str, Any] = {}
    companions: Mapping[str, tuple[float, ...]] = {}
    records: tuple[int, ...] = ()
    """Sequence numbers of its records in the evidence; empty where unknown."""
    later: str | None = None
    """Why a later attempt to measure the same quantity failed."""
    disproven: str | None = None
    """Why its raw outputs do not give it; None where they do, or were not read."""
    starved: str = ""
    """Why the number may be too low: the starved machine and the cause, or why it is a lower bound."""
    in_use: str = ""
    """Who else used the nodes."""
    damage: tuple[str, ...] = ()
    """Places of wrong content."""
    faults: str = ""
    """Faults that group testing names."""
    drive: str = ""
    """Model, serial number and place of a single drive."""
    invalid: bool = False
    """Whether the reason disproves what was measured."""


class NoNumber(NamedTuple):
    """UNMEASURED or INVALID; ``why`` is one line. INVALID may have samples and an unusable value."""

    status: Status
    why: str
    value: float | None = None
    samples: tuple[float, ...] = ()
    cv_pct: float | None = None
    raw: tuple[str, ...] = ()
    simulated: bool = False
    records: tuple[int, ...] = ()


class _Source(Protocol):
    """An answer, a number, the reason why there is none, or a verdict."""

    @property
    def raw(self) -> tuple[str, ...]: ...
    @property
    def records(self) -> tuple[int, ...]: ...
    @property
    def simulated(self) -> bool: ...


class Sources(TypedDict):
    """Fields that name the origin of a number."""

    raw: tuple[str, ...]
    records: tuple[int, ...]
    simulated: bool


def sources_of(parts: Collection[_Source]) -> Sources:
    """The origin of a value that several parts give."""
    return {
        "raw": tuple(dict.fromkeys(name for part in parts for name in part.raw)),
        "records": tuple(dict.fromkeys(seq for part in parts for seq in part.records)),
        "simulated": any(part.simulated for part in parts),
    }


class NeededConditions(NamedTuple):
    """Names of conditions and companions that the architecture uses; others are not kept."""

    conditions: frozenset[str] = frozenset()
    companions: frozenset[str] = frozenset()


class Index:
    """Measurements by metric, scope and members."""

    def __init__(self, measurements: Iterable[Measurement] = (), needed: NeededConditions = NeededConditions()) -> None:  # noqa: B008
        self._needed_conditions = needed
        self._conditions: dict[str, Mapping[str, Any]] = {}
        self._by_subject: dict[tuple[str, str, str], dict[tuple[Labels, frozenset[str]], Answer]] = {}
        self._keys: dict[tuple[Labels, frozenset[str]], tuple[Labels, frozenset[str]]] = {}
        self._matching: dict[Labels, list[tuple[Labels, frozenset[str]]]] = {}
        for measurement in measurements:
            self.add(measurement)

    def add(self, measurement: Measurement, seq: int | None = None, disproven: str | None = None) -> None:
        """Add a measurement; the module's docstring has the rule for replacing. ``seq`` is the record's.

        ``disproven`` says why its raw outputs do not give it.
        """
        scope = measurement.scope
        # rack measurements on different nodes are different quantities
        members = frozenset(measurement.members) if scope is Scope.RACK else frozenset()
        key = (frozenset(measurement.labels.items()), members)
        if key not in self._keys:
            self._keys[key] = key
            self._matching.clear()
        key = self._keys[key]  # thousands of nodes have the same labels
        same = self._by_subject.setdefault(
            (measurement.metric, scope.value, subject_name(scope, measurement.members)), {}
        )
        earlier = same.get(key)
        reason = measurement.reason
        if not measurement.samples and reason is None:
            reason = "a measurement without samples and without a reason"
        if reason is not None:
            _failed_since(same, *key, reason)
        if earlier is not None and earlier.reason is None and (reason is not None or _is_worse(earlier, measurement)):
            return
        same[key] = Answer(
            measurement.unit,
            measurement.samples,
            reason,
            measurement.raw,
            measurement.simulated,
            *key,
            earlier.replaced + 1 if earlier is not None and earlier.reason is None else 0,
            self._kept(measurement.conditions) if self._needed_conditions.conditions else {},
            self._needed(measurement.companions) if self._needed_conditions.companions else {},
            () if seq is None else (seq,),
            None,
            disproven,
            starved(measurement.conditions) or str(measurement.conditions.get(AT_LEAST, "")),
            str(measurement.conditions.get(IN_USE, "")),
            tuple(map(str, measurement.conditions.get(DAMAGE, ()))),
            str(measurement.conditions.get(FAULTS, "")),
            str(measurement.conditions.get(DRIVE, "")),
            measurement.invalid,
        )

    def _kept(self, conditions: Mapping[str, Any]) -> Mapping[str, Any]:
        """The conditions to keep; equal ones are stored once."""
        kept = {name: value for name, value in conditions.items() if name in self._needed_conditions.conditions}
        return self._conditions.setdefault(repr(kept), kept) if kept else {}

    def _needed(self, companions: Mapping[str, tuple[float, ...]]) -> Mapping[str, tuple[float, ...]]:
        return {name: numbers for name, numbers in companions.items() if name in self._needed_conditions.companions}

    def measured(self, metrics: Collection[str]) -> Iterator[tuple[str, str, Answer]]:
        """Metric, subject and answer of all numbers of these metrics."""
        for (metric, _, subject), answers in self._by_subject.items():
            if metric in metrics:
                yield from ((metric, subject, answer) for answer in answers.values() if answer.reason is None)

    @property
    def metrics(self) -> frozenset[str]:
        """Metrics of which a measurement was tried."""
        return frozenset(metric for metric, _, _ in self._by_subject)

    def tried(self, metric: str, scope: Scope, members: Sequence[str]) -> bool:
        """Whether there is any measurement of the metric on these members, also one without samples."""
        return (metric, scope.value, subject_name(scope, members)) in self._by_subject

    def ends_of_pairs(self, metric: str) -> frozenset[str]:
        """Nodes of all pairs of which a measurement of the metric was tried."""
        pairs = (subject for name, scope, subject in self._by_subject if name == metric and scope == Scope.PAIR.value)
        return frozenset(end for pair in pairs for end in pair.split("|"))

    def find(self, metric: str, scope: Scope, members: Sequence[str], where: Labels) -> Answer | NoNumber:
        """The one measurement of ``metric`` on ``members`` that carries the labels ``where``.

        For the rack, ``members`` are the nodes that took part: a sum of more nodes says nothing about theirs. Labels
        that ``where`` leaves open may have any value; two measurements that fit are INVALID.
        """
        candidates = self._by_subject.get((metric, scope.value, subject_name(scope, members)), {})
        if where not in self._matching:
            self._matching[where] = [key for key in self._keys if where <= key[0]]
        matching = [candidates[key] for key in self._matching[where] if key in candidates]
        if len(matching) == 1 and matching[0].reason is None and scope is not Scope.RACK:
            return matching[0]
        measured = [answer for answer in matching if answer.reason is None]
        if scope is Scope.RACK:
            exact = [answer for answer in measured if answer.members == frozenset(members)]
            if not exact and measured:
                return _on_others(measured, members)
            measured = exact
            matching = [answer for answer in matching if answer.members.issuperset(members)]  # not of fewer clients
        if measured:
            return _only(metric, measured, [answer for answer in matching if answer.reason is not None])
        return _failed(metric, candidates.values(), where)

    def find_part(self, metric: str, names: Sequence[str], where: Labels) -> Answer | NoNumber:
        """The one rack measurement with the labels ``where`` on nodes of ``names`` only."""
        group, key = frozenset(names), (metric, Scope.RACK.value, Scope.RACK.value)
        candidates = [
            answer for (_, members), answer in self._by_subject.get(key, {}).items() if members and members <= group
        ]
        matching = [answer for answer in candidates if where <= answer.labels]
        measured = [answer for answer in matching if answer.reason is None]
        if not measured:
            return _failed(metric, candidates, where)
        return _only(metric, measured, [answer for answer in matching if answer.reason is not None])


def _is_worse(earlier: Answer, later: Measurement) -> bool:
    """Whether a number counts wrong content that a later one did not have."""
    counts = later.metric in OF_CONTENT and earlier.disproven is None
    return counts and max(earlier.samples) > max(later.samples)


def _failed_since(
    same: dict[tuple[Labels, frozenset[str]], Answer], labels: Labels, members: frozenset[str], reason: str
) -> None:
    """Set ``later`` on the numbers that a failed attempt was to replace, even if it lacks some of their labels.

    ``members`` are the participants of a failed rack measurement; the number's are a subset or superset of them.
    """
    for key, answer in same.items():
        nested = members <= answer.members or members >= answer.members
        if answer.reason is None and labels <= answer.labels and nested:
            same[key] = answer._replace(later=reason)


def quantity(metric: str, where: Mapping[str, str]) -> str:
    """``storage.read_bandwidth[storage=local]``."""
    labels = ",".join(f"{key}={value}" for key, value in sorted(where.items()))
    return f"{metric}[{labels}]" if labels else metric


def _failed(metric: str, candidates: Iterable[Answer], where: Labels) -> NoNumber:
    """The reason that a benchmark gave, even if its measurement lacks some labels."""
    labels = dict(where)
    failed = sorted(
        (answer.reason, answer.raw, answer.simulated, answer.records, answer.invalid)
        for answer in candidates
        if answer.reason is not None and all(labels.get(key, value) == value for key, value in answer.labels)
    )
    if failed:
        why, raw, simulated, records, invalid = failed[0]
        status = Status.INVALID if invalid else Status.UNMEASURED
        return NoNumber(status, why, raw=raw, simulated=simulated, records=records)
    return NoNumber(Status.UNMEASURED, f"no measurement of {quantity(metric, labels)}")


def _only(metric: str, measured: Sequence[Answer], failed: Sequence[Answer]) -> Answer | NoNumber:
    """The only measurement that fits. A failed attempt counts too, unless its labels are a subset of the number's."""
    if len(measured) == 1 and all(answer.labels <= measured[0].labels for answer in failed):
        return measured[0]
    everyone = (*measured, *failed)
    texts = {quantity(metric, dict(answer.labels)) for answer in everyone}
    if len(texts) < len(everyone):  # same labels, different participants
        texts = {f"{quantity(metric, dict(a.labels))} on {fold(sorted(a.members))}" for a in everyone}
    return NoNumber(Status.INVALID, f"several measurements fit: {'; '.join(sorted(texts))}")


def _on_others(measured: Sequence[Answer], members: Sequence[str]) -> NoNumber:
    """Rack measurements on other nodes than ``members``; the closest one is named."""
    lists = ([name for name in members if name not in answer.members] for answer in measured)
    missing = min(lists, key=lambda names: (len(names), names))
    if missing:
        why = f"measured on {len(members) - len(missing)} of {len(members)} nodes; {fold(missing)} missing"
    else:
        others = (sorted(answer.members.difference(members)) for answer in measured)
        further = min(others, key=lambda names: (len(names), names))
        why = f"measured only together with {fold(further)}, expected {fold(members)} alone"
    return NoNumber(Status.UNMEASURED, why)
