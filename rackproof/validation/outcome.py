"""Exit status and JUnit file of a validation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rackproof.atomic_write import write_output
from rackproof.core.architecture.base import Metadata
from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.errors import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_OK, RunError
from rackproof.validation.junit import render_checks


def exit_status(results: Sequence[CheckResult]) -> int:
    """0 all passed, 1 something failed, 2 something was not measured or nothing was checked; required checks only."""
    outcomes = {result.outcome for result in results if result.required}
    if CheckOutcome.FAILED in outcomes:
        return EXIT_FAILED
    return EXIT_OK if outcomes == {CheckOutcome.PASSED} else EXIT_INCOMPLETE


def write_junit(
    path: Path, results: Sequence[CheckResult], rack: str, architecture: Metadata, limited: str, run: str | None = None
) -> None:
    """Write results with the rack, architecture and limit as properties. Raises RunError."""
    properties = {"rack": rack, "architecture": f"{architecture.id} {architecture.version}"}
    if run:
        properties["run"] = run
    if limited:
        properties["limited"] = limited
    write_output(path, render_checks(results, properties), RunError)
