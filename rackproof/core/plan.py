"""Plan of a deploy for each node, and the nodes with equal plans.

Plans of two nodes are equal if they differ in the nodes' names and addresses only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from rackproof.core.grouping import grouped


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Change(_Model):
    """One difference between the declared and the actual state of a node."""

    what: str
    """A file, unit, package, mount, adapter, …"""
    why: str = ""
    """Declared against actual, in a few words."""
    difference: tuple[str, ...] = ()
    """Lines of a unified difference; a secret is only named."""
    reboot: str | None = None
    """Why the change is in force only after a reboot."""

    @property
    def line(self) -> str:
        return f"{self.what}: {self.why}" if self.why else self.what


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason not to begin a deploy."""

    id: str
    what: str
    """With the expected and the actual state."""
    remedy: str = ""
    """Empty where ``what`` ends with it."""
    accepted: str | None = None
    """The inventory's reason to begin nevertheless."""

    @property
    def line(self) -> str:
        if self.accepted is not None:
            return f"accepted: {self.what} [{self.id}]: {self.accepted}"
        return f"{self.what}{'; ' if self.remedy else ''}{self.remedy} [{self.id}]"


class Report(_Model):
    """Result of one operation on one node."""

    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    """Warnings that do not stop the operation: accepted problems, missing answers of other nodes."""
    problems: tuple[Problem, ...] = ()
    """Problems of preflight, including accepted ones."""
    refused: str | None = None
    """Why the operation does not change the node."""
    pending_reboot: tuple[str, ...] = ()
    """Why the node needs a reboot that is not allowed in this run."""
    rebooted: bool = False


class NodeReport(Report):
    """The report of one operation on one node, as a run writes it to the file that ``REPORTS`` names."""

    node: str
    operation: str
    executed: bool
    """False: planned only."""
    lost: bool = False
    """The connection was lost while the operation ran; ``operation`` is empty for facts outside of operations."""


REPORTS: Final = "RACKPROOF_REPORTS"
"""Environment variable with the file to which pyinfra's process appends one ``NodeReport`` per line."""


class PlannedOperation(Report):
    """One operation on one node: its report and its commands."""

    name: str
    commands: tuple[str, ...] = ()
    """Shell scripts as they would run, without secrets and without the functions of the rollback journal. None: the
    node is as declared."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The changes, one line each."""
        return tuple(change.line for change in self.changes)

    @property
    def differences(self) -> tuple[str, ...]:
        return tuple(line for change in self.changes for line in change.difference)

    @property
    def reboots(self) -> tuple[str, ...]:
        """Why a reboot is needed after this operation."""
        return tuple(dict.fromkeys(change.reboot for change in self.changes if change.reboot))


class NodePlan(_Model):
    """``operations`` in the order in which they would run; those that change nothing are among them."""

    node: str
    groups: tuple[str, ...] = ()
    operations: tuple[PlannedOperation, ...] = ()
    lost: str | None = None
    """Why the node could not be planned: not reached, or it did not answer."""
    identity: tuple[str, ...] = ()
    """Names and addresses of this node alone."""

    @property
    def changing(self) -> tuple[PlannedOperation, ...]:
        return tuple(operation for operation in self.operations if operation.commands and not operation.refused)

    @property
    def refusals(self) -> tuple[PlannedOperation, ...]:
        return tuple(operation for operation in self.operations if operation.refused)

    @property
    def reboots(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(reason for operation in self.operations for reason in operation.reboots))


class RackPlan(_Model):
    """Plans of the nodes of one inventory, in its order; ``error`` says why there are none."""

    inventory: str
    deploy: str
    nodes: tuple[NodePlan, ...] = ()
    error: str | None = None
    problems: tuple[Problem, ...] = ()
    """Problems of the whole rack, when they are the ``error``."""

    @property
    def incomplete(self) -> tuple[str, ...]:
        """Nodes that were not reached, or would refuse."""
        return tuple(node.node for node in self.nodes if node.lost or node.refusals)

    @property
    def changes(self) -> int:
        return sum(len(node.changing) for node in self.nodes)


