"""What a node is made of. Every key that a file sets is a check that each node of the role must have a result for."""

from __future__ import annotations

from rackproof.core.architecture.base import Claims, Count, Model
from rackproof.core.architecture.host import Cpu, Drives, Memory
from rackproof.core.architecture.network import Nic, Pcie
from rackproof.core.architecture.node import Scratch


class Expectation(Model):
    """Hardware of every node of a role, beside its GPUs."""

    nics: tuple[Nic, ...] = ()
    cpu: Cpu | None = None
    memory: Memory | None = None
    drives: tuple[Drives, ...] = ()
    pcie: Pcie | None = None
    services: tuple[str, ...] = ()
    """Units that must be active."""
    scratch: Scratch | None = None
    """Array of local drives; which ones is the inventory's ``scratch_drives``."""


class Role(Model):
    """A role is a pyinfra group of the same name."""

    count: Count = Count()
    managed: bool = True
    """False for appliances that the kit neither logs in to nor configures; the inventory need not have them."""
    title: str | None = None
    expect: Expectation = Expectation()
    source: str | None = None
    claim: Claims = ()
