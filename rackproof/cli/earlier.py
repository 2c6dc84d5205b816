"""The latest certification of a rack against an architecture, and what is left to do in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from rackproof.architectures import LoadedArchitecture
from rackproof.cli.outputs import CERTIFICATE, judged
from rackproof.core.evidence import EventKind, Kind, Record
from rackproof.core.rack import Rack
from rackproof.core.status import Outcome
from rackproof.errors import RunError
from rackproof.evidence.folder import check_resumable, find_resumable, info_of
from rackproof.evidence.store import read_trusted
from rackproof.read_file import read_text
from rackproof.report.certificate import Certificate, from_json

CERTIFYING: Final = frozenset({"validate", "bench"})
"""Stages of every run of ``certify``; ``validate`` and ``bench`` have one of them."""


class Earlier(NamedTuple):
    """The latest certification of a rack and an architecture that this kit may continue."""

    folder: Path
    certificate: Certificate | None
    """Judged again from the evidence. None: the run has not ended, or its certificate cannot be read."""
    changed: bool = False
    """The evidence no longer gives the outcome of the run's certificate."""

    @property
    def next(self) -> Literal["nothing", "resume", "anew"]:
        """What to do with it: gaps are filled, a failure is measured anew, a certified run is left alone."""
        if self.certificate is None:
            return "resume"
        if self.changed:
            return "anew"
        if self.certificate.outcome is Outcome.INCOMPLETE:
            return "resume"
        return "nothing" if self.certificate.outcome is Outcome.CERTIFIED else "anew"


def earlier_run(
    output: Path, rack: Rack, reference: LoadedArchitecture, profile: str, validators: Path | None = None
) -> Earlier | None:
    """None where no certification below ``output`` has this kit, inventory, architecture and profile."""

    def refuse(records: Sequence[Record]) -> None:
        check_resumable(info_of(records), rack, reference, profile)
        if not certifies(records):
            raise RunError(f"{info_of(records).run}: it validates or measures alone")

    try:
        folder, _ = find_resumable(output, "latest", refuse, rack.source)
    except RunError:
        return None
    try:
        made = from_json(read_text(folder / CERTIFICATE))
    except (OSError, ValueError):
        return Earlier(folder, None)
    if made.architecture.sha256 != reference.sha256:
        return Earlier(folder, None)  # the run was judged against another file
    trusted = read_trusted(folder)
    certificate = judged(
        trusted.records, reference, broken=trusted.broken, cut_off=trusted.cut_off, folder=folder,
        validators=validators,
    )  # fmt: skip
    return Earlier(folder, certificate, certificate.outcome is not made.outcome)


def certifies(records: Sequence[Record]) -> bool:
    """Whether ``certify`` made the run, or went on with it; only that resumes a run.

    A killed run did not record its stages. Without a sign of another command it counts as unfinished.
    """
    events = {record.body["event"] for record in records if record.kind is Kind.EVENT}
    if EventKind.RESUMED in events:
        return True
    ends = [record for record in records if record.kind is Kind.END]
    if ends:
        return set(ends[-1].body["stages"]) >= CERTIFYING
    begun = {record.body["stage"] for record in records if record.kind is Kind.STAGE}
    return EventKind.NARROWED not in events and not ("bench" in begun and "validate" not in begun)
