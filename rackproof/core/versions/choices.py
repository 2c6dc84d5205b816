"""Input of the rules on conflicts: architecture, version set, and a site's other choices. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from rackproof.core.architecture import Architecture
from rackproof.core.architecture.network import Lossless
from rackproof.core.gpu_generations import Generation, generation_of_model
from rackproof.core.versions.models import Components

NFS_REPLACED_BY: Final = ("vastnfs", "dellnfs")
"""Clients that replace the kernel's modules sunrpc, nfs and rpcrdma."""


@dataclass(frozen=True, slots=True)
class Choices:
    """A site's choices beside architecture and version set; the same for every node of a role."""

    cmdline: tuple[str, ...] = ()
    """Kernel arguments that the deploys set, beside ``system.cmdline_required``."""
    driver_options: Mapping[str, str] = field(default_factory=dict)
    """Options of the nvidia module: ``NVreg_EnableGpuFirmware: "0"``."""
    nccl: Mapping[str, str] = field(default_factory=dict)
    """Environment of NCCL: ``NCCL_IB_TC: "106"``."""
    switch_cnp_dscp: int | None = None
    """DSCP that the switches treat as congestion notifications."""
    gds: bool = False
    """GPUDirect Storage is requested, beside ``gpu.gds``."""
    secure_boot: bool | None = None
    """As nodes report; None where it was not read."""
    nfs_driver: str | None = None
    """The inventory's NFS client: ``kernel``, ``vastnfs``, ``dellnfs``; None without NFS mounts."""
    virtualised: bool = False
    """These nodes pass GPUs or ports to virtual machines."""
    weka_cores: int = 0
    """Number of cores that WEKA's client polls on; 0 where it is not mounted, or uses UDP."""
    weka_cores_named: bool = False
    """Whether the inventory names these cores."""
    slurm_kept: int | None = None
    """Number of processors reserved from Slurm's jobs; None on a node whose slurmd the kit does not set up."""
    roles: tuple[str, ...] | None = None
    """Roles of the node; None: any."""
    nic_source: str | None = None
    """The inventory's ``nic.source``."""
    pci_settings: tuple[str, ...] = ()
    """Keys of ``nic`` that are set in the adapters' configuration space: ``max_read_request``."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a conflict."""

    party: str
    """Vendor, profile or file: ``WEKA``, ``fabric.kind: roce``."""
    wants: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Input of the rules."""

    architecture: Architecture
    components: Components
    choices: Choices

    @property
    def clients(self) -> frozenset[str]:
        types = {storage.fstype for storage in self.architecture.storage.values()}
        named = {{"wekafs": "weka"}.get(filesystem, filesystem) for filesystem in types}
        return frozenset({*named, *map(str, self.components.clients)})

    @property
    def replaced_nfs(self) -> str | None:
        """The client that replaces the kernel's NFS modules, if one is chosen or locked."""
        if self.choices.nfs_driver in NFS_REPLACED_BY:
            return self.choices.nfs_driver
        return next((name for name in NFS_REPLACED_BY if name in self.clients), None)

    @property
    def cmdline(self) -> tuple[str, ...]:
        return (*self.architecture.system.cmdline_required, *self.choices.cmdline)

    @property
    def roce(self) -> bool:
        return self.architecture.fabric is not None and self.architecture.fabric.kind == "roce"

    @property
    def lossless(self) -> Lossless | None:
        return self.architecture.fabric.lossless if self.architecture.fabric else None

    @property
    def gds(self) -> bool:
        gpu = self.architecture.gpu
        return self.choices.gds or self.components.gds is not None or bool(gpu and gpu.gds)

    @property
    def secure_boot(self) -> bool:
        declared = self.architecture.system.secure_boot
        return bool(self.choices.secure_boot if declared is None else declared)

    @property
    def network_stack(self) -> str:
        """``doca``, ``mlnx_ofed`` or ``inbox``."""
        network = self.components.network
        return self.choices.nic_source or (network.stack if network else "inbox")

    @property
    def generation(self) -> Generation | None:
        gpu = self.architecture.gpu
        return generation_of_model(gpu.model) if gpu and gpu.count else None

    def wants_iommu(self) -> str:
        """The kernel argument that turns the IOMMU on; empty without one."""
        on = ("iommu=pt", "iommu=on", "intel_iommu=on", "amd_iommu=on", "iommu.passthrough=1")
        return next((word for word in self.cmdline if word in on), "")

    def wants_no_iommu(self) -> str:
        off = ("iommu=off", "intel_iommu=off", "amd_iommu=off")
        return next((word for word in self.cmdline if word in off), "")


Rule = Callable[[Plan], Iterator[tuple[Side, Side, str, str]]]
"""Yields both sides, the consequence, and the remedy."""
