"""History of a run: what its records say happened to it, and which of its results still count. Pure.

A run may have several parts, since it can be resumed. The rules:

* A result of a node that was exchanged or configured since does not count; neither does a number in which it took part.
* A validate stage that ended as a whole replaces everything that was validated before; one that was interrupted or
  narrowed replaces nothing, it can only add.
* Of several attempts at a benchmark step one counts: the most complete one, and of equally complete ones the latest.
* A node that was exchanged, configured, rebooted or lost must be validated again afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import End, Event, EventKind, Kind, NodeIdentity, NodeInfo, Record
from rackproof.core.load import PREFIX

VALIDATE: Final = "validate"
REACHABLE: Final = "node.reachable"

EXCHANGED: Final = "exchanged"
CONFIGURED: Final = "configured"
REBOOTED: Final = "rebooted"
LOST: Final = "lost"

ANEW: Final = frozenset({EXCHANGED, CONFIGURED})
"""Changes after which earlier numbers of the node do not count."""


class Change(NamedTuple):
    """What happened to a node during the run."""

    seq: int
    time: str
    node: str
    kind: str
    text: str
    """``boot id 1c… → 7f…``."""


class Pass(NamedTuple):
    """One time through the validate stage, from the record ``begin`` to ``end``."""

    begin: int
    end: int | None
    whole: bool
    """It ended, and nothing narrowed it."""


class Replaced(NamedTuple):
    """A result that a later one replaced."""

    what: str
    """``base.kernel on gpu-01``."""
    was: str


@dataclass
class _Attempt:
    """Measurements of one execution of a step."""

    done: bool = False
    sampled: int = 0
    """Measurements with numbers."""
    seqs: list[int] = field(default_factory=list)


@dataclass
class History:
    """Facts about a run and its nodes, in the order of the records."""

    identities: dict[str, tuple[int, NodeIdentity]] = field(default_factory=dict)
    """The latest of each node, with the record's number."""
    begun: list[str] = field(default_factory=list)
    """Stages that began, in their order."""
    changes: list[Change] = field(default_factory=list)
    back: dict[str, int] = field(default_factory=dict)
    """Lost nodes that answered again, with the record that says so."""
    passes: list[Pass] = field(default_factory=list)
    narrowed: str | None = None
    """What the last part was limited to."""
    parts: list[int] = field(default_factory=list)
    """First record of every part."""
    unended: list[str] = field(default_factory=list)
    """Times at which the run was resumed although the part before has no end."""
    end: End | None = None
    """The last record, where it is an end."""
    superseded: set[int] = field(default_factory=set)
    """Records of checks, measurements and plans of checks that do not count any longer."""
    replaced: list[Replaced] = field(default_factory=list)
    unreachable: set[str] = field(default_factory=set)
    """Nodes that did not answer when the last part began."""
    steps: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Steps that are done: number of the record, and digest of the parameters."""

    def changed_since(self, seq: int, nodes: Iterable[str], kinds: frozenset[str] = ANEW) -> Change | None:
        """The first change of one of these kinds to one of the nodes after the record ``seq``."""
        among = frozenset(nodes)
        return next((c for c in self.changes if c.seq > seq and c.kind in kinds and c.node in among), None)

    def validated_since(self, seq: int) -> bool:
        """Whether a whole validation began after the record ``seq``."""
        return any(one.whole and one.begin > seq for one in self.passes)

    def unvalidated(self) -> list[Change]:
        """Changes that no whole validation followed."""
        return [c for c in self.changes if not self.validated_since(max(c.seq, self.back.get(c.node, 0)))]

    def lost_now(self) -> set[str]:
        """Nodes that were lost and have not answered since."""
        return {c.node for c in self.changes if c.kind == LOST and self.back.get(c.node, -1) < c.seq}


def history_of(records: Sequence[Record], architecture: Architecture, nodes: Sequence[NodeInfo]) -> History:
    """Read the records of a run, whose bodies are valid for their kinds."""
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
                history.passes.append(Pass(begin, record.seq, bool(record.body.get("ok", True)) and not narrowed))
                begin = None
            case Kind.CHECK if record.body["check"] == REACHABLE:
                answered = record.body["outcome"] == "passed"
                (history.unreachable.discard if answered else history.unreachable.add)(record.body["node"])
            case Kind.STEP if record.body["status"] == "done":
                history.steps[record.body["step"]] = (record.seq, record.body.get("digest", ""))
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
    """Nodes that serve each storage: they take part in every number of it."""
    return {
        name: frozenset(node.name for node in nodes if storage.server_role in node.groups)
        for name, storage in architecture.storage.items()
    }


def participants(
    members: Iterable[str], labels: Mapping[str, str], servers: Mapping[str, frozenset[str]]
) -> frozenset[str]:
    """Nodes that took part in a measurement."""
    return frozenset(member.partition("/")[0] for member in members) | servers.get(
        labels.get("storage", ""), frozenset()
    )


def _event(history: History, event: Event, record: Record, narrowed: bool, before: Kind) -> bool:
    """Note an event; return whether the part is narrowed."""
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


def _identity(history: History, now: NodeIdentity, record: Record, deploys: Sequence[Record]) -> None:
    seq, before = history.identities.get(now.node, (-1, None))
    history.identities[now.node] = (record.seq, now)
    if before is None:
        return
    if differences := list(now.differences(before)):
        history.changes.append(Change(record.seq, record.time, now.node, EXCHANGED, ", ".join(differences)))
    elif before.boot_id and now.boot_id and before.boot_id != now.boot_id:
        text = f"boot id {before.boot_id[:8]} → {now.boot_id[:8]}"
        since = [n for d in deploys for n in d.body["nodes"] if n["node"] == now.node and d.seq > seq]
        pending = [n for d in deploys for n in d.body["nodes"] if n["node"] == now.node and not d.body.get("dry")]
        if any(n.get("rebooted") for n in since) or (pending and pending[-1].get("reboot")):
            history.changes.append(Change(record.seq, record.time, now.node, CONFIGURED, "rebooted for its settings"))
        else:
            history.changes.append(Change(record.seq, record.time, now.node, REBOOTED, text))


def _deploy(history: History, record: Record) -> None:
    if record.body.get("dry"):
        return
    for node in record.body["nodes"]:
        if count := len(node.get("changed", ())) + len(node.get("failed", ())):
            text = f"{count} changes by the deploy"
            history.changes.append(Change(record.seq, record.time, node["node"], CONFIGURED, text))


def _check_results(history: History, records: Iterable[Record]) -> None:
    """Which results of checks do not count, and which failed ones were replaced."""
    last_whole = max((one.begin for one in history.passes if one.whole), default=-1)
    stage, number = "", 0
    counting: dict[tuple[str, str, str], tuple[int, list[Record]]] = {}
    gone: list[Record] = []
    for record in records:
        if record.kind is Kind.STAGE:
            number += record.body["event"] == "begin"
            stage = str(record.body["stage"]) if record.body["event"] == "begin" else ""
            continue
        if record.kind is Kind.PLANNED and record.seq < last_whole:
            history.superseded.add(record.seq)  # the later validation has a plan of its own
        if record.kind is not Kind.CHECK:
            continue
        body = record.body
        validated = stage == VALIDATE
        if record.seq < last_whole if validated else _is_void(history, record.seq, body["node"]):
            gone.append(record)
            continue
        key = (body["check"], body.get("item", ""), body["node"])
        earlier = counting.get(key)
        if earlier is None or (earlier[0] != number and not validated):
            # What a step did to a node stays, even if the step was repeated.
            kept = [one for one in earlier[1] if _is_damage(one)] if earlier else []
            gone += [one for one in earlier[1] if one not in kept] if earlier else []
            counting[key] = (number, [*kept, record])
        else:
            earlier[1].append(record)
    history.superseded.update(record.seq for record in gone)
    for record in gone:
        if record.body["outcome"] == "failed":
            item = f"[{record.body['item']}]" if record.body.get("item") else ""
            what = f"{record.body['check']}{item} on {record.body['node']}"
            history.replaced.append(Replaced(what, str(record.body.get("message", ""))))


def _is_damage(record: Record) -> bool:
    return str(record.body["check"]).startswith(PREFIX) and record.body["outcome"] == "failed"


def _is_void(history: History, seq: int, node: str) -> bool:
    """Whether the node was exchanged after the record."""
    return history.changed_since(seq, (node,), frozenset({EXCHANGED})) is not None


def _numbers(history: History, records: Iterable[Record], servers: Mapping[str, frozenset[str]]) -> None:
    """Which measurements do not count: of nodes that began anew, and of less complete attempts at a step."""
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
                change.seq > record.seq
                and change.node in participants(body["members"], body.get("labels", {}), servers)
                for change in anew
            ):
                history.superseded.add(record.seq)
                continue
            attempt = open_attempts.get(body["step"])
            if attempt is None:
                attempt = open_attempts[body["step"]] = _Attempt()
                attempts.setdefault(body["step"], []).append(attempt)
            attempt.seqs.append(record.seq)
            attempt.sampled += bool(body.get("samples"))
    for step, several in attempts.items():
        if len(several) > 1 and step in ended:
            history.superseded.update(_others(history, step, several))


def _others(history: History, step: str, several: Sequence[_Attempt]) -> Iterator[int]:
    """Measurements of the attempts that do not count."""
    best = max(range(len(several)), key=lambda index: (several[index].done, several[index].sampled, index))
    for index, attempt in enumerate(several):
        if index != best:
            yield from attempt.seqs
            if attempt.sampled:
                history.replaced.append(Replaced(f"step {step}", f"{attempt.sampled} numbers"))
