"""What a resumed run need not do again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rackproof.bench.step import Step
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import CheckOutcome, Kind, Record
from rackproof.core.history import EXCHANGED, VALIDATE, History, Pass, history_of, participants, servers_of
from rackproof.evidence.folder import info_of


@dataclass(frozen=True, slots=True)
class Finished:
    """Stages and benchmark steps whose results are whole and still count."""

    stages: frozenset[str] = frozenset()
    steps: frozenset[str] = frozenset()


def finished(records: Sequence[Record], architecture: Architecture, steps: Sequence[Step]) -> Finished:
    """What is finished of the planned ``steps`` and the stages before them.

    Open are a step with other parameters, one that lacks numbers or checks, and one of a node that began anew; also a
    validation that was narrowed, that left something unmeasured, or after which a node was lost, rebooted or changed.
    """
    nodes = info_of(records).nodes
    history = history_of(records, architecture, nodes)
    servers = servers_of(architecture, nodes)
    unmeasured = {
        record.body.get("item")
        for record in records
        if record.kind is Kind.CHECK
        and record.body["outcome"] == CheckOutcome.UNMEASURED.value
        and record.seq not in history.superseded
    }
    """Among them steps after which a node could not be asked what they did to it."""
    done = frozenset(
        step.id
        for step in steps
        if (recorded := history.steps.get(step.id)) is not None
        and recorded[1] == step.digest
        and step.id not in unmeasured
        and not any(
            history.changed_since(recorded[0], participants(place.members, place.labels, servers))
            for place in step.expects
        )
    )
    whole = {
        "deploy": _deployed(records, history),
        VALIDATE: bool(history.passes) and _is_complete(history.passes[-1], records) and not history.unvalidated(),
        "bench": all(step.id in done for step in steps),
    }
    return Finished(frozenset(name for name, is_whole in whole.items() if is_whole), done)


def _deployed(records: Sequence[Record], history: History) -> bool:
    """Whether the last deploy succeeded, on the machines that there are now."""
    exchanged = max((change.seq for change in history.changes if change.kind == EXCHANGED), default=-1)
    ends = [
        record
        for record in records
        if record.kind is Kind.STAGE and record.body["stage"] == "deploy" and record.body["event"] == "end"
    ]
    return bool(ends) and bool(ends[-1].body.get("ok", True)) and ends[-1].seq > exchanged


def _is_complete(last: Pass, records: Sequence[Record]) -> bool:
    """Whether the validation ended as a whole, with an answer to every check."""
    return last.whole and not any(
        record.kind is Kind.CHECK
        and last.begin < record.seq < (last.end or 0)
        and record.body["outcome"] == CheckOutcome.UNMEASURED.value
        for record in records
    )
