"""``rackproof deploy``: run a deploy with pyinfra, record it, and report its result in the exit status."""

from __future__ import annotations

from pathlib import Path

import click

from rackproof.cli.interrupted import Interrupted
from rackproof.cli.options import FiniteRange, data_option, diff_option, limit_option, output_option, quiet_option
from rackproof.cli.terminal import say
from rackproof.core.evidence import REBOOT_REQUIRED
from rackproof.core.rack import fold
from rackproof.core.reboot_mode import Mode
from rackproof.errors import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_OK
from rackproof.evidence.folder import new_folder, run_folder
from rackproof.evidence.store import EvidenceStore
from rackproof.inventory import load_rack
from rackproof.kit import CLUSTER
from rackproof.remote.interrupt import again, called
from rackproof.run.converge import DRY_TIMEOUT_S, REBOOT_TIMEOUT_S, TIMEOUT_S, Converged, converge
from rackproof.run.deploy_outcome import INTERRUPTED


@click.command()
@click.argument("inventory")
@click.argument("deploy_file", default=CLUSTER)
@limit_option
@data_option
@click.option("--dry", is_flag=True, help="Show the plan, change nothing.")
@diff_option
@click.option("--reboot", is_flag=True, help="Reboot nodes that need it, once: drained and in batches.")
@click.option(
    "--serial", type=click.IntRange(min=1), help="Nodes that reboot at a time.  [default: the inventory's, else 1]"
)
@click.option(
    "--timeout", "timeout_s", type=FiniteRange(min=1), help="Seconds for the whole run.  [default: "
    f"{TIMEOUT_S:g}, with --reboot {REBOOT_TIMEOUT_S:g}, with --dry {DRY_TIMEOUT_S:g}]"
)  # fmt: skip
@output_option
@quiet_option
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

    With --reboot the deploy runs again after the reboots, applies what depended on them, and returns drained nodes to
    Slurm at the end.

    Exit status: 0 every expected node was reached and converged, 1 an operation failed, 2 a node was not reached,
    or a change needs a reboot that was not allowed, 3 the deploy could not start.
    """
    rack = load_rack(inventory)
    if serial is not None and not reboot:
        raise click.UsageError("--serial limits reboots: add --reboot")

    def run(*more: str) -> Converged:
        return converge(
            rack, deploy=deploy_file, limit=limit, data=(*data, *more), dry=dry, diff=diff,
            timeout_s=timeout_s or (REBOOT_TIMEOUT_S if reboot and not dry else None),
            on_line=(lambda line: None) if quiet else lambda line: say(line, err=True),
        )  # fmt: skip

    folder = new_folder(run_folder(output, inventory))
    with EvidenceStore(folder) as store:
        batches = (f"reboot_serial={serial}",) if serial else ()
        outcomes = [run(f"reboot_mode={Mode.ALLOWED_TWO_PASSES.value}", *batches) if reboot else run()]
        outcomes[0].keep(store)
        if outcomes[0].rebooted and outcomes[0].record.reason != INTERRUPTED:
            _print_outcome(outcomes[0], folder)
            say(f"second pass: changes that needed the reboot of {fold(outcomes[0].rebooted)}")
            outcomes.append(run(f"reboot_mode={Mode.FINISH.value}"))
            outcomes[1].keep(store)
    _print_outcome(outcomes[-1], folder)
    if outcomes[-1].record.reason == INTERRUPTED:
        go_on = f"nothing was changed; {again()}" if dry else f"continue with: {called()}"
        raise Interrupted("; ".join(filter(None, (outcomes[-1].goes_on, go_on))))
    records = [outcome.record for outcome in outcomes]
    if all(record.ok for record in records):
        raise click.exceptions.Exit(EXIT_OK)
    raise click.exceptions.Exit(
        EXIT_FAILED if any(n.failed for record in records for n in record.nodes) else EXIT_INCOMPLETE
    )


def _print_outcome(outcome: Converged, folder: Path) -> None:
    """Print nodes folded by their result, then one line about the whole run."""
    record = outcome.record
    verb = "would change" if record.dry else "changed"
    nodes_by_result: dict[str, list[str]] = {}
    for node in record.nodes:
        if not node.reached:
            result = f"not reached: {node.reason}"
        elif node.failed:
            result = f"failed: {node.reason}"
        elif node.reason:
            result = node.reason
        elif node.reboot and not record.dry:
            result = f"{REBOOT_REQUIRED}{node.reboot}"
        elif node.changed:
            of_all = "" if record.dry else f" of {len(node.changed) + node.unchanged}"
            result = f"{verb} {len(node.changed)}{of_all}"
        else:
            result = "no changes"
        if record.dry and node.reboot:
            result += f"; {REBOOT_REQUIRED}{node.reboot}"
        nodes_by_result.setdefault(result, []).append(node.node)
    for result, names in nodes_by_result.items():
        say(f"{fold(names)}: {result}")
    say(f"{'ok' if record.ok else f'not ok: {record.reason}'} ({record.elapsed_s:.1f} s, evidence in {folder})")
