"""Processors, memory and drives of an architecture, and the check of each key."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from rackproof.core.architecture.base import Claims, Model, checks_of
from rackproof.core.texts import Expression, Line, Name

Texts = Annotated[tuple[Line, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]
Microcode = Annotated[str, StringConstraints(pattern=r"^(>=)?0x[0-9a-f]+$")]


class Cpu(Model):
    model: Expression | None = None
    """Regular expression on the name that lscpu gives."""
    sockets: int | None = None
    cores: int | None = None
    """Physical cores of the whole node."""
    threads: int | None = None
    """Online threads of the whole node."""
    numa_nodes: int | None = None
    """NUMA nodes with processors; a GPU's memory can be a separate NUMA node."""
    smt: bool | None = None
    """Whether a core runs more than one thread."""
    microcode: Microcode | None = None
    """Revision of every processor, exactly (``0x2b000603``) or at least (``>=0x2b000603``)."""
    idle_latency_max_us: int | None = Field(default=None, ge=0)
    """Wake-up latency of the deepest enabled idle state (C-state), µs. Passes without idle states."""
    frequency_driver: Name | None = None
    """``intel_pstate``, ``amd-pstate-epp``, ``acpi-cpufreq`` …"""
    turbo: bool | None = None
    """Whether processors may run faster than their nominal frequency."""
    source: Name
    claim: Claims = ()


class Memory(Model):
    """Installed memory; Linux shows one to two percent less."""

    installed_gb: float = Field(gt=0)
    """GB (10^9 B)."""
    tolerance_pct: float = Field(default=3.0, ge=0, le=20)
    """One of 32 modules is 3.1 %."""
    dimms: int | None = Field(default=None, ge=1)
    """Populated modules of the whole node."""
    dimm_gib: float | None = Field(default=None, gt=0)
    """GiB (2^30 B) of every module."""
    dimm_speed_mts: int | None = Field(default=None, gt=0)
    """Actual MT/s of every module, not its rating."""
    corrected_errors_max: int | None = Field(default=None, ge=0)
    """Errors of one memory controller since its driver was loaded."""
    uncorrected_errors_max: int | None = Field(default=None, ge=0)
    """Errors of one memory controller since its driver was loaded."""
    source: Name
    claim: Claims = ()


class Drives(Model):
    """Local drives of one use.

    Each drive is assigned to one use of its kind: the nearest size within three percent; ties: the matching model, then
    the first use that is not full. A use without a size gets the rest.
    """

    use: Name
    kind: Literal["nvme", "sata_ssd"] = "nvme"
    """``nvme``: in a PCIe slot, not over a fabric. ``sata_ssd``: SATA or SAS, or a volume of a RAID controller."""
    count: int | None
    """Null: unpublished."""
    size_tb: float | None
    """TB (10^12 B) of one drive; null: unpublished."""
    total_tb: float | None = None
    model: Expression | None = None
    """Regular expression on the drive's model name."""
    firmware: Texts = ()
    """Allowed revisions."""
    wear_max_pct: float | None = Field(default=None, ge=0)
    """Percentage used of an NVMe drive's endurance."""
    media_errors_max: int | None = Field(default=None, ge=0)
    """Per NVMe drive, over its lifetime."""
    pcie_generation: int | None = None
    pcie_width: int | None = None
    source: Name
    claim: Claims = ()


CPU_CHECKS: Final = checks_of("cpu", Cpu, idle_latency_max_us="idle_states")
MEMORY_CHECKS: Final = checks_of(
    "memory", Memory, without="tolerance_pct",
    installed_gb="size", dimm_gib="dimm_size", dimm_speed_mts="dimm_speed", corrected_errors_max="corrected_errors",
    uncorrected_errors_max="uncorrected_errors",
)  # fmt: skip
DRIVES_CHECKS: Final = checks_of(
    "drives", Drives, without="use kind",
    size_tb="size", total_tb="total", wear_max_pct="wear", media_errors_max="media_errors",
)  # fmt: skip
"""Checks whose item is the use."""