@dataclass(frozen=True, slots=True)
class Fold:
    """Nodes with the same plan; ``plan`` is the first one's."""

    nodes: tuple[str, ...]
    plan: NodePlan
    key: tuple[object, ...] = field(repr=False)


def identity_of(name: str, data: Mapping[str, Any]) -> tuple[str, ...]:
    """Values in the inventory that identify one node: names, addresses, hardware addresses."""
    names = [name]
    nic = data.get("nic")
    parts = [nic.get(key) for key in ("bonds", "vlans")] if isinstance(nic, Mapping) else []
    ports = [port for part in parts if isinstance(part, Mapping) for port in part.values()]
    own = [data.get(key) for key in ("ssh_hostname", "fabric_addresses", "fabric_macs", "fabric_second_addresses")]
    for value in (*own, *(port.get("address") for port in ports if isinstance(port, Mapping))):
        values = [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else []
        for address in map(str, values):
            names += [address, address.split("/")[0]] if "/" in address else [address]
    return tuple(dict.fromkeys(text for text in names if text))


def anonymous(text: str, identity: Sequence[str]) -> str:
    """``text`` with numbered placeholders for the names and addresses of the node."""
    if not identity:
        return text
    number = {part: index for index, part in enumerate(identity)}
    longest = sorted(identity, key=len, reverse=True)
    # A whole word: 10.0.0.1 is not part of 10.0.0.11.
    pattern = re.compile(r"(?<![\w.])(?:" + "|".join(map(re.escape, longest)) + r")(?![\w]|\.\d)")
    return pattern.sub(lambda match: f"‹{number[match[0]]}›", text)


def fold_plans(plans: Iterable[NodePlan]) -> tuple[Fold, ...]:
    """Largest first; ties: inventory order."""
    folds = grouped((_key(plan), plan) for plan in plans)
    same_plans = [Fold(tuple(node.node for node in same), same[0], key) for key, same in folds.items()]
    return tuple(sorted(same_plans, key=lambda fold: -len(fold.nodes)))


def _key(plan: NodePlan) -> tuple[object, ...]:
    def lines(texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(anonymous(text, plan.identity) for text in texts)

    operations = tuple(
        (operation.name, lines(operation.lines), lines(operation.commands), lines(operation.differences),
         operation.reboots, lines(operation.notes), anonymous(operation.refused or "", plan.identity))
        for operation in plan.operations
        if operation.commands or operation.refused or operation.notes
    )  # fmt: skip
    return plan.groups, operations, anonymous(plan.lost or "", plan.identity)


def peers_of(fold: Fold, folds: Sequence[Fold]) -> Fold | None:
    """The largest other fold of nodes with the same groups; ties: the first; None: there is none.

    A fold that refuses is not compared with one of the same size: its refusal says why.
    """
    same = next((other for other in folds if other.plan.groups == fold.plan.groups and not other.plan.lost), None)
    if same is None or same is fold or (fold.plan.refusals and len(same.nodes) == len(fold.nodes)):
        return None
    return same


def deviation(plan: NodePlan, other: NodePlan) -> tuple[str, ...]:
    """Operations that differ between two plans: ``+`` only in ``plan``, ``-`` only in ``other``."""

    def lines_of(of: NodePlan) -> dict[str, list[str]]:
        return {
            operation.name: [anonymous(text, of.identity) for text in _lines(operation)]
            for operation in (*of.changing, *of.refusals)
        }

    here, there = lines_of(plan), lines_of(other)
    lines: list[str] = []
    for name in dict.fromkeys((*here, *there)):
        if name not in there:
            lines.append(f"+ {name}")
        elif name not in here:
            lines.append(f"- {name}")
        elif here[name] != there[name]:
            lines.append(f"~ {name}")
            lines += [f"    + {text}" for text in here[name] if text not in there[name]]
            lines += [f"    - {text}" for text in there[name] if text not in here[name]]
    return tuple(lines)


def _lines(operation: PlannedOperation) -> Iterator[str]:
    """Changes, differences and scripts of an operation, line by line."""
    for text in (*operation.lines, *operation.differences, *operation.commands):
        yield from (line for line in text.splitlines() if line.strip())
