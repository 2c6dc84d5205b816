"""History of a run: its events, and which of its results count. Pure.

A resumed run has several parts. The rules:

* Results of a node that was later exchanged or configured do not count, nor do numbers in which it took part.
* A complete validate stage replaces all earlier ones; an interrupted or narrowed one only adds results.
* Of several attempts at a benchmark step the most complete one counts; ties: the latest.
* Attempts on starved machines are joined with their repetitions: of each number the first without a starved machine
  counts, or the last if all machines were starved, regardless of which passes.
* A node that was exchanged, configured, rebooted or lost must be validated again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rackproof.core.architecture import Architecture
from rackproof.core.course import REACHABLE
from rackproof.core.evidence import End, Event, EventKind, Kind, NodeIdentity, NodeInfo, Record, quantity_of
from rackproof.core.load import PREFIX
from rackproof.core.metrics import OF_CONTENT
from rackproof.core.starvation import starved
from rackproof.core.verdict import with_item
from rackproof.core.wording import counted

VALIDATE: Final = "validate"

EXCHANGED: Final = "exchanged"
CONFIGURED: Final = "configured"
REBOOTED: Final = "rebooted"
LOST: Final = "lost"

ANEW: Final = frozenset({EXCHANGED, CONFIGURED})
"""Changes that void earlier results of the node."""


class Change(NamedTuple):
    """An event of a node during the run."""

    seq: int
    time: str
    node: str
    kind: str
    text: str
    """``boot id 1c… → 7f…``."""


class Pass(NamedTuple):
    """One validate stage, from record ``begin`` to ``end``."""

    begin: int
    end: int | None
    whole: bool
    """It ended and was not narrowed."""


class Replaced(NamedTuple):
    """A result that a later result replaced."""

    name: str
    """``base.kernel on gpu-01``."""
    was: str


@dataclass
class _Attempt:
    """Measurements of one attempt at a step, or of several joined ones."""

    done: bool = False
    records: list[Record] = field(default_factory=list)

    @property
    def sampled(self) -> int:
        """Number of measurements with samples."""
        return sum(map(_has_samples, self.records))

    @property
    def starved(self) -> bool:
        return any(map(_is_starved, self.records))

    def join(self, later: _Attempt) -> Iterator[Record]:
        """Join a repetition for starved machines; yields the measurements that do not count."""
        kept = {quantity_of(record.body): record for record in self.records}
        for new in later.records:
            old = kept.setdefault(quantity_of(new.body), new)
            if old is not new:
                better = not _has_samples(old) or (_is_starved(old) and _has_samples(new))
                kept[quantity_of(new.body)] = new if better else old
                yield old if better else new
        self.done, self.records = self.done or later.done, list(kept.values())


def _has_samples(record: Record) -> bool:
    return bool(record.body["samples"])


def _is_starved(record: Record) -> bool:
    return bool(starved(record.body["conditions"]))


@dataclass
class History:
    """Events and results of a run, in the order of the records."""

    identities: dict[str, tuple[int, NodeIdentity]] = field(default_factory=dict)
    """Latest identity of each node, with the record's number."""
    stand_ins: set[str] = field(default_factory=set)
    """Nodes that were stand-ins at any time of the run."""
    begun: list[str] = field(default_factory=list)
    """Started stages in order."""
    changes: list[Change] = field(default_factory=list)
    back: dict[str, int] = field(default_factory=dict)
    """Lost nodes that answered again, with the record's number."""
    passes: list[Pass] = field(default_factory=list)
    narrowed: str | None = None
    """Limits of the last part."""
    parts: list[int] = field(default_factory=list)
    """First record of each part."""
    unended: list[str] = field(default_factory=list)
    """Times of resumes after a part without an end."""
    end: End | None = None
    """The last record, if it is an end."""
    superseded: set[int] = field(default_factory=set)
    """Records of checks, measurements and planned checks that no longer count."""
    replaced: list[Replaced] = field(default_factory=list)
    unreachable: set[str] = field(default_factory=set)
    """Nodes that did not answer at the start of the last part."""
    steps: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Record and digest of the parameters of completed steps."""

    def changed_since(self, seq: int, nodes: Iterable[str], kinds: frozenset[str] = ANEW) -> Change | None:
        """The first change of these kinds to any of the nodes after record ``seq``."""
        among = frozenset(nodes)
        return next((c for c in self.changes if c.seq > seq and c.kind in kinds and c.node in among), None)

    def validated_since(self, seq: int) -> bool:
        """Whether a complete validation began after record ``seq``."""
        return any(stage.whole and stage.begin > seq for stage in self.passes)

    def unvalidated(self) -> list[Change]:
        """Changes without a later complete validation."""
        return [c for c in self.changes if not self.validated_since(max(c.seq, self.back.get(c.node, 0)))]

    def lost_now(self) -> set[str]:
        """Lost nodes that have not answered since."""
        return {c.node for c in self.changes if c.kind == LOST and self.back.get(c.node, -1) < c.seq}


def history_of(records: Sequence[Record], architecture: Architecture, nodes: Sequence[NodeInfo]) -> History:
    """The history of a run's records, whose bodies are valid for their kinds."""
    history = History()
    deploys: list[Record] = []
    narrowed = False
    begin: int | None = None
    for position, record in enumerate(records):
        match record.kind:
            case Kind.RUN:
                history.parts.append(record.seq)
            case Kind.EVENT:
                event = Event.model_validate(record.body)
                narrowed = _event(history, event, record, narrowed, records[position - 1].kind)
            case Kind.IDENTITY:
                _identity(history, NodeIdentity.model_validate(record.body), record, deploys)
            case Kind.DEPLOY:
                deploys.append(record)
                _deploy(history, record)
            case Kind.STAGE if record.body["event"] == "begin":
                history.begun.append(str(record.body["stage"]))
                if begin is not None:
                    history.passes.append(Pass(begin, None, False))
                begin = record.seq if record.body["stage"] == VALIDATE else None
            case Kind.STAGE if begin is not None and record.body["stage"] == VALIDATE:
                history.passes.append(Pass(begin, record.seq, record.body["ok"] and not narrowed))
                begin = None
            case Kind.CHECK if record.body["check"] == REACHABLE:
                answered = record.body["outcome"] == "passed"
                (history.unreachable.discard if answered else history.unreachable.add)(record.body["node"])
            case Kind.STEP if record.body["status"] == "done":
                history.steps[record.body["step"]] = (record.seq, record.body["digest"])
            case _:
                continue
    if begin is not None:
        history.passes.append(Pass(begin, None, False))
    if records and records[-1].kind is Kind.END:
        history.end = End.model_validate(records[-1].body)
    _check_results(history, records)
    _numbers(history, records, servers_of(architecture, nodes))
    return history


