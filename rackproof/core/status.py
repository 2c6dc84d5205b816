"""The five verdicts, the outcomes of a certificate, and their exit statuses."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from rackproof.errors import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_OK


class Status(StrEnum):
    """Verdict on one check or criterion for one subject.

    INVALID: measured, but too noisy or failing a sanity gate. UNMEASURED: no usable number. Neither becomes PASS.
    """

    PASS = "PASS"  # noqa: S105  (a verdict, not a password)
    WARN = "WARN"
    FAIL = "FAIL"
    INVALID = "INVALID"
    UNMEASURED = "UNMEASURED"

    @property
    def rank(self) -> int:
        """0 is best; sorts verdicts, and selects the worst of several."""
        return list(Status).index(self) if self is not Status.FAIL else len(Status)


class Outcome(StrEnum):
    """Result of a certificate."""

    CERTIFIED = "CERTIFIED"
    PASSED = "PASSED"
    """Everything passed in a run of one stage, e.g. checks alone; nothing is certified."""
    NOT_CERTIFIED = "NOT CERTIFIED"
    INCOMPLETE = "INCOMPLETE"

    @property
    def exit_status(self) -> int:
        return {
            Outcome.CERTIFIED: EXIT_OK,
            Outcome.PASSED: EXIT_OK,
            Outcome.NOT_CERTIFIED: EXIT_FAILED,
            Outcome.INCOMPLETE: EXIT_INCOMPLETE,
        }[self]


def outcome_of(required: Iterable[Status]) -> Outcome:
    """Outcome of the required verdicts.

    Any FAIL: NOT CERTIFIED. Any INVALID or UNMEASURED, or no required verdict: INCOMPLETE. Otherwise CERTIFIED.
    """
    statuses = set(required)
    if Status.FAIL in statuses:
        return Outcome.NOT_CERTIFIED
    if not statuses or statuses & {Status.INVALID, Status.UNMEASURED}:
        return Outcome.INCOMPLETE
    return Outcome.CERTIFIED
