"""The latest run of a rack and an architecture, and what is left to do in it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError

from rackproof.architectures import LoadedArchitecture
from rackproof.cli.outputs import CERTIFICATE
from rackproof.core.evidence import RunInfo
from rackproof.core.rack import Rack
from rackproof.core.status import Outcome
from rackproof.errors import RunError
from rackproof.evidence.folder import check_resumable, find_resumable
from rackproof.read_file import read_text
from rackproof.report.certificate import Certificate, from_json


class Earlier(NamedTuple):
    """The latest run of a rack and an architecture that this kit may continue."""

    folder: Path
    certificate: Certificate | None
    """None: it has not ended, or its certificate cannot be read."""

    @property
    def next(self) -> Literal["nothing", "resume", "anew"]:
        """What to do with it: gaps are filled, a failure is measured anew, a certified run is left alone."""
        if self.certificate is None or self.certificate.outcome is Outcome.INCOMPLETE:
            return "resume"
        return "nothing" if self.certificate.outcome is Outcome.CERTIFIED else "anew"


def earlier_run(output: Path, rack: Rack, reference: LoadedArchitecture, profile: str) -> Earlier | None:
    """None where no run below ``output`` has this kit, inventory, architecture and profile."""

    def refuse(info: RunInfo) -> None:
        check_resumable(info, rack, reference, profile)

    try:
        folder, _ = find_resumable(output, "latest", refuse, rack.source)
    except RunError:
        return None
    try:
        certificate = from_json(read_text(folder / CERTIFICATE))
    except (OSError, ValueError, ValidationError):
        certificate = None
    if certificate is not None and certificate.architecture.sha256 != reference.sha256:
        certificate = None  # the run was judged against another file
    return Earlier(folder, certificate)
