"""``rackproof plan``: show what a deploy would change, folded over nodes."""

from __future__ import annotations

import json
from pathlib import Path

import click

from rackproof.cli.options import data_option, limit_option
from rackproof.cli.terminal import print_document, say
from rackproof.core.rack import fold
from rackproof.errors import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_OK, InventoryError
from rackproof.kit import CLUSTER

_COLOURS = {"+": "green", "-": "red", "~": "yellow"}


@click.command()
@click.argument("inventory", required=False)
@click.argument("deploy_file", default=CLUSTER)
@click.option("--from", "source", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
              help="Plan on recordings or a written rack instead of nodes, as @recording/DIR.")  # fmt: skip
@limit_option
@data_option
@click.option("--diff", "differences", is_flag=True, help="Show the differences of files.")
@click.option(
    "--commands",
    is_flag=True,
    help="Show the shell commands, without the functions that save the previous state for a rollback.",
)
@click.option("--json", "as_json", is_flag=True, help="All nodes' plans as JSON, not folded.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 if anything would change, like git diff.")
@click.pass_context
def plan(
    ctx: click.Context,
    inventory: str | None,
    deploy_file: str,
    source: Path | None,
    limit: tuple[str, ...],
    data: tuple[str, ...],
    differences: bool,
    commands: bool,
    as_json: bool,
    exit_code: bool,
) -> None:
    """Show what DEPLOY_FILE would change on the nodes of INVENTORY; change nothing.

    INVENTORY is a pyinfra inventory, or @recording/DIR. Nodes whose plans differ only in names and addresses are shown
    together; for the others, differences from their peers are shown. Secrets are never shown.

    Exit status: 0 all nodes were planned (1 with --exit-code if one would change), 2 a node was not reached, or would
    refuse an operation, 3 nothing could be planned.
    """
    from rackproof.report.plan import document, overview
    from rackproof.run.plan import plan_deploys

    if source is not None:
        if inventory is not None and not inventory.endswith(".py"):
            raise click.UsageError("give an inventory or --from DIR, not both")
        if inventory is not None:  # with --from, the first argument can only be the deploy
            deploy_file = inventory
        inventory = f"@recording/{source}"
    if inventory is None:
        raise click.UsageError("give an inventory, @recording/DIR or --from DIR")
    rack_plan = plan_deploys([inventory], deploy_file, limit=limit, data=data)[0]
    if rack_plan.error is not None:
        raise InventoryError(f"{inventory}: {rack_plan.error}")
    if as_json:
        print_document(json.dumps(document(rack_plan), indent=1))
    else:
        for line in overview(rack_plan, differences=differences, commands=commands):
            _print(line)
    if rack_plan.incomplete:
        say(f"rackproof: plan is incomplete on {fold(rack_plan.incomplete)}", err=True)
        ctx.exit(EXIT_INCOMPLETE)
    ctx.exit(EXIT_FAILED if exit_code and rack_plan.changes else EXIT_OK)


def _print(line: str) -> None:
    word = line.strip().removeprefix("| ")[:1]
    indented = line.startswith(" ")
    say(line, bold=not indented, fg=_COLOURS.get(word) if indented else None)
