"""What a node is made of. Every key that a file sets is a check that each node of the role must have a result for."""

from __future__ import annotations

from rackproof.core.architecture.base import Claims, Count, Model
from rackproof.core.architecture.host import Cpu, Drives, Memory
from rackproof.core.architecture.network import Nic, Pcie


class Expectation(Model):
    """Hardware of every node of a role, beside its GPUs."""

    nics: tuple[Nic, ...] = ()
    cpu: Cpu | None = None
    memory: Memory | None = None
    drives: tuple[Drives, ...] = ()
    pcie: Pcie | None = None
    services: tuple[str, ...] = ()
    """Units that must be active."""


class Role(Model):
    """A role is a pyinfra group of the same name."""

    count: Count = Count()
    managed: bool = True
    """False for appliances that the kit neither logs in to nor configures; the inventory need not have them."""
    title: str | None = None
    expect: Expectation = Expectation()
    source: str | None = None
    claim: Claims = ()
