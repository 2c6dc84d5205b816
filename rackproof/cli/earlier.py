"""The latest certification of a rack against an architecture, and what is left to do in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from rackproof.architectures import LoadedArchitecture
from rackproof.cli.outputs import CERTIFICATE, judged
from rackproof.core.architecture.smoke import SMOKE
from rackproof.core.evidence import EventKind, Kind, Record
from rackproof.core.rack import Rack
from rackproof.core.status import Outcome
from rackproof.errors import RunError
from rackproof.evidence.folder import ANEW, check_resumable, info_of, is_ahead, runs_of
from rackproof.evidence.store import EVIDENCE, Trusted, read_trusted
from rackproof.read_file import read_text
from rackproof.report.certificate import Certificate, from_json

_NEXT: Final[dict[Outcome, Literal["nothing", "resume"]]] = {
    Outcome.CERTIFIED: "nothing",
    Outcome.INCOMPLETE: "resume",
}
CERTIFYING: Final = frozenset({"validate", "bench"})
"""Stages of every run of ``certify``; ``validate`` and ``bench`` have one of them."""


class Earlier(NamedTuple):
    """The latest certification of a rack and an architecture, which decides what is left to do."""

    folder: Path
    certificate: Certificate | None
    """Judged again from the evidence. None: the run has not ended, or its certificate cannot be read."""
    next: Literal["nothing", "resume", "anew"] = "resume"
    """``resume`` an incomplete run, start ``anew`` after a failure or damage, do ``nothing`` after a certified run."""
    why: str = ""
    """Why the run can neither count nor be continued; one line."""


def earlier_run(
    output: Path, rack: Rack, reference: LoadedArchitecture, profile: str, validators: Path | None = None
) -> Earlier | None:
    """None where no certification below ``output`` has this inventory, architecture and profile.

    The latest decides even where it cannot be read or continued: what an earlier one proved may no longer hold.
    """
    for folder in runs_of(output, rack.source):
        try:
            trusted = read_trusted(folder)
        except RunError as error:
            return Earlier(folder, None, "anew", str(error))
        if not trusted.records and not trusted.broken:
            continue  # killed before it began
        damaged = f"{folder / EVIDENCE}: {trusted.broken}"
        try:
            info = info_of(trusted.records)
        except RunError:
            return Earlier(folder, None, "anew", damaged)
        if (info.architecture, info.profile) != (reference.model.metadata.id, profile):
            continue
        if trusted.broken:
            return Earlier(folder, None, "anew", damaged)
        if not certifies(trusted.records):
            continue
        if is_ahead(folder):
            why = f"{folder} began in the future: the clock of this machine is or was wrong; remove that folder"
            return Earlier(folder, None, "anew", why)
        try:
            check_resumable(info, rack, reference, profile)
        except RunError as error:
            return Earlier(folder, None, "anew", str(error).partition(f"; {ANEW}")[0])
        return _judged_again(folder, trusted, reference, validators)
    return None


def _judged_again(folder: Path, trusted: Trusted, reference: LoadedArchitecture, validators: Path | None) -> Earlier:
    try:
        made = from_json(read_text(folder / CERTIFICATE))
    except (OSError, ValueError):
        return Earlier(folder, None)
    if made.architecture.sha256 != reference.sha256:
        return Earlier(folder, None)  # the run was judged against another file
    certificate = judged(trusted.records, reference, cut_off=trusted.cut_off, folder=folder, validators=validators)
    if certificate.outcome is not made.outcome:
        return Earlier(folder, certificate, "anew", f"{folder / CERTIFICATE}: its evidence does not give its outcome")
    ended = trusted.records[-1].kind is Kind.END  # without a continuation after its end
    if certificate.outcome is Outcome.INCOMPLETE and made.profile == SMOKE and ended:
        return Earlier(folder, certificate, "anew", f"{folder} is a finished run of {SMOKE}, which never certifies")
    return Earlier(folder, certificate, _NEXT.get(certificate.outcome, "anew"))


def certifies(records: Sequence[Record]) -> bool:
    """Whether ``certify`` made or continued the run; no other command resumes runs.

    A killed run did not record its stages. Without a sign of another command it counts as an unfinished ``certify``.
    """
    events = {record.body["event"] for record in records if record.kind is Kind.EVENT}
    if EventKind.RESUMED in events:
        return True
    ends = [record for record in records if record.kind is Kind.END]
    if ends:
        return set(ends[-1].body["stages"]) >= CERTIFYING
    begun = {record.body["stage"] for record in records if record.kind is Kind.STAGE}
    return EventKind.NARROWED not in events and not ("bench" in begun and "validate" not in begun)
