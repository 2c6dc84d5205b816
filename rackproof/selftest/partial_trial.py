"""Trials of partial answers on healthy racks: one entry fewer, one value N/A, one word unknown.

Trials find the places that a check judges; see ``partial``. A check that still passes needs a reason in
``partial/accepted.yaml`` of the catalogue, and so does an unknown word with which all checks pass.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path as File

from pydantic import Field

from rackproof.core.evidence import CheckOutcome
from rackproof.remote.command import CommandResult
from rackproof.remote.document import Strict, as_model, load_yaml
from rackproof.selftest.damage import NO_GOOD_ANSWER, Damage
from rackproof.selftest.partial import Document, Edits, document_of, judged, sampled
from rackproof.selftest.trial import HealthyCase, Mishap, Subject
from rackproof.selftest.words import variants
from rackproof.validation.context import Context

ACCEPTED = File("partial") / "accepted.yaml"
"""Below the folder of the catalogue."""

FEWER = Damage("one-fewer", "One entry fewer", NO_GOOD_ANSWER, lambda result: result)
NOT_AVAILABLE = Damage("one-value-na", "One value is N/A", NO_GOOD_ANSWER, lambda result: result)
UNKNOWN_WORD = Damage("unknown-word", "One word that no parser knows", NO_GOOD_ANSWER, lambda result: result)


class Accepted(Strict):
    """Partial answers with which checks pass rightly."""

    checks: tuple[str, ...] = ()
    """Checks that pass. Empty for an unknown word: any check that reads the answer may notice it."""
    command: str = Field(min_length=1)
    """Part of the command."""
    place: str
    """Regular expression for a part of the label: the line (for an unknown word: up to the word), or the path of keys
    or tags with the value."""
    damage: str = "one-fewer"
    reason: str = Field(min_length=20)

    def covers(self, check: str, command: str, label: str, damage: Damage) -> bool:
        return (
            check in (self.checks or (check,))
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
    """Results of the trials."""

    judged: int = 0
    """Values that checks judge."""
    words: int = 0
    """Words that were made unknown."""
    tried: int = 0
    """Partial answers given to checks."""
    mishaps: list[Mishap] = field(default_factory=list)
    used: set[Accepted] = field(default_factory=set)
    """Reasons that covered a check."""

    def accept(self, accepted: tuple[Accepted, ...], check: str, command: str, label: str, damage: Damage) -> bool:
        """Whether a reason covers a check that passes; marks all reasons that cover it as used."""
        reasons = [reason for reason in accepted if reason.covers(check, command, label, damage)]
        self.used |= {*reasons}
        return bool(reasons)


def try_partials(subject: Subject, accepted: tuple[Accepted, ...]) -> Partials:
    """Leave out every judged value and its entries, one at a time, and make it N/A.

    Each check is tried on the first node that runs it.
    """
    partials = Partials()
    for node, command, readers in subject.answers_read():
        answer = subject.answers(node).read(command)
        if _is_text(answer):
            _try_answer(subject, node, answer, document_of(answer.text), readers, accepted, partials)
    return partials


def _try_answer(
    subject: Subject,
    node: str,
    answer: CommandResult,
    document: Document,
    readers: list[HealthyCase],
    accepted: tuple[Accepted, ...],
    partials: Partials,
) -> None:
    contexts: dict[tuple[tuple[object, str | None], ...], Context] = {}

    def context(edits: Edits) -> Context:
        key = tuple(edits.items())
        if key not in contexts:
            contexts[key] = subject.answering(node, replace(answer, stdout=document.rendered(edits).encode()))
        return contexts[key]

    def outcome(edits: Edits, check: int) -> CheckOutcome:
        return context(edits).outcome(readers[check].function, readers[check].case)

    for check, places in enumerate(judged(sampled(document), outcome, len(readers))):
        tried: set[object] = set()
        for place in places:
            partials.judged += 1
            edits: list[tuple[Damage, Edits]] = [(NOT_AVAILABLE, {place.path: "N/A"})]
            edits += [(FEWER, {entry: None}) for entry in place.entries]
            for damage, edit in edits:
                if (key := tuple(edit)) in tried and damage is FEWER:
                    continue
                tried.add(key)
                partials.tried += 1
                if outcome(edit, check) is not CheckOutcome.PASSED:
                    continue
                case = readers[check].case
                if not partials.accept(accepted, case.check.id, answer.command, place.label, damage):
                    actual = context(edit).evaluate(readers[check].function, case)
                    partials.mishaps.append(Mishap(damage, subject.name, answer.command, actual, place.label))


def try_words(subject: Subject, accepted: tuple[Accepted, ...], only: str | None = None) -> Partials:
    """Make every word of every answer unknown, one at a time: some check that reads the answer must not pass.

    ``only``: only answers that this check reads.
    """
    partials = Partials()
    for node, command, readers in subject.answers_read():
        answer = subject.answers(node).read(command)
        if only not in (None, *(healthy.case.check.id for healthy in readers)) or not _is_text(answer):
            continue
        for label, text in variants(answer.text):
            partials.words += 1
            context = subject.answering(node, replace(answer, stdout=text.encode()))
            if _noticed(context, readers):
                continue
            first = readers[0]
            if not partials.accept(accepted, first.case.check.id, command, label, UNKNOWN_WORD):
                actual = context.evaluate(first.function, first.case)
                partials.mishaps.append(Mishap(UNKNOWN_WORD, subject.name, command, actual, label))
    partials.tried = partials.words
    return partials


def _noticed(context: Context, readers: list[HealthyCase]) -> bool:
    """Whether a check does not pass; the next word is shown to that check first."""
    for index, healthy in enumerate(readers):
        if context.outcome(healthy.function, healthy.case) is not CheckOutcome.PASSED:
            readers.insert(0, readers.pop(index))
            return True
    return False


def _is_text(answer: CommandResult) -> bool:
    return answer.stdout.decode(errors="replace").encode() == answer.stdout
