"""``rackproof record``: record what nodes answer to the validators."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from rackproof import kit
from rackproof.cli.runs import chosen_validators, validators_option
from rackproof.core.rack import fold
from rackproof.errors import EXIT_INCOMPLETE, EXIT_OK
from rackproof.remote.collect import fetch
from rackproof.remote.drift import QUESTIONS
from rackproof.remote.recording import Recording
from rackproof.remote.recording_folder import write_recordings
from rackproof.validation.context import Context, open_context, selected
from rackproof.validation.known import load_checks
from rackproof.validation.run import validators_folder
from rackproof.validation.survey import survey

INVENTORIES = Path("inventories")
LAB = INVENTORIES / "lab.py"


@click.command()
@click.argument("nodeset")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder for recordings."
)
@click.option("--inventory", default=str(LAB), show_default=True, help="pyinfra inventory of the rack.")
@click.option("--architecture", help="Id or file.  [default: the inventory's own]")
@click.option("--deploy", metavar="FILE", help="Also record what a plan of this deploy reads: deploys/cluster.py.")
@validators_option
@click.option("--drift", is_flag=True, help="Also record kernel, BIOS, all packages and sysctl, for `diff --peers`.")
@click.pass_context
def record(
    ctx: click.Context,
    nodeset: str,
    output: Path,
    inventory: str,
    architecture: str | None,
    deploy: str | None,
    validators: Path | None,
    drift: bool,
) -> None:
    """Record what the nodes of NODESET (`all`, gpu-[01-16], as --limit elsewhere) answer to the validators.

    Records the commands of the architecture's checks and nothing else, over one connection a node; secrets are
    redacted. Writes one file a node, for `rackproof validate --from DIR`, `rackproof diff` and
    `pyinfra @recording/DIR`. Exit status: 0 every node is recorded completely, 2 a node did not answer everything, 3
    usage.
    """
    if deploy is not None:
        kit.deploy_file(deploy)
    checks = load_checks(validators_folder(chosen_validators(validators)))
    context = open_context(inventory, architecture, None)
    unplanned = None
    try:
        context.selection = selected(context.rack, (nodeset,), None, None)
        for _ in survey(context, checks):
            pass
        if drift:
            ask(context, QUESTIONS)
        if deploy is not None:
            from rackproof.run.plan_questions import ask_plan

            unplanned = ask_plan(context, deploy)
        written = write_recordings(output, recordings_of(context))
    finally:
        context.close()
    for line in report(context):
        click.echo(line)
    for line in context.reading():
        click.echo(line)
    click.echo(f"{len(written)} recordings in {output}")
    lost = [node for node, reason in losses(context).items() if reason]
    if lost:
        click.echo(f"not recorded completely: {fold(lost)}", err=True)
    if unplanned:
        click.echo(f"{deploy}: not recorded completely: {unplanned}", err=True)
    ctx.exit(EXIT_INCOMPLETE if lost or unplanned else EXIT_OK)


def ask(context: Context, questions: Sequence[str]) -> None:
    """Run the same commands on all selected nodes, in one round trip a node."""
    if context.fleet is None:
        return
    chosen = [node.name for node in context.rack.nodes if context.selection.has_node(node.name)]
    fetch(context.fleet, context.readers, {name: list(questions) for name in chosen})
    for name in chosen:
        for question in questions:
            context.readers[name].read(question)


def recordings_of(context: Context) -> list[Recording]:
    """Recordings of the selected nodes."""
    return [
        Recording(node, context.readers[node.name].used)
        for node in context.rack.nodes
        if context.selection.has_node(node.name)
    ]


def losses(context: Context) -> dict[str, str | None]:
    """By selected node the reason why its recording is incomplete; None when it is complete."""
    reasons = {}
    for recording in recordings_of(context):
        name = recording.node.name
        nothing = None if recording.results else "no check of the architecture reads anything from it"
        reasons[name] = context.readers[name].lost or nothing
    return reasons


def report(context: Context) -> list[str]:
    """A line for each node."""
    lines = []
    for name, reason in losses(context).items():
        reader = context.readers[name]
        unfinished = sum(result.rc is None for result in reader.used.values())
        parts = [
            f"{len(reader.used)} commands",
            *([f"{reader.misses} run one by one"] if reader.misses else []),
            *([f"{unfinished} unfinished"] if unfinished else []),
            *([reason] if reason else []),
        ]
        lines.append(f"{name}: {', '.join(parts)}")
    return lines
