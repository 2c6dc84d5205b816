"""``rackproof preflight``: show the problems that prevent a deploy, folded over nodes."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from rackproof.cli.options import data_option, limit_option
from rackproof.cli.terminal import print_document, say
from rackproof.core.grouping import grouped
from rackproof.core.plan import NodePlan, RackPlan
from rackproof.core.rack import fold
from rackproof.errors import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_OK, InventoryError
from rackproof.kit import PREFLIGHT


@click.command()
@click.argument("inventory")
@limit_option
@data_option
@click.option(
    "--json", "as_json", is_flag=True, help="As JSON, by node: problems, accepted problems, reason if not checked."
)
@click.pass_context
def preflight(ctx: click.Context, inventory: str, limit: tuple[str, ...], data: tuple[str, ...], as_json: bool) -> None:
    """Check on the nodes of INVENTORY (or of @recording/DIR) whether a deploy can start; change nothing.

    Each problem is one line: expected and actual state, the remedy, and its id, by which the inventory can accept it
    (preflight = {"accept": {ID: reason}}). Exit status: 0 no problem, 1 a problem, 2 a node was not reached, 3 no node
    could be checked.
    """
    from rackproof.run.plan import plan_deploys

    plan = plan_deploys([inventory], PREFLIGHT, limit=limit, data=data)[0]
    if plan.error is not None and not plan.problems:
        raise InventoryError(f"{inventory}: {plan.error}")
    if as_json:
        print_document(json.dumps(_document(plan), indent=1))
    else:
        _tell(plan)
    if plan.error is not None or any(node.refusals for node in plan.nodes):
        ctx.exit(EXIT_FAILED)
    ctx.exit(EXIT_INCOMPLETE if any(node.lost for node in plan.nodes) else EXIT_OK)


def problems_of(plan: RackPlan) -> dict[str, list[str]]:
    """Nodes by problem or refusal."""
    return grouped((line, node.node) for node in plan.nodes for line in _stopping(node))


def _stopping(node: NodePlan) -> list[str]:
    lines = []
    for refusal in node.refusals:
        problems = [problem.line for problem in refusal.problems if problem.accepted is None]
        lines += problems or [refusal.refused or ""]
    return lines


def _notes(node: NodePlan) -> list[str]:
    return [note for operation in node.operations for note in operation.notes]


def _tell(plan: RackPlan) -> None:
    for problem in plan.problems:
        say(f"the whole rack: {problem.line}", fg="red")
    for line, names in problems_of(plan).items():
        say(f"{fold(names)}: {line}", fg="red")
    for text, names in grouped((text, node.node) for node in plan.nodes for text in _notes(node)).items():
        say(f"{fold(names)}: {text}", fg="yellow")
    for why, names in grouped((node.lost, node.node) for node in plan.nodes if node.lost).items():
        say(f"{fold(names)}: not checked: {why}", fg="red")
    clear = [node.node for node in plan.nodes if not node.lost and not node.refusals]
    if clear:
        say(f"{fold(clear)}: no problem")


def _document(plan: RackPlan) -> dict[str, object]:
    return {
        "inventory": plan.inventory,
        "rack": [problem.line for problem in plan.problems],
        "details": [asdict(problem) for problem in plan.problems],
        "nodes": {
            node.node: {
                "problems": _stopping(node),
                "accepted": _notes(node),
                "details": [asdict(problem) for operation in node.operations for problem in operation.problems],
                "lost": node.lost,
            }
            for node in plan.nodes
        },
    }