def servers_of(architecture: Architecture, nodes: Sequence[NodeInfo]) -> dict[str, frozenset[str]]:
    """Server nodes by storage: they take part in all of its numbers."""
    return {
        name: frozenset(node.name for node in nodes if storage.server_role in node.groups)
        for name, storage in architecture.storage.items()
    }


def participants(
    members: Iterable[str], labels: Mapping[str, str], servers: Mapping[str, frozenset[str]]
) -> frozenset[str]:
    """Nodes of a measurement, including storage servers."""
    return frozenset(member.partition("/")[0] for member in members) | servers.get(
        labels.get("storage", ""), frozenset()
    )


def _event(history: History, event: Event, record: Record, narrowed: bool, before: Kind) -> bool:
    """Add an event. Returns whether the part is narrowed."""
    if event.event is EventKind.RESUMED:
        history.parts.append(record.seq)
        if before is not Kind.END:
            history.unended.append(record.time)
        history.narrowed = None
        return False
    if event.event is EventKind.NARROWED:
        history.narrowed = event.text
        return True
    if event.node is not None and event.event is EventKind.LOST:
        history.changes.append(Change(record.seq, record.time, event.node, LOST, event.text))
    if event.node is not None and event.event is EventKind.BACK:
        history.back[event.node] = record.seq
    return narrowed


def _identity(history: History, current: NodeIdentity, record: Record, deploys: Sequence[Record]) -> None:
    seq, before = history.identities.get(current.node, (-1, None))
    history.identities[current.node] = (record.seq, current)
    if current.stand_in:
        history.stand_ins.add(current.node)
    if before is None:
        return
    if differences := list(current.differences(before)):
        kind, text = EXCHANGED, ", ".join(differences)
    elif before.boot_id and current.boot_id and before.boot_id != current.boot_id:
        kind, text = REBOOTED, f"boot id {before.boot_id[:8]} → {current.boot_id[:8]}"
        since = [n for d in deploys for n in d.body["nodes"] if n["node"] == current.node and d.seq > seq]
        applied = [d for d in deploys if not d.body["dry"]]
        pending = [n for d in applied for n in d.body["nodes"] if n["node"] == current.node]
        if any(n["rebooted"] for n in since) or (pending and pending[-1]["reboot"]):
            kind, text = CONFIGURED, "rebooted for its settings"
    else:
        return
    history.changes.append(Change(record.seq, record.time, current.node, kind, text))


def _deploy(history: History, record: Record) -> None:
    if record.body["dry"]:
        return
    for node in record.body["nodes"]:
        if count := len(node["changed"]) + len(node["failed"]):
            text = f"{counted(count, 'change')} by the deploy"
            history.changes.append(Change(record.seq, record.time, node["node"], CONFIGURED, text))


