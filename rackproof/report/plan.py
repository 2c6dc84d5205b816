"""Plans as text: folded for the terminal, or complete for golden files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rackproof.core.grouping import grouped
from rackproof.core.plan import Fold, NodePlan, PlannedOperation, RackPlan, deviation, fold_plans, peers_of
from rackproof.core.rack import fold
from rackproof.core.wording import counted


def overview(plan: RackPlan, *, differences: bool = False, commands: bool = False) -> Iterator[str]:
    """Lines for each group of nodes with the same plan: its operations, or its differences from its peers."""
    groups = fold_plans(plan.nodes)
    for group in groups:
        peers = peers_of(group, groups)
        yield _headline(group, peers)
        if group.plan.lost:
            continue
        if peers is not None and not commands:
            yield from (f"  {line}" for line in deviation(group.plan, peers.plan))
            yield from (f"  refused: {refusal.name}: {refusal.refused}" for refusal in group.plan.refusals)
            continue
        for operation in group.plan.operations:
            if operation.commands or operation.refused or operation.notes:
                yield from _operation(operation, differences, commands)
    yield from _reboots(plan)
    yield summary(plan)


def _headline(group: Fold, peers: Fold | None) -> str:
    plan = group.plan
    if plan.lost:
        return f"{fold(group.nodes)}: not planned: {plan.lost}"
    count = len(plan.changing)
    text = f"{fold(group.nodes)}: {counted(count, 'change') if count else 'no changes'}"
    if plan.refusals:
        text += ", then refused"
    return f"{text}; differs from {fold(peers.nodes)}:" if peers is not None else text


def _operation(operation: PlannedOperation, differences: bool, commands: bool) -> Iterator[str]:
    if operation.refused:
        yield f"  {operation.name}: refused: {operation.refused}"
    else:
        yield f"  {operation.name}"
    yield from (f"      note: {note}" for note in operation.notes)
    if operation.refused:
        return
    yield from (f"      {line}" for line in operation.lines)
    if differences:
        yield from (f"      | {line}" for line in operation.differences)
    if commands:
        yield from (f"      $ {line}" for text in operation.commands for line in text.splitlines())


def _reboots(plan: RackPlan) -> Iterator[str]:
    if by_reason := grouped((reason, node.node) for node in plan.nodes for reason in node.reboots):
        yield "reboot afterwards:"
        yield from (f"  {fold(nodes)}: {reason}" for reason, nodes in by_reason.items())


def summary(plan: RackPlan) -> str:
    """One line: how many nodes would change, and which are not planned completely."""
    changing = [node for node in plan.nodes if node.changing]
    parts = []
    if changing:
        parts.append(f"{fold(node.node for node in changing)} would change ({counted(plan.changes, 'operation')})")
    elif same := [node.node for node in plan.nodes if not node.lost and not node.refusals]:
        parts.append(f"no changes on {fold(same)}" if plan.incomplete else "no changes")
    if lost := [node.node for node in plan.nodes if node.lost]:
        parts.append(f"{fold(lost)} not planned")
    if refusing := [node.node for node in plan.nodes if node.refusals]:
        parts.append(f"{fold(refusing)} would refuse")
    return f"{counted(len(plan.nodes), 'node')}: {'; '.join(parts)}"


def whole(plan: NodePlan) -> str:
    """The complete plan of one node as text, for golden files."""
    lines = [f"# {plan.node} ({', '.join(plan.groups)})"]
    if plan.lost:
        lines.append(f"lost: {plan.lost}")
    for operation in plan.operations:
        lines += ["", f"== {operation.name}"]
        if operation.refused:
            lines.append(f"refused: {operation.refused}")
        elif not operation.commands:
            lines.append("no change")
        lines += [f"note: {note}" for note in operation.notes]
        lines += [f"reboot: {reason}" for reason in operation.reboots]
        lines += [f"  {line}".rstrip() for line in operation.lines]
        for text in operation.commands:
            lines += [f"$ {line}".rstrip() for line in text.splitlines()]
        lines += [f"| {line}".rstrip() for line in operation.differences]
    return "\n".join(lines) + "\n"


def document(plan: RackPlan) -> dict[str, Any]:
    """The plan as JSON: changes of each operation as lines, and with all fields in ``details``."""
    return {
        "inventory": plan.inventory,
        "deploy": plan.deploy,
        "nodes": [
            {
                "node": node.node,
                "groups": node.groups,
                "operations": [_operation_document(operation) for operation in node.operations],
                "lost": node.lost,
            }
            for node in plan.nodes
        ],
        "error": plan.error,
    }


def _operation_document(operation: PlannedOperation) -> dict[str, Any]:
    return {
        "name": operation.name,
        "changes": operation.lines,
        "details": [change.model_dump() for change in operation.changes],
        "commands": operation.commands,
        "differences": operation.differences,
        "reboots": operation.reboots,
        "notes": operation.notes,
        "refused": operation.refused,
    }
