"""Run validators with a session's connections and evidence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rackproof import kit
from rackproof.core.evidence import CheckResult
from rackproof.core.planned_checks import PlannedChecks
from rackproof.errors import RunError
from rackproof.evidence.session import Session
from rackproof.validation.context import live_context
from rackproof.validation.known import load_checks
from rackproof.validation.selection import EVERYTHING, Selection
from rackproof.validation.survey import survey


def validators_folder(own: Path | None = None) -> Path:
    """The kit's validators, or those in ``own``. Raises RunError where there are none."""
    if own is not None and not any(own.glob("test_*.py")):
        raise RunError(f"{own}: no validators there (test_*.py)")
    return own or kit.folder("validators")


def unused_validators() -> str | None:
    """One line if the working directory has validators of its own: they run only with ``--validators``."""
    own = Path.cwd() / "validators"
    if not any(own.glob("test_*.py")) or own.resolve() == kit.folder("validators").resolve():
        return None
    return f"validators/ is not used: the kit's own run; `--validators {kit.shown(own)}` runs these instead"


def run_validators(
    session: Session,
    on_check: Callable[[CheckResult], object] = lambda result: None,
    on_planned: Callable[[PlannedChecks], object] = lambda planned: None,
    *,
    selection: Selection = EVERYTHING,
    folder: Path | None = None,
) -> list[CheckResult]:
    """Run the validators on a session's nodes; every command that a check read is recorded as evidence first.

    Results are in the order of the inventory; each is passed to ``on_check``. Raises RunError when a validator cannot
    be loaded, EvidenceWriteError, KeyboardInterrupt, and any error of ``on_check``.
    """
    context = live_context(session.rack, session.architecture, session.fleet, session.record)
    context.selection = selection
    results = []
    for result in survey(context, load_checks(folder or validators_folder()), on_planned):
        results.append(result)
        on_check(result)
    return results
