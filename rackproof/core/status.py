"""The five verdicts, the outcomes of a certificate, and their exit statuses."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from rackproof.errors import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_OK


class Status(StrEnum):
    """Verdict on one check or criterion for one subject.

    INVALID: measured, but too noisy or failing a sanity gate. UNMEASURED: no usable number. Neither ever becomes PASS.
    """

    PASS = "PASS"  # noqa: S105  (a verdict, not a password)
    WARN = "WARN"
    FAIL = "FAIL"
    INVALID = "INVALID"
    UNMEASURED = "UNMEASURED"

    @property
    def rank(self) -> int:
        """0 is best; used to sort the worst to the top and to fold several verdicts into one."""
        return list(Status).index(self) if self is not Status.FAIL else len(Status)


class Outcome(StrEnum):
    """Result of a certificate."""

    CERTIFIED = "CERTIFIED"
    PASSED = "PASSED"
    """Of a part of a certificate, such as the checks alone: everything that was asked passed; nothing is certified."""
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
    """Fold the verdicts on everything required into one outcome.

    Any FAIL: NOT CERTIFIED. Any INVALID or UNMEASURED, or nothing required at all: INCOMPLETE (an empty list
    proves nothing). Otherwise CERTIFIED.
    """
    seen = set(required)
    if Status.FAIL in seen:
        return Outcome.NOT_CERTIFIED
    if not seen or seen & {Status.INVALID, Status.UNMEASURED}:
        return Outcome.INCOMPLETE
    return Outcome.CERTIFIED
