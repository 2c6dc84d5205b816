"""Registration of a node with its controller after a change of the kit, and recovery when it fails.

A node that an operator drained stays drained, and a node that is down for another reason stays down: only what the kit
itself may have caused is undone, once, after the change.
"""

from __future__ import annotations

from rackproof import shell
from rackproof.configure.slurm.nodes import CHANGED

WAIT_S = 120
"""Seconds for slurmd to register; an emulated node takes half a minute."""


def settle_script(node: str) -> str:
    """Wait until the node has registered, resume it where Slurm itself put it down, and report its state.

    Fails when it has not registered, or is refused; the mark stays, and the next run tries again.
    """
    return shell.script(__name__, "registration", node=node, changed=CHANGED, wait_s=WAIT_S)
