"""Trials of partial answers on healthy racks: one entry fewer, one value N/A.

Which places a check judges is found by trying; see ``partial``. A check that still passes needs a reason in
``partial/accepted.yaml`` of the catalogue.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path as File

from pydantic import Field

from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.remote.command import CommandResult
from rackproof.remote.document import Strict, as_model, load_yaml
from rackproof.selftest.damage import NO_GOOD_ANSWER, Damage
from rackproof.selftest.partial import Document, Edits, document_of, judged, sampled
from rackproof.selftest.trial import Mishap, Seen, Subject, instead

ACCEPTED = File("partial") / "accepted.yaml"
"""Below the folder of the catalogue."""

FEWER = Damage("one-fewer", "One entry fewer", NO_GOOD_ANSWER, lambda result: result)
NOT_AVAILABLE = Damage("one-value-na", "One value is N/A", NO_GOOD_ANSWER, lambda result: result)


class Accepted(Strict):
    """Partial answers with which checks pass rightly."""

    checks: tuple[str, ...] = Field(min_length=1)
    command: str = Field(min_length=1)
    """Part of the command."""
    place: str
    """Regular expression: part of the line, or of the path of keys or tags and the value."""
    damage: str = "one-fewer"
    reason: str = Field(min_length=20)

    def covers(self, check: str, command: str, label: str, damage: Damage) -> bool:
        return (
            check in self.checks
            and damage.name == self.damage
            and self.command in command
            and re.search(self.place, label) is not None
        )


class AcceptedFile(Strict):
    accepted: tuple[Accepted, ...]


def read_accepted(catalogue: File) -> tuple[Accepted, ...]:
    """The accepted partial answers of a catalogue; empty without a file. Raises SelfTestError."""
    path = catalogue / ACCEPTED
    return as_model(AcceptedFile, load_yaml(path), str(path)).accepted if path.is_file() else ()


@dataclass
class Partials:
    """What the trials found."""

    judged: int = 0
    """Values that checks judge."""
    tried: int = 0
    """Partial answers given to checks."""
    mishaps: list[Mishap] = field(default_factory=list)
    used: set[Accepted] = field(default_factory=set)
    """Reasons that applied."""


def try_partials(subject: Subject, accepted: tuple[Accepted, ...]) -> Partials:
    """Leave out every judged value and its entries, one at a time, and make it N/A.

    Each check is tried on the first node that runs it.
    """
    partials = Partials()
    for node, command, readers in subject.answers_read():
        answer = subject.answers(node).read(command)
        try:
            document = document_of(answer.stdout.decode())
        except UnicodeDecodeError:
            continue
        _try_answer(subject, node, answer, document, readers, accepted, partials)
    return partials


def _try_answer(
    subject: Subject,
    node: str,
    answer: CommandResult,
    document: Document,
    readers: list[Seen],
    accepted: tuple[Accepted, ...],
    partials: Partials,
) -> None:
    places = sampled(document)
    rendered: dict[tuple[tuple[object, str | None], ...], CommandResult] = {}

    def damaged(edits: Edits) -> CommandResult:
        key = tuple(edits.items())
        if key not in rendered:
            rendered[key] = replace(answer, stdout=document.rendered(edits).encode())
        return rendered[key]

    for seen in readers:

        def result(edits: Edits, seen: Seen = seen) -> CheckResult:
            return subject.altered(node, instead(damaged(edits))).evaluate(seen.function, seen.case)

        def outcome(edits: Edits, result: Callable[[Edits], CheckResult] = result) -> CheckOutcome:
            return result(edits).outcome

        tried: set[object] = set()
        for place in judged(places, outcome):
            partials.judged += 1
            edits: list[tuple[Damage, Edits]] = [(NOT_AVAILABLE, {place.path: "N/A"})]
            edits += [(FEWER, {entry: None}) for entry in place.entries]
            for damage, edit in edits:
                if (key := tuple(edit)) in tried and damage is FEWER:
                    continue
                tried.add(key)
                partials.tried += 1
                actual = result(edit)
                if actual.outcome is not CheckOutcome.PASSED:
                    continue
                reasons = [a for a in accepted if a.covers(actual.check, answer.command, place.label, damage)]
                partials.used |= {*reasons}
                if not reasons:
                    partials.mishaps.append(Mishap(damage, subject.name, answer.command, actual, place.label))
