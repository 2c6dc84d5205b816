"""``rackproof preflight``: what stands in the way of a deploy, folded over nodes."""

from __future__ import annotations

import json

import click

from rackproof.cli.options import limit_option
from rackproof.core.plan import RackPlan
from rackproof.core.rack import fold
from rackproof.errors import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_OK, InventoryError
from rackproof.kit import PREFLIGHT

_RACK = "preflight: "
_NODE = "not begun: "


@click.command()
@click.argument("inventory")
@limit_option
@click.option("--data", multiple=True, help="key=value, overrides group data; repeatable.")
@click.option(
    "--json", "as_json", is_flag=True, help="Node: problems, accepted ones and why it was not asked, as JSON."
)
@click.pass_context
def preflight(ctx: click.Context, inventory: str, limit: tuple[str, ...], data: tuple[str, ...], as_json: bool) -> None:
    """Ask the nodes of INVENTORY (or of @recording/DIR) whether a deploy could begin; change nothing.

    Each problem is one line with what is expected, what is there, the way out and the id under which the inventory can
    accept it: preflight: {accept: {ID: reason}}. Exit status 0: nothing is in the way. 1: something is. 2: a node was
    not reached. 3: nothing could be asked.
    """
    from rackproof.run.plan import plan_deploys

    plan = plan_deploys([inventory], PREFLIGHT, limit=limit, data=data)[0]
    if plan.error is not None and not plan.error.startswith(_RACK):
        raise InventoryError(f"{inventory}: {plan.error}")
    if as_json:
        click.echo(json.dumps(_document(plan), indent=1))
    else:
        _tell(plan)
    if plan.error is not None or any(node.refusals for node in plan.nodes):
        ctx.exit(EXIT_FAILED)
    ctx.exit(EXIT_INCOMPLETE if any(node.lost for node in plan.nodes) else EXIT_OK)


def problems_of(plan: RackPlan) -> dict[str, list[str]]:
    """Line: nodes that it is about. Of a contradiction in the inventory that is the whole rack."""
    found: dict[str, list[str]] = {}
    for node in plan.nodes:
        for refusal in node.refusals:
            for line in (refusal.refused or "").removeprefix(_NODE).split(" | "):
                found.setdefault(line, []).append(node.node)
    return found


def _accepted(plan: RackPlan) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in plan.nodes:
        for operation in node.operations:
            for note in operation.notes:
                found.setdefault(note, []).append(node.node)
    return found


def _tell(plan: RackPlan) -> None:
    for line in (plan.error or "").removeprefix(_RACK).split(" | ") if plan.error else ():
        click.secho(f"the whole rack: {line}", fg="red")
    for line, names in problems_of(plan).items():
        click.secho(f"{fold(names)}: {line}", fg="red")
    for note, names in _accepted(plan).items():
        click.secho(f"{fold(names)}: {note}", fg="yellow")
    lost: dict[str, list[str]] = {}
    for node in plan.nodes:
        if node.lost:
            lost.setdefault(node.lost, []).append(node.node)
    for why, names in lost.items():
        click.secho(f"{fold(names)}: not asked: {why}", fg="red")
    clear = [node.node for node in plan.nodes if not node.lost and not node.refusals]
    if clear:
        click.echo(f"{fold(clear)}: nothing is in the way")


def _document(plan: RackPlan) -> dict[str, object]:
    return {
        "inventory": plan.inventory,
        "rack": plan.error.removeprefix(_RACK).split(" | ") if plan.error else [],
        "nodes": {
            node.node: {
                "problems": [
                    line for each in node.refusals for line in (each.refused or "").removeprefix(_NODE).split(" | ")
                ],
                "accepted": [note for each in node.operations for note in each.notes],
                "lost": node.lost,
            }
            for node in plan.nodes
        },
    }
