"""``rackproof validate``: check the declared state on nodes or recordings, completely or in part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from rackproof.cli.local import local_run, tell
from rackproof.cli.options import (
    FiniteRange,
    architecture_option,
    limit_option,
    output_option,
    progress_option,
    quiet_option,
)
from rackproof.cli.runs import chosen_validators, executed, finish, prepare, take_over_option, validators_option
from rackproof.cli.terminal import say
from rackproof.core.course import REACHABLE
from rackproof.core.evidence import CheckResult, Kind, Record
from rackproof.core.rack import fold
from rackproof.report.certificate import Certificate
from rackproof.run.stages import Run
from rackproof.validation.context import Context, open_context, selected
from rackproof.validation.known import load_checks
from rackproof.validation.membership import as_judged, membership
from rackproof.validation.outcome import write_junit
from rackproof.validation.run import validators_folder
from rackproof.validation.selection import refuse_unknown
from rackproof.validation.survey import survey


@click.command()
@click.argument("inventory", required=False)
@click.option(
    "--from", "recordings", metavar="DIR", help="Validate recordings in DIR, or those of a run; connect to no node."
)
@architecture_option
@limit_option
@click.option("--tags", metavar="TAGS", help="Only checks with one of these tags: gpu,storage.")
@click.option("-k", "expression", metavar="EXPR", help="Only checks and nodes whose names match, as in pytest.")
@click.option(
    "--junit",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write JUnit XML, one case for each node and check.",
)
@output_option
@quiet_option
@progress_option
@validators_option
@take_over_option
@click.option("--local", is_flag=True, help="Check this machine, without ssh or an inventory.")
@click.option(
    "--rack",
    "rack_file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --local: rack file that lists this machine by its host name.  [/etc/rackproof/rack.yaml]",
)
@click.option("--role", help="With --local and --architecture: role of this machine, instead of --rack.")
@click.option("--brief", is_flag=True, help="With --local: print one line when a check fails, else nothing.")
@click.option(
    "--time-limit",
    metavar="SECONDS",
    type=FiniteRange(min=1),
    help="With --local: time limit for all checks together; checks that did not run are unmeasured.",
)
@click.option(
    "--unmeasured-ok",
    metavar="CHECKS",
    help="With --local: checks that may be unmeasured here: fabric.ssh,gpu.dcgm.",
)
def validate(
    inventory: str | None, recordings: str | None, architecture: str | None, limit: tuple[str, ...], tags: str | None,
    expression: str | None, junit: Path | None, output: Path, quiet: bool, as_json: bool, validators: Path | None,
    take_over: str | None, local: bool, rack_file: Path | None, role: str | None, brief: bool, time_limit: float | None,
    unmeasured_ok: str | None,
) -> None:  # fmt: skip
    """Check the declared state of every node of INVENTORY, of the recordings in DIR, or of this machine.

    With --limit, --tags or -k the result names the limits, counts only the selected checks, and no verdicts are
    written. Exit status: 0 all passed, 1 something failed, 2 something was not measured or nothing was selected, 3
    usage.
    """
    if local:
        if inventory or recordings or limit:
            raise click.UsageError("--local checks this machine: no INVENTORY, no --from, no --limit")
        local_run(rack_file, role, architecture, tags, expression, time_limit, unmeasured_ok, brief, junit, as_json)
    if rack_file or role or brief or time_limit or unmeasured_ok:
        raise click.UsageError("--rack, --role, --brief, --time-limit and --unmeasured-ok go with --local")
    if recordings is not None:
        context = open_context(inventory, architecture, recordings)
        context.selection = selected(context.rack, limit, tags, expression)
        _offline(context, recordings, chosen_validators(validators), junit, as_json)
    if inventory is None:
        raise click.UsageError("give an INVENTORY, or recordings with --from DIR")
    run = prepare(inventory, architecture, output, None, None, ("connect", "validate"))
    run.selection = selected(run.rack, limit, tags, expression)
    run.validators, run.take_over = chosen_validators(validators), take_over
    refuse_unknown(run.selection.tags, (check for check, _ in load_checks(validators_folder(validators)).values()))
    if run.selection.description:
        _part(run, junit, quiet, as_json)

    def keep(records: Sequence[Record], certificate: Certificate) -> None:
        _junit(run, as_judged(results_of(records), certificate.verdicts), junit)

    finish(run, quiet, as_json, only="check", on_judged=keep)


def _offline(context: Context, recordings: str, validators: Path | None, junit: Path | None, as_json: bool) -> None:
    checks = load_checks(validators_folder(validators))
    refuse_unknown(context.selection.tags, (check for check, _ in checks.values()))
    results = list(survey(context, checks))
    if not context.selection.description:
        results += membership(context.arch, context.rack)
    if junit is not None:
        write_junit(junit, results, context.rack.source, context.arch.metadata, context.selection.description)
    if not as_json:
        arch = context.arch.metadata
        say(f"{recordings} ({fold(node.name for node in context.rack.nodes)}) against {arch.id} {arch.version}")
    tell(results, context.selection.description, f"from recordings in {recordings}; no node was contacted", as_json)


def _part(run: Run, junit: Path | None, quiet: bool, as_json: bool) -> None:
    """Run and report only the selected checks; the evidence records the selection."""
    with executed(run, quiet, as_json) as records:
        results = results_of(records)
    _junit(run, results, junit)
    if all(result.check == REACHABLE for result in results):
        results = []
    tell(results, run.selection.description, f"evidence in {run.folder}", as_json)


def results_of(records: Sequence[Record]) -> list[CheckResult]:
    """Results of all checks in a run's evidence, in its order."""
    return [CheckResult.model_validate(record.body) for record in records if record.kind is Kind.CHECK]


def _junit(run: Run, results: Sequence[CheckResult], junit: Path | None) -> None:
    if junit is not None:
        metadata = run.architecture.model.metadata
        write_junit(junit, results, run.rack.source, metadata, run.selection.description, run.folder.name)
