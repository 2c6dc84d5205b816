"""What two vendors want and no node can give both, for the node at hand: the rules with what the site chose."""

from __future__ import annotations

from collections.abc import Iterator

from rackproof.configure.gpu.inputs import GpuStack
from rackproof.configure.node.cmdline import proposals
from rackproof.configure.node.inputs import NodeInputs
from rackproof.configure.preflight.problem import Problem
from rackproof.configure.settings import inputs
from rackproof.core.architecture import Architecture
from rackproof.core.machine import Machine
from rackproof.core.rack import Node
from rackproof.core.versions.conflicts import Choices, find_conflicts
from rackproof.core.versions.models import Components


def choices_of(node: Node, machine: Machine | None) -> Choices:
    """What the inventory chose for a node. Raises InventoryError."""
    given = inputs(node, "node", NodeInputs)
    stack = inputs(node, "gpu_stack", GpuStack)
    proposed = proposals(machine, given.proposals) if machine is not None else ()
    return Choices(
        cmdline=(*given.kernel_arguments, *proposed),
        driver_options={key: str(value) for key, value in stack.module_options.items()},
        nccl={key: str(value) for key, value in stack.nccl_conf.items()},
        secure_boot=machine.secure_boot if machine is not None else None,
    )


def conflict_problems(architecture: Architecture, components: Components | None, choices: Choices) -> Iterator[Problem]:
    """One problem a conflict, with the rule's id."""
    for conflict in find_conflicts(architecture, components, choices):
        one, other = conflict.one, conflict.other
        what = f"{one.who} wants {one.wants}, {other.who} wants {other.wants}: {conflict.consequence}"
        yield Problem(conflict.id, what, conflict.way_out)
