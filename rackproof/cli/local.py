"""``rackproof validate --local``: check this machine, e.g. as a scheduler's health check."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import NoReturn

import click

from rackproof.cli.terminal import print_document, say
from rackproof.core.evidence import CheckResult
from rackproof.core.nearest import suggestion
from rackproof.errors import RunError
from rackproof.validation import terminal
from rackproof.validation.context import selected
from rackproof.validation.known import load_checks
from rackproof.validation.local import brief as brief_line
from rackproof.validation.local import excused, local_context, only
from rackproof.validation.outcome import exit_status, write_junit
from rackproof.validation.run import validators_folder
from rackproof.validation.selection import refuse_unknown
from rackproof.validation.survey import survey


def local_run(
    rack_file: Path | None, role: str | None, architecture: str | None, tags: str | None, expression: str | None,
    time_limit: float | None, unmeasured_ok: str | None, brief: bool, junit: Path | None, as_json: bool,
) -> NoReturn:  # fmt: skip
    """Run the checks, print the result and exit with its status. Raises RackproofError."""
    context, node = local_context(rack_file, role, architecture, time_limit)
    selection = only(node, selected(context.rack, (), tags, expression))
    context.selection = selection
    checks = load_checks(validators_folder())
    refuse_unknown(selection.tags, (check for check, _ in checks.values()))
    declared = frozenset(name.strip() for name in (unmeasured_ok or "").split(",") if name.strip())
    for name in declared:
        if name not in checks:
            raise RunError(f"--unmeasured-ok: no check '{name}'; {suggestion(name, sorted(checks))}")
    results = excused(list(survey(context, checks)), declared)
    if junit is not None:
        write_junit(junit, results, context.rack.source, context.arch.metadata, selection.description)
    if brief:
        if line := brief_line(results):
            say(line)
        raise click.exceptions.Exit(exit_status(results))
    if not as_json:
        arch = context.arch.metadata
        say(f"{node.name} ({', '.join(node.groups)}) against {arch.id} {arch.version}")
    tell(results, selection.description, "this machine; no evidence was stored", as_json)


def tell(results: list[CheckResult], limited: str, source: str, as_json: bool) -> NoReturn:
    """Print the result and exit with its status."""
    status = exit_status(results)
    if as_json:
        counts = Counter(result.outcome.value for result in results)
        answer = {"exit_status": status, "counts": counts, "limited": limited or None, "source": source}
        print_document(json.dumps(answer))
    else:
        for line, style in terminal.summary(results, limited):
            say(line, fg=next((c for c in ("red", "yellow") if style.get(c)), None), bold=style.get("bold"))
        say(source)
    raise click.exceptions.Exit(status)
