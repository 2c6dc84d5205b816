"""What an architecture says about GPUs, and the check that answers for each key."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from rackproof.core.architecture.base import Claims, Model

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


GPU_CHECKS: Final = {
    # key of ``gpu``: check
    "count": "gpu.count",
    "model": "gpu.model",
    "memory_mib": "gpu.memory",
    "driver": "gpu.driver",
    "vbios": "gpu.vbios",
    "pci_ids": "gpu.pci_ids",
    "ecc": "gpu.ecc_mode",
    "persistence": "gpu.persistence",
    "mig": "gpu.mig",
    "pcie_generation": "gpu.pcie_generation",
    "pcie_width": "gpu.pcie_width",
    "topology": "gpu.topology",
    "nvlink": "gpu.nvlink",
}
"""Key of ``gpu``: check that every node of the role must have a result for."""
