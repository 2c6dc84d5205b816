"""What a deploy would do to each node, and which nodes' plans are the same.

Plans of two nodes are the same when they differ in nothing but who the nodes are: their names and addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedOperation(_Model):
    """One operation on one node."""

    name: str
    changes: tuple[str, ...] = ()
    """What differs, one line each, as far as the operation says it."""
    commands: tuple[str, ...] = ()
    """Shell scripts, exactly as they would be run but for what is secret. None: the node is as declared."""
    differences: tuple[str, ...] = ()
    """Of files, as unified differences; a secret is only named."""
    reboots: tuple[str, ...] = ()
    """Why carrying it out would make a reboot necessary."""
    notes: tuple[str, ...] = ()
    """What somebody should know although the operation goes on: what was accepted, what is missing."""
    refused: str | None = None
    """Why the node would stop here."""


class NodePlan(_Model):
    """``operations`` in the order in which they would run; those that change nothing are among them."""

    node: str
    groups: tuple[str, ...] = ()
    operations: tuple[PlannedOperation, ...] = ()
    lost: str | None = None
    """Why the node could not be planned: not reached, or it did not answer."""
    identity: tuple[str, ...] = ()
    """Names and addresses that are this node's and nobody else's."""

    @property
    def changing(self) -> tuple[PlannedOperation, ...]:
        return tuple(each for each in self.operations if each.commands and not each.refused)

    @property
    def refusals(self) -> tuple[PlannedOperation, ...]:
        return tuple(each for each in self.operations if each.refused)

    @property
    def reboots(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(reason for each in self.operations for reason in each.reboots))


class RackPlan(_Model):
    """Plans of the nodes of one inventory, in its order; ``error`` says why there are none."""

    inventory: str
    deploy: str
    nodes: tuple[NodePlan, ...] = ()
    error: str | None = None

    @property
    def incomplete(self) -> tuple[str, ...]:
        """Nodes that were not reached, or would refuse."""
        return tuple(each.node for each in self.nodes if each.lost or each.refusals)

    @property
    def changes(self) -> int:
        return sum(len(each.changing) for each in self.nodes)


@dataclass(frozen=True, slots=True)
class Fold:
    """Nodes with the same plan; ``plan`` is the first one's."""

    nodes: tuple[str, ...]
    plan: NodePlan
    key: tuple[object, ...] = field(repr=False)


def identity_of(name: str, data: Mapping[str, Any]) -> tuple[str, ...]:
    """What stands for one node and no other, in its inventory data: names, addresses, hardware addresses."""
    found = [name]
    stack = data.get("nic_stack")
    parts = [stack.get(key) for key in ("bonds", "vlans")] if isinstance(stack, Mapping) else []
    ports = [port for part in parts if isinstance(part, Mapping) for port in part.values()]
    own = [data.get(key) for key in ("ssh_hostname", "fabric_addresses", "fabric_macs", "fabric_second_addresses")]
    for value in (*own, *(port.get("address") for port in ports if isinstance(port, Mapping))):
        values = [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else []
        for each in map(str, values):
            found += [each, each.split("/")[0]] if "/" in each else [each]
    return tuple(dict.fromkeys(each for each in found if each))


def anonymous(text: str, identity: Sequence[str]) -> str:
    """``text`` with a placeholder, numbered, for everything that only this node is called."""
    if not identity:
        return text
    number = {each: index for index, each in enumerate(identity)}
    longest = sorted(identity, key=len, reverse=True)
    # A whole word: 10.0.0.1 is not part of 10.0.0.11.
    pattern = re.compile(r"(?<![\w.])(?:" + "|".join(map(re.escape, longest)) + r")(?![\w]|\.\d)")
    return pattern.sub(lambda match: f"‹{number[match[0]]}›", text)


_DIGEST = re.compile(r"^(rp_file \S.*) [0-9a-f]{64} -$", re.MULTILINE)
"""As ``rackproof.configure.rollback.journal`` writes down what a file becomes."""


def _comparable(text: str, identity: Sequence[str]) -> str:
    """Digests of files go too: they differ with the node's address, and the differences show the content. A secret's
    digest stays, for its content is not shown."""
    return anonymous(_DIGEST.sub(r"\1", text), identity)


_JOURNAL = re.compile(r"^rp_\w+\(\) [{(]\n(?:.*\n)*?[})]\n+", re.MULTILINE)
_TAKEN = re.compile(r"^rp_lock .*\n", re.MULTILINE)


def without_journal(command: str) -> str:
    """A command without the functions that keep for a rollback what it changes, and without who takes the node: they
    are the same before every change. What is kept stays."""
    return _TAKEN.sub("", _JOURNAL.sub("", command))


def fold_plans(plans: Iterable[NodePlan]) -> tuple[Fold, ...]:
    """The largest first; of equally large ones the one with the first node."""
    folds: dict[tuple[object, ...], list[NodePlan]] = {}
    for plan in plans:
        folds.setdefault(_key(plan), []).append(plan)
    found = [Fold(tuple(each.node for each in same), same[0], key) for key, same in folds.items()]
    return tuple(sorted(found, key=lambda each: -len(each.nodes)))


def _key(plan: NodePlan) -> tuple[object, ...]:
    def lines(texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(_comparable(text, plan.identity) for text in texts)

    operations = tuple(
        (each.name, lines(each.changes), lines(each.commands), lines(each.differences), each.reboots, lines(each.notes),
         anonymous(each.refused or "", plan.identity))
        for each in plan.operations
        if each.commands or each.refused or each.notes
    )  # fmt: skip
    return plan.groups, operations, anonymous(plan.lost or "", plan.identity)


def peers_of(fold: Fold, folds: Sequence[Fold]) -> Fold | None:
    """The largest fold of nodes with the same groups, of equally large ones the first, when it is another one.

    One that refuses is not compared with a fold that is no larger: it says why by itself.
    """
    same = next((each for each in folds if each.plan.groups == fold.plan.groups and not each.plan.lost), None)
    if same is None or same is fold or (fold.plan.refusals and len(same.nodes) == len(fold.nodes)):
        return None
    return same


def deviation(plan: NodePlan, other: NodePlan) -> tuple[str, ...]:
    """In which operations a plan differs from its peers': ``+`` only here, ``-`` only there."""

    def said(of: NodePlan) -> dict[str, list[str]]:
        return {
            each.name: [_comparable(text, of.identity) for text in _lines(each)]
            for each in (*of.changing, *of.refusals)
        }

    here, there = said(plan), said(other)
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
    """What an operation does, line by line; scripts as well, whose first lines are all alike."""
    for text in (*operation.changes, *operation.differences, *operation.commands):
        yield from (line for line in text.splitlines() if line.strip())
