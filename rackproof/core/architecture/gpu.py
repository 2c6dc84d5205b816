"""The ``gpu`` section of an architecture, and the check of each key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from rackproof.core.architecture.base import Claims, Model, checks_of
from rackproof.core.texts import Line, Name, Option, Value, Version, WantedVersion


def _one_or_more(kind: type) -> Callable[[Any], Any]:
    return lambda value: (value,) if isinstance(value, kind) else value


PciIds = Annotated[
    tuple[Annotated[str, StringConstraints(pattern=r"^[0-9a-fA-F]{4}$")], ...], BeforeValidator(_one_or_more(str))
]
Drivers = Annotated[tuple[Line, ...], BeforeValidator(_one_or_more(str))]
MigProfile = Annotated[str, StringConstraints(pattern=r"^[0-9]g\.[0-9]+gb(\+me|\+me\.all|-me|\+gfx)?$")]
MigProfiles = Annotated[tuple[MigProfile, ...], BeforeValidator(_one_or_more(str))]


class Nvlink(Model):
    """Links of every GPU of the role."""

    links: int = Field(ge=1)
    gb_per_s_per_link: float = Field(gt=0)
    """GB/s in one direction."""
    errors_max: int = Field(default=0, ge=0)
    """Per link and kind (replays, recoveries, CRC, or NVLink 5's counters), since the driver was loaded."""


class Clocks(Model):
    """Clocks of every GPU; keys left out are not checked."""

    sm_max_mhz: int | None = None
    """Highest clock that the GPU offers."""
    memory_max_mhz: int | None = None
    application_sm_mhz: int | None = None
    """Application clock; left out, it must be the GPU's default."""
    application_memory_mhz: int | None = None


class Gpu(Model):
    """GPUs of every node of the role ``gpu``."""

    count: int = Field(ge=0)
    model: Line
    memory_mib: int | None
    """As nvidia-smi reports it; null: unpublished."""
    memory_tolerance_pct: float = 1.0
    driver: WantedVersion | None = None
    """Exact version, or the oldest allowed one as ``>=525.105.17``."""
    vbios: Version | None = None
    inforom: Version | None = None
    """Version of the InfoROM's image: ``G520.0280.02.02``."""
    pci_ids: PciIds = ()
    """Allowed PCI device ids, four hexadecimal digits."""
    ecc: Literal["Enabled", "Disabled"] | None = None
    persistence: Literal["Enabled", "Disabled"] | None = None
    ecc_corrected_max: int | None = Field(default=None, ge=0)
    """Corrected errors of one GPU since its driver was loaded."""
    ecc_uncorrected_lifetime_max: int | None = Field(default=None, ge=0)
    """Uncorrectable errors of one GPU over its lifetime."""
    remapped_rows_max: int | None = Field(default=None, ge=0)
    """Rows of one GPU's memory that were replaced after uncorrectable errors."""
    mig: Literal["Enabled", "Disabled"] | None = None
    mig_profiles: MigProfiles | None = None
    """Partitions of every GPU: ``[3g.71gb, 3g.71gb]``; an empty list: none."""
    power_limit_w: float | None = Field(default=None, gt=0)
    """Enforced on every GPU; left out, it must be the GPU's default."""
    clocks: Clocks | None = None
    temperature_margin_min_c: float | None = Field(default=None, ge=0)
    """K between the GPU's current temperature and its slowdown temperature."""
    pcie_generation: int | None = None
    pcie_width: int | None = None
    topology: Name | None = None
    """Name of a graph of ``rackproof.core.topology``: the node's GPUs must be joined like it, in any order."""
    nvlink: Nvlink | None = None
    nvswitches: int | None = Field(default=None, ge=0)
    """NVSwitches that each node shows as PCI devices (up to Hopper)."""
    fabric: Literal["Completed"] | None = None
    """Fabric state of every GPU in nvidia-smi."""
    fabric_manager: Literal["active"] | None = None
    """The node runs a fabric manager of exactly the driver's version."""
    gpudirect: Literal["peermem", "dmabuf"] | None = None
    """How adapters reach GPU memory: through the module nvidia-peermem, or the kernel's DMA-BUF."""
    parameters: dict[Option, Value] | None = Field(default=None, min_length=1)
    """Active driver options, as ``/proc/driver/nvidia/params`` names them: ``RmProfilingAdminOnly: "0"``."""
    nccl: dict[Option, Value] | None = Field(default=None, min_length=1)
    """Lines that /etc/nccl.conf must have: ``NCCL_IB_TC: "106"``. Collectives count only if every rank has loaded
    ``NCCL_TOPO_FILE`` and has ``NCCL_MIN_NCHANNELS`` channels or more."""
    gds: Drivers = ()
    """File systems for which ``gdscheck -p`` must say Supported: ``NVMe``, ``NFS``, ``WekaFS`` …"""
    gds_fallback: bool | None = None
    """Whether cuFile may silently copy through host memory where GPUDirect Storage does not work."""
    dcgm_level: Literal[1] | None = None
    """Level of ``dcgmi diag`` that validators run: checks of the deployment, which have no name of their own. The tests
    of higher levels load the GPU, and which they are depends on DCGM's version: a profile has them run by their names
    (``profiles.*.gpu.diagnoses``)."""
    xid_allowed: Annotated[tuple[int, ...], BeforeValidator(_one_or_more(int))] = ()
    """Xids to ignore in the kernel log, besides those that NVIDIA's catalogue attributes to applications."""
    source: Name | None = None
    claim: Claims = ()


GPU_CHECKS: Final = checks_of(
    "gpu",
    Gpu,
    without="memory_tolerance_pct",
    memory_mib="memory",
    ecc="ecc_mode",
    ecc_corrected_max="ecc_corrected",
    ecc_uncorrected_lifetime_max="ecc_lifetime",
    remapped_rows_max="remapped_rows",
    power_limit_w="power_limit",
    temperature_margin_min_c="temperature",
    dcgm_level="dcgm",
    xid_allowed="xid",
)  # fmt: skip"""Key of ``gpu``: its check, required of every node of the role."""
