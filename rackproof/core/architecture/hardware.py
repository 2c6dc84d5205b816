"""Hardware of a node. Every key that a file sets requires its check on each node of the role."""

from __future__ import annotations

from rackproof.core.architecture.base import Claims, Count, Model
from rackproof.core.architecture.host import Cpu, Drives, Memory
from rackproof.core.architecture.network import Nic, Pcie
from rackproof.core.architecture.node import Scratch
from rackproof.core.texts import Name, Prose, Unit


class Expectation(Model):
    """Hardware of every node of a role, beside its GPUs."""

    nics: tuple[Nic, ...] = ()
    cpu: Cpu | None = None
    memory: Memory | None = None
    drives: tuple[Drives, ...] = ()
    pcie: Pcie | None = None
    services: tuple[Unit, ...] = ()
    """Units that must be active."""
    scratch: Scratch | None = None
    """Array of the local drives in the inventory's ``scratch_drives``."""


class Role(Model):
    """The pyinfra group of the same name."""

    count: Count = Count()
    managed: bool = True
    """False: an appliance that the kit does not log in to; may be missing from the inventory."""
    title: Prose | None = None
    expect: Expectation = Expectation()
    source: Name | None = None
    claim: Claims = ()
