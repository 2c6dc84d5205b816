"""One page of several certificates: which published systems hold in scaled form, claim by claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rackproof.core.status import Outcome, Status
from rackproof.report.claims import measured_here
from rackproof.report.environment import environment
from rackproof.report.schema import Certificate


class Row(NamedTuple):
    """One architecture of the overview."""

    architecture: str
    certificate: Certificate | None
    """None: it was not run, or its run has not ended."""
    page: str
    """Address of its page, relative to the overview."""
    why: str = ""
    """Why there is no certificate, or why it does not count; one line."""

    @property
    def outcome(self) -> Outcome:
        return self.certificate.outcome if self.certificate else Outcome.INCOMPLETE

    @property
    def result(self) -> str:
        """The certificate's outcome, and what its architecture weakens; else why there is none."""
        return self.certificate.result if self.certificate else self.why or "not run to its end"

    @property
    def counts(self) -> str:
        """``8 PASS, 1 FAIL, 3 not judged``."""
        claims = self.certificate.claims if self.certificate else ()
        by_status = Counter(claim.status for claim in claims)
        words = [f"{by_status[status]} {status}" for status in Status if by_status[status]]
        return ", ".join([*words, *([f"{by_status[None]} not judged"] if by_status[None] else [])]) or "no claims"


def outcome_of_all(rows: Sequence[Row]) -> Outcome:
    """CERTIFIED if all are; NOT CERTIFIED if one failed; otherwise INCOMPLETE."""
    outcomes = {row.outcome for row in rows}
    if Outcome.NOT_CERTIFIED in outcomes:
        return Outcome.NOT_CERTIFIED
    return Outcome.CERTIFIED if outcomes == {Outcome.CERTIFIED} else Outcome.INCOMPLETE


def render_overview(rows: Sequence[Row]) -> str:
    """One self-contained page that links to every certificate."""
    return (
        environment()
        .get_template("overview.html.j2")
        .render(rows=rows, outcome=outcome_of_all(rows), measured_here=measured_here)
    )
