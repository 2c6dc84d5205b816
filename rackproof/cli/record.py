"""``rackproof record``: record what nodes answer to the validators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from rackproof import kit
from rackproof.cli.options import FOLDER, architecture_option
from rackproof.cli.runs import chosen_validators, validators_option
from rackproof.cli.terminal import say
from rackproof.core.rack import Rack, fold
from rackproof.core.wording import counted
from rackproof.errors import EXIT_INCOMPLETE, EXIT_OK
from rackproof.remote.collect import fetch
from rackproof.remote.drift import QUESTIONS
from rackproof.remote.recording import Recording
from rackproof.remote.recording_folder import write_recordings
from rackproof.remote.redaction import count
from rackproof.validation.context import Context, open_context, selected
from rackproof.validation.known import load_checks
from rackproof.validation.run import validators_folder
from rackproof.validation.survey import survey

INVENTORIES = Path("inventories")
LAB = INVENTORIES / "lab.py"


@click.command()
@click.argument("nodeset")
@click.option("-o", "--output", type=FOLDER, required=True, help="Folder for recordings.")
@click.option("--inventory", default=str(LAB), show_default=True, help="pyinfra inventory of the rack.")
@architecture_option
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

    Records the commands of the architecture's checks over one connection per node; secrets are redacted. Writes one
    file per node, for `rackproof validate --from DIR`, `rackproof diff` and `pyinfra @recording/DIR`. Exit status: 0
    all nodes are recorded completely, 2 a node did not answer all commands, 3 usage.
    """
    if deploy is not None:
        kit.deploy_file(deploy)
    checks = load_checks(validators_folder(chosen_validators(validators)))
    context = open_context(inventory, architecture, None)
    if architecture:
        context.rack = naming(context.rack, architecture)
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
        recordings = recordings_of(context)
        written = write_recordings(output, recordings)
    finally:
        context.close()
    for line in report(context):
        say(line)
    for line in context.reading():
        say(line)
    results = [result for recording in recordings for result in recording.results.values()]
    hidden = sum(count(stream) for result in results for stream in (result.stdout, result.stderr))
    say(f"{len(written)} recordings in {output}, {counted(hidden, 'secret')} redacted")
    lost = [node for node, reason in losses(context).items() if reason]
    if lost:
        say(f"not recorded completely: {fold(lost)}", err=True)
    if unplanned:
        say(f"{deploy}: not recorded completely: {unplanned}", err=True)
    ctx.exit(EXIT_INCOMPLETE if lost or unplanned else EXIT_OK)


def naming(rack: Rack, architecture: str) -> Rack:
    """The rack with this architecture, an id or a file, in every node's data: its recordings are planned with it."""
    return replace(rack, nodes=tuple(replace(n, data={**n.data, "architecture": architecture}) for n in rack.nodes))


def ask(context: Context, questions: Sequence[str]) -> None:
    """Run the same commands on all selected nodes, in one round trip per node."""
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
    """By node: why its recording is incomplete; None if it is complete."""
    reasons = {}
    for recording in recordings_of(context):
        name = recording.node.name
        nothing = None if recording.results else "no check of the architecture reads anything from it"
        reasons[name] = context.readers[name].lost or nothing
    return reasons


def report(context: Context) -> list[str]:
    """One line per node."""
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
