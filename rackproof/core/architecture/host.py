"""What an architecture says about processors, memory and drives, and the check that answers for each key."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from rackproof.core.architecture.base import Claims, Model


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


CPU_CHECKS: Final = {key: f"cpu.{key}" for key in ("model", "sockets", "cores", "threads", "numa_nodes")}
"""Key of ``cpu``: check."""

MEMORY_CHECKS: Final = {"installed_gb": "memory.size"}
"""Key of ``memory``: check."""

DRIVES_CHECKS: Final = {"count": "drives.count", "size_tb": "drives.size"}
"""Key of drives: check, whose item is the use."""
