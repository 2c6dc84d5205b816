"""Run validators with pytest in this process, with a session's connections and evidence."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rackproof import kit
from rackproof.core.evidence import CheckResult
from rackproof.core.planned_checks import PlannedChecks
from rackproof.errors import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_OK, RunError
from rackproof.evidence.session import Session
from rackproof.validation.context import Embedding, live_context
from rackproof.validation.selection import EVERYTHING, Selection

_QUIET = (
    "--import-mode=importlib",
    "--capture=no",
    *("-p", "no:terminal"),
    *("-p", "no:cacheprovider"),
    *("-p", "no:logging"),
    *("-p", "no:faulthandler"),
)


def validators_folder(own: Path | None = None) -> Path:
    """The kit's validators, or those in ``own``. Raises RunError where there are none."""
    if own is not None and not any(own.glob("test_*.py")):
        raise RunError(f"{own}: no validators there (test_*.py)")
    return own or kit.folder("validators")


def unused_validators() -> str | None:
    """One line where the working directory has validators that are not the kit's: they run when asked for."""
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
    results: list[CheckResult] = []

    def seen(result: CheckResult) -> None:
        results.append(result)
        on_check(result)

    run = Embedding(context, seen, on_planned)
    where = folder or validators_folder()
    status = pytest.main(
        # Ignore pytest configuration of the working directory: it belongs to other tests.
        [
            "-c",
            os.devnull,
            f"--rootdir={where}",
            *_QUIET,
            *(("-k", context.selection.expression) if context.selection.expression else ()),
            str(where),
        ],
        plugins=[run],
    )
    if run.fatal is not None:
        raise run.fatal
    if status not in (EXIT_OK, EXIT_FAILED, EXIT_INCOMPLETE):
        raise RunError(f"{where}: {run.problem or 'pytest could not run'}; see: pytest --collect-only {where}")
    return results
