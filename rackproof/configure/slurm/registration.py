"""Registration of a node with its controller after a change of the kit, and recovery when it fails.

A node that an operator drained stays drained, and a node that is down for another reason stays down: only what the kit
itself may have caused is undone, once, after the change.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rackproof import shell
from rackproof.configure.slurm.nodes import CHANGED

WAIT_S = 120
"""Seconds for slurmd to register; an emulated node takes half a minute."""


@dataclass(frozen=True, slots=True)
class Registration:
    changed: bool
    """The kit changed this node's Slurm since it last registered."""
    state: str | None
    reason: str | None


def state_command(node: str) -> str:
    """The controller is asked only where there is a mark, so unchanged nodes put no load on it."""
    name = shlex.quote(node)
    return (
        f"if [ -e {CHANGED} ]; then echo changed; "
        f"timeout -k 2 20 scontrol -o show node {name} 2>/dev/null | tr ' ' '\\n' | grep -E '^(State|Reason)='; fi; "
    )


def parse_state(lines: Sequence[str]) -> Registration:
    values = dict(line.partition("=")[::2] for line in lines[1:])
    return Registration(lines[:1] == ["changed"], values.get("State"), values.get("Reason"))


def settle_script(node: str) -> str:
    """Wait until the node has registered, resume it where Slurm itself put it down, and report its state.

    Fails when it has not registered, or is refused; the mark stays, and the next run tries again.
    """
    return shell.script(__name__, "registration", node=node, changed=CHANGED, wait_s=WAIT_S)
