"""Stages and steps that a resumed run skips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rackproof.bench.step import Step
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import CheckOutcome, Kind, Record
from rackproof.core.history import EXCHANGED, VALIDATE, History, Pass, history_of, participants, servers_of
from rackproof.core.judging.again import invalid_steps, starved_steps
from rackproof.evidence.folder import info_of


@dataclass(frozen=True, slots=True)
class Finished:
    """Stages and benchmark steps with complete results that still count."""

    stages: frozenset[str] = frozenset()
    steps: frozenset[str] = frozenset()


def finished(records: Sequence[Record], architecture: Architecture, steps: Sequence[Step]) -> Finished:
    """Finished ``steps``, and finished stages before them.

    A step is repeated if its parameters changed, if it lacks numbers or checks, if a starved machine spoilt it, if its
    numbers are INVALID, or if one of its nodes was exchanged or configured. A validation is repeated if it was
    narrowed, left something unmeasured, or if a node was lost, rebooted or changed after it.
    """
    nodes = info_of(records).nodes
    history = history_of(records, architecture, nodes)
    servers = servers_of(architecture, nodes)
    unmeasured = {
        record.body["item"]
        for record in records
        if record.kind is Kind.CHECK
        and record.body["outcome"] == CheckOutcome.UNMEASURED.value
        and record.seq not in history.superseded
    }
    """Including steps with nodes that did not answer afterwards."""
    spoilt = invalid_steps(architecture, records) | starved_steps(architecture, records).keys()
    done = frozenset(
        step.id
        for step in steps
        if (recorded := history.steps.get(step.id)) is not None
        and recorded[1] == step.digest
        and step.id not in unmeasured
        and step.id not in spoilt
        and not any(
            history.changed_since(recorded[0], participants(place.members, place.labels, servers))
            for place in step.expects
        )
    )
    complete = {
        "deploy": _deployed(records, history),
        VALIDATE: bool(history.passes) and _is_complete(history.passes[-1], records) and not history.unvalidated(),
        "bench": all(step.id in done for step in steps),
    }
    return Finished(frozenset(name for name, is_complete in complete.items() if is_complete), done)


def _deployed(records: Sequence[Record], history: History) -> bool:
    """Whether the last deploy succeeded on the current machines."""
    exchanged = max((change.seq for change in history.changes if change.kind == EXCHANGED), default=-1)
    ends = [
        record
        for record in records
        if record.kind is Kind.STAGE and record.body["stage"] == "deploy" and record.body["event"] == "end"
    ]
    return bool(ends) and ends[-1].body["ok"] and ends[-1].seq > exchanged


def _is_complete(last: Pass, records: Sequence[Record]) -> bool:
    """Whether the validation is complete, with a result of every check."""
    return last.whole and not any(
        record.kind is Kind.CHECK
        and last.begin < record.seq < (last.end or 0)
        and record.body["outcome"] == CheckOutcome.UNMEASURED.value
        for record in records
    )
