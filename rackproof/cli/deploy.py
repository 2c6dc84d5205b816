"""``rackproof deploy``: pyinfra's own command, with a truthful exit status and a record."""

from __future__ import annotations

from pathlib import Path

import click

from rackproof.cli.options import limit_option
from rackproof.core.evidence import REBOOT_REQUIRED, Kind
from rackproof.core.rack import fold
from rackproof.core.reboot_mode import Mode
from rackproof.errors import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_OK
from rackproof.evidence.folder import REPORTS, new_run
from rackproof.evidence.store import EvidenceStore
from rackproof.inventory import load_rack
from rackproof.kit import CLUSTER
from rackproof.run.converge import INTERRUPTED, REBOOT_TIMEOUT_S, TIMEOUT_S, Converged, converge


@click.command()
@click.argument("inventory")
@click.argument("deploy_file", default=CLUSTER)
@limit_option
@click.option("--data", multiple=True, help="key=value, overrides group data; repeatable.")
@click.option("--dry", is_flag=True, help="Show the plan, change nothing.")
@click.option("--diff", is_flag=True, help="Show the differences of files.")
@click.option("--reboot", is_flag=True, help="Allow the one reboot that changes need, drained and in batches.")
@click.option(
    "--serial", type=click.IntRange(min=1), help="Nodes that reboot at a time.  [default: the inventory's, else 1]"
)
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=1), help="Seconds for the whole run.  [default: "
    f"{TIMEOUT_S:g}, with --reboot {REBOOT_TIMEOUT_S:g}]"
)  # fmt: skip
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=Path(REPORTS), show_default=True)
@click.option("--quiet", is_flag=True, help="Print only the result.")
def deploy(
    inventory: str,
    deploy_file: str,
    limit: tuple[str, ...],
    data: tuple[str, ...],
    dry: bool,
    diff: bool,
    reboot: bool,
    serial: int | None,
    timeout_s: float | None,
    output: Path,
    quiet: bool,
) -> None:
    """Bring the nodes of INVENTORY into the state that DEPLOY_FILE declares.

    With --reboot the deploy runs again after the reboots, applies what waited for them, and returns drained nodes to
    Slurm at the end.

    Exit status 0: every expected node was reached and converged. 1: an operation failed. 2: a node was not
    reached, the run was cut short, or a change waits for a reboot that was not allowed. 3: the deploy could not start.
    """
    rack = load_rack(inventory)
    if serial is not None and not reboot:
        raise click.UsageError("--serial is about reboots: add --reboot")

    def run(*more: str) -> Converged:
        return converge(
            rack, deploy=deploy_file, limit=limit, data=(*data, *more), dry=dry, diff=diff,
            timeout_s=timeout_s or (REBOOT_TIMEOUT_S if reboot else TIMEOUT_S),
            on_line=(lambda line: None) if quiet else lambda line: click.echo(line, err=True),
        )  # fmt: skip

    folder = new_run(output, inventory)
    with EvidenceStore(folder) as store:
        batches = (f"reboot_serial={serial}",) if serial else ()
        outcomes = [run(f"reboot_mode={Mode.ALLOWED_TWO_PASSES.value}", *batches) if reboot else run()]
        _keep(store, outcomes[0])
        if outcomes[0].rebooted and outcomes[0].record.reason != INTERRUPTED:
            _tell(outcomes[0], folder)
            click.echo(f"running again: changes that waited for the reboot of {fold(outcomes[0].rebooted)}")
            outcomes.append(run(f"reboot_mode={Mode.FINISH.value}"))
            _keep(store, outcomes[1])
    _tell(outcomes[-1], folder)
    records = [outcome.record for outcome in outcomes]
    if all(record.ok for record in records):
        raise click.exceptions.Exit(EXIT_OK)
    raise click.exceptions.Exit(
        EXIT_FAILED if any(n.failed for record in records for n in record.nodes) else EXIT_INCOMPLETE
    )


def _keep(store: EvidenceStore, outcome: Converged) -> None:
    raw = tuple(store.output(text) for text in (outcome.stdout, outcome.stderr) if text)
    store.append(Kind.DEPLOY, outcome.record.model_copy(update={"raw": raw}))


def _tell(outcome: Converged, folder: Path) -> None:
    """Nodes folded by what happened to them, then one line of outcome."""
    record = outcome.record
    verb = "would change" if record.dry else "changed"
    stories: dict[str, list[str]] = {}
    for node in record.nodes:
        if not node.reached:
            story = f"not reached: {node.reason}"
        elif node.failed:
            story = f"failed: {node.reason}"
        elif node.reason:
            story = node.reason
        elif node.reboot and not record.dry:
            story = f"{REBOOT_REQUIRED}{node.reboot}"
        elif node.changed:
            story = (
                f"{verb} {len(node.changed)} of {len(node.changed) + node.unchanged}"
                if not record.dry
                else f"{verb} {len(node.changed)}"
            )
        else:
            story = "no changes"
        if record.dry and node.reboot:
            story += f"; {REBOOT_REQUIRED}{node.reboot}"
        stories.setdefault(story, []).append(node.node)
    for story, names in stories.items():
        click.echo(f"{fold(names)}: {story}")
    click.echo(f"{'ok' if record.ok else f'not ok: {record.reason}'} ({record.elapsed_s:.1f} s, evidence in {folder})")
