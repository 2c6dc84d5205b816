"""What a node is made of. Every key that a file sets is a check that each node of the role must have a result for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from rackproof.core.architecture.base import Claims, Count, Model

PciIds = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]


class Nvlink(Model):
    """Links of every GPU of the role."""

    links: int = Field(ge=1)
    gb_per_s_per_link: float = Field(gt=0)
    """GB/s in one direction."""


class Gpu(Model):
    """GPUs of every node of the role ``gpu``."""

    count: int = Field(ge=0)
    model: str
    memory_mib: int | None
    """As nvidia-smi reports it; null where no document says."""
    memory_tolerance_pct: float = 1.0
    driver: str | None = None
    """Exact version, or the oldest allowed one as ``>=525.105.17``."""
    vbios: str | None = None
    pci_ids: PciIds = ()
    """PCI device ids that are allowed, four hexadecimal digits."""
    ecc: Literal["Enabled", "Disabled"] | None = None
    persistence: Literal["Enabled", "Disabled"] | None = None
    mig: Literal["Enabled", "Disabled"] | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    topology: str | None = None
    """Name of a graph of ``rackproof.core.topology``: the node's GPUs must be joined like it, in any order."""
    nvlink: Nvlink | None = None
    source: str | None = None
    claim: Claims = ()


class Nic(Model):
    """Ports of one purpose on every node of a role."""

    purpose: str
    """``compute``, ``storage``, ``in_band`` …"""
    count: int = Field(ge=1)
    model: str | None = None
    """Regular expression on the adapter's name."""
    speed_gbps: float = Field(gt=0)
    link_layer: Literal["InfiniBand", "Ethernet"]
    mtu: int | None = None
    """Bytes."""
    gid_index: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    firmware: str | None = None
    source: str
    claim: Claims = ()


class Cpu(Model):
    model: str | None = None
    """Regular expression on the name that lscpu gives."""
    sockets: int | None = None
    cores: int | None = None
    """Physical cores of the whole node."""
    threads: int | None = None
    numa_nodes: int | None = None
    source: str
    claim: Claims = ()


class Memory(Model):
    """Installed memory; Linux shows one to two percent less."""

    installed_gb: float = Field(gt=0)
    """GB (10^9 B)."""
    tolerance_pct: float = Field(default=5.0, ge=0, le=20)
    source: str
    claim: Claims = ()


class Drives(Model):
    """Local drives of one use."""

    use: str
    kind: Literal["nvme", "sata_ssd"] = "nvme"
    count: int | None
    """Null where no document says."""
    size_tb: float | None
    """TB (10^12 B) of one drive; null where no document says."""
    total_tb: float | None = None
    source: str
    claim: Claims = ()


class Expectation(Model):
    """Hardware of every node of a role, beside its GPUs."""

    nics: tuple[Nic, ...] = ()
    cpu: Cpu | None = None
    memory: Memory | None = None
    drives: tuple[Drives, ...] = ()
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
