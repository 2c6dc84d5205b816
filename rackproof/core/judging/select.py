"""Which measurement answers a question, and why there is none where none does.

What is asked comes from the nodes of the run; measurements only answer. The rule for measurements of the same
thing (metric, scope, members, labels), because a resumed run may measure again: one with samples replaces whatever
stands before it, one without samples replaces nothing that has some. So the latest number counts, never the best.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from rackproof.core.evidence import Measurement, NodeInfo, Scope, subject_of
from rackproof.core.rack import fold
from rackproof.core.status import Status

Labels = frozenset[tuple[str, str]]


class Answer(NamedTuple):
    """What the judge needs of a measurement; a large run has too many of them to keep whole."""

    unit: str
    samples: tuple[float, ...]
    reason: str | None
    """Why there is no number; None where there is one."""
    raw: tuple[str, ...]
    simulated: bool
    labels: Labels
    members: frozenset[str]
    """Who took part, for the rack; empty otherwise."""
    replaced: int = 0
    """Earlier measurements of the same thing that had samples too."""


class Absent(NamedTuple):
    """UNMEASURED, or INVALID where the evidence answers twice; ``why`` is one line."""

    status: Status
    why: str
    raw: tuple[str, ...] = ()
    simulated: bool = False


def subject_name(scope: Scope, members: Sequence[str]) -> str:
    """``subject_of``, short of sorting and joining where a node stands alone; asked several times a verdict."""
    return members[0] if scope is Scope.NODE and len(members) == 1 else subject_of(scope, members)


def node_groups(nodes: Iterable[NodeInfo]) -> dict[str, tuple[str, ...]]:
    """Names of the nodes of every group, in inventory order; ``all`` is every node."""
    groups: dict[str, list[str]] = {"all": []}
    for node in nodes:
        for group in dict.fromkeys((*node.groups, "all")):
            groups.setdefault(group, []).append(node.name)
    return {group: tuple(names) for group, names in groups.items()}


def subjects(scope: Scope, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Members of everything of ``scope`` that must have a number: nodes, unordered pairs, or the rack."""
    match scope:
        case Scope.NODE:
            yield from ((name,) for name in names)
        case Scope.PAIR:
            yield from combinations(names, 2)
        case Scope.RACK:
            yield tuple(names)


class Index:
    """Measurements by what they answer."""

    def __init__(self, measurements: Iterable[Measurement] = ()) -> None:
        self._by_subject: dict[tuple[str, str, str], dict[tuple[Labels, frozenset[str]], Answer]] = {}
        self._keys: dict[tuple[Labels, frozenset[str]], tuple[Labels, frozenset[str]]] = {}
        self._matching: dict[Labels, list[tuple[Labels, frozenset[str]]]] = {}
        for measurement in measurements:
            self.add(measurement)

    def add(self, measurement: Measurement) -> None:
        """Later ones replace earlier ones by the rule at the top of this module."""
        scope = measurement.scope
        # a rack measurement of other nodes is another measurement, not a repetition
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
        if earlier is not None and earlier.reason is None and reason is not None:
            return
        same[key] = Answer(
            measurement.unit,
            measurement.samples,
            reason,
            measurement.raw,
            measurement.simulated,
            *key,
            replaced=earlier.replaced + 1 if earlier is not None and earlier.reason is None else 0,
        )

    def find(self, metric: str, scope: Scope, members: Sequence[str], where: Labels) -> Answer | Absent:
        """The one measurement of ``metric`` on ``members`` that carries the labels ``where``.

        For the rack, ``members`` are the nodes that must have taken part. Labels that ``where`` leaves open may
        have any value, but one only: two answers to one question are INVALID.
        """
        candidates = self._by_subject.get((metric, scope.value, subject_name(scope, members)), {})
        if where not in self._matching:
            self._matching[where] = [key for key in self._keys if where <= key[0]]
        matching = [candidates[key] for key in self._matching[where] if key in candidates]
        if len(matching) == 1 and matching[0].reason is None and scope is not Scope.RACK:
            return matching[0]
        measured = [answer for answer in matching if answer.reason is None]
        if scope is Scope.RACK:
            covering = [answer for answer in measured if answer.members.issuperset(members)]
            if not covering and measured:
                return _partial(measured, members)
            measured = [answer for answer in covering if len(answer.members) == len(members)] or covering
        if measured:
            return _only(metric, measured, [answer for answer in matching if answer.reason is not None])
        asked = dict(where)
        failed = sorted(
            (answer.reason, answer.raw, answer.simulated)
            for answer in candidates.values()
            if answer.reason is not None and all(asked.get(key, value) == value for key, value in answer.labels)
        )
        if failed:
            why, raw, simulated = failed[0]
            return Absent(Status.UNMEASURED, why, raw, simulated)
        return Absent(Status.UNMEASURED, f"no measurement of {quantity(metric, asked)}")


def quantity(metric: str, where: Mapping[str, str]) -> str:
    """``storage.read_bandwidth[storage=local]``."""
    labels = ",".join(f"{key}={value}" for key, value in sorted(where.items()))
    return f"{metric}[{labels}]" if labels else metric


def _only(metric: str, measured: Sequence[Answer], failed: Sequence[Answer]) -> Answer | Absent:
    """The only answer. A failed one counts as a second one, unless the labels that it has are the other's."""
    if len(measured) == 1 and all(answer.labels <= measured[0].labels for answer in failed):
        return measured[0]
    texts = sorted({quantity(metric, dict(answer.labels)) for answer in (*measured, *failed)})
    return Absent(Status.INVALID, f"more than one measurement answers this: {'; '.join(texts)}")


def _partial(measured: Sequence[Answer], members: Sequence[str]) -> Absent:
    lists = ([name for name in members if name not in answer.members] for answer in measured)
    missing = min(lists, key=lambda names: (len(names), names))
    why = f"measured on {len(members) - len(missing)} of {len(members)} nodes; {fold(missing)} missing"
    return Absent(Status.UNMEASURED, why)
