"""``rackproof rollback``: undo the last run on the nodes, with the record and the exit status of ``deploy``."""

from __future__ import annotations

from pathlib import Path

import click

from rackproof.cli.deploy import deploy
from rackproof.cli.options import diff_option, limit_option, output_option, quiet_option
from rackproof.kit import ROLLBACK


@click.command()
@click.argument("inventory")
@click.option("--run", help="Undo this run and all later ones.  [default: the last run on these nodes]")
@click.option("--force", multiple=True, metavar="PATH", help="Restore PATH even if it was changed since; repeatable.")
@limit_option
@click.option("--dry", is_flag=True, help="Show what would be restored, change nothing.")
@diff_option
@output_option
@quiet_option
@click.pass_context
def rollback(
    context: click.Context,
    inventory: str,
    run: str | None,
    force: tuple[str, ...],
    limit: tuple[str, ...],
    dry: bool,
    diff: bool,
    output: Path,
    quiet: bool,
) -> None:
    """Restore the nodes of INVENTORY to their state before the last run that changed any of them.

    Restores files, unit states, kernel values, package holds and kernel arguments; packages stay installed.
    A second rollback undoes the first. Exit status as for deploy.
    """
    data = [f"run={run}"] if run else []
    data += [f"force={','.join(force)}"] if force else []
    context.invoke(
        deploy, inventory=inventory, deploy_file=ROLLBACK, limit=limit, data=tuple(data), dry=dry, diff=diff,
        output=output, quiet=quiet,
    )  # fmt: skip