def _check_results(history: History, records: Iterable[Record]) -> None:
    """Find results of checks that do not count, and failed ones that were replaced."""
    last_whole = max((stage.begin for stage in history.passes if stage.whole), default=-1)
    stage, number = "", 0
    counting: dict[tuple[str, str, str], tuple[int, list[Record]]] = {}
    gone: list[Record] = []
    for record in records:
        if record.kind is Kind.STAGE:
            number += record.body["event"] == "begin"
            stage = str(record.body["stage"]) if record.body["event"] == "begin" else ""
            continue
        if record.kind is Kind.PLANNED and record.seq < last_whole:
            history.superseded.add(record.seq)  # the later validation has its own plan
        if record.kind is not Kind.CHECK:
            continue
        body = record.body
        validated = stage == VALIDATE
        if record.seq < last_whole if validated else _is_void(history, record.seq, body["node"]):
            gone.append(record)
            continue
        key = (body["check"], body["item"], body["node"])
        earlier = counting.get(key)
        if earlier is None or (earlier[0] != number and not validated):
            # Damage to a node counts even if the step was repeated.
            kept = [result for result in earlier[1] if _is_damage(result)] if earlier else []
            gone += [result for result in earlier[1] if result not in kept] if earlier else []
            counting[key] = (number, [*kept, record])
        else:
            earlier[1].append(record)
    history.superseded.update(record.seq for record in gone)
    for record in gone:
        if record.body["outcome"] == "failed":
            name = f"{with_item(record.body['check'], record.body['item'])} on {record.body['node']}"
            history.replaced.append(Replaced(name, str(record.body["message"])))


def _is_damage(record: Record) -> bool:
    return str(record.body["check"]).startswith(PREFIX) and record.body["outcome"] == "failed"


def _is_void(history: History, seq: int, node: str) -> bool:
    """Whether the node was exchanged after record ``seq``."""
    return history.changed_since(seq, (node,), frozenset({EXCHANGED})) is not None


def _numbers(history: History, records: Iterable[Record], servers: Mapping[str, frozenset[str]]) -> None:
    """Find measurements that do not count: of changed nodes, and of less complete attempts at a step."""
    anew = [change for change in history.changes if change.kind in ANEW]
    attempts: dict[str, list[_Attempt]] = {}
    open_attempts: dict[str, _Attempt] = {}
    ended: set[str] = set()
    for record in records:
        body = record.body
        if record.kind is Kind.STAGE:
            open_attempts.clear()
        elif record.kind is Kind.STEP:
            attempt = open_attempts.pop(body["step"], None)
            ended.add(body["step"])
            if attempt is not None:
                attempt.done = body["status"] == "done"
        elif record.kind is Kind.MEASUREMENT:
            if anew and any(
                change.seq > record.seq and change.node in participants(body["members"], body["labels"], servers)
                for change in anew
            ):
                history.superseded.add(record.seq)
                continue
            attempt = open_attempts.get(body["step"])
            if attempt is None:
                attempt = open_attempts[body["step"]] = _Attempt()
                attempts.setdefault(body["step"], []).append(attempt)
            attempt.records.append(record)
    for step, several in attempts.items():
        if len(several) > 1 and step in ended:
            history.superseded.update(_others(history, step, list(_joined(history, step, several))))


def _joined(history: History, step: str, several: Iterable[_Attempt]) -> Iterator[_Attempt]:
    """The attempts, joined with their repetitions for starved machines."""
    last: _Attempt | None = None
    for attempt in several:
        if last is None or not last.starved:
            last = attempt
            yield last
            continue
        gone = list(last.join(attempt))
        history.superseded.update(record.seq for record in gone if not _is_wrong(record))
        if count := sum(_has_samples(record) and record.seq < attempt.records[0].seq for record in gone):
            history.replaced.append(Replaced(f"step {step}", f"{counted(count, 'number')} of starved machines"))


def _is_wrong(record: Record) -> bool:
    """Whether it counts wrong content: that counts even if the step was repeated."""
    return record.body["metric"] in OF_CONTENT and any(sample > 0 for sample in record.body["samples"])


def _others(history: History, step: str, several: Sequence[_Attempt]) -> Iterator[int]:
    """Measurements of attempts that do not count."""
    best = max(range(len(several)), key=lambda index: (several[index].done, several[index].sampled, index))
    for index, attempt in enumerate(several):
        if index != best:
            yield from (record.seq for record in attempt.records if not _is_wrong(record))
            if attempt.sampled:
                history.replaced.append(Replaced(f"step {step}", counted(attempt.sampled, "number")))
