"""State of the operating system and the tools, as deploys set it and validators check it."""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from rackproof.core.architecture.base import Model, checks_of
from rackproof.core.architecture.node import Limits, User, distinct
from rackproof.core.texts import (
    Governor,
    KernelArgument,
    Module,
    Name,
    Path,
    Sha256,
    SysctlKey,
    SysctlValue,
    VersionPattern,
)

KernelEvent = Literal[
    "clock_unstable",
    "file_system",
    "gpu_driver",
    "hard_lockup",
    "hung_task",
    "io_error",
    "iommu_fault",
    "kernel_bug",
    "machine_check",
    "memory_error",
    "nfs_timeout",
    "nic_driver",
    "nvme_timeout",
    "out_of_memory",
    "parallel_fs",
    "pcie_error",
    "rcu_stall",
    "soft_lockup",
    "thermal",
]


class TimeSync(Model):
    """One node serves the time; the others synchronise to it."""

    server_role: Name | None = None
    """Null: the site's own time servers, from the inventory or the nodes' chrony.conf."""
    max_offset_ms: float = Field(default=100.0, gt=0)
    """The default is enough to correlate logs of several nodes."""


class System(Model):
    """State of the operating system on every node."""

    packages: tuple[Name, ...] = ()
    sysctl: dict[SysctlKey, SysctlValue] = Field(default_factory=dict)
    limits_memlock: Literal["unlimited"] | int = "unlimited"
    """KiB, as in limits.conf."""
    transparent_hugepages: Literal["always", "madvise", "never"] = "madvise"
    cpu_governor: Governor | None = None
    """Applied and checked only where the kernel offers frequency scaling."""
    unattended_upgrades: Literal["frozen", "allowed"] = "frozen"
    time: TimeSync = TimeSync()
    kernel: VersionPattern | None = None
    """Release of the running kernel, ``6.8.0-51-generic``; ``*`` matches anything."""
    cmdline_required: tuple[KernelArgument, ...] = ()
    """Required arguments of the running kernel: ``iommu=pt``."""
    cmdline_forbidden: tuple[KernelArgument, ...] = ()
    """Forbidden kernel arguments; a name alone covers every value."""
    modules: tuple[Module, ...] = ()
    """Kernel modules that must be loaded, or built in."""
    modules_forbidden: tuple[Module, ...] = ()
    """Kernel modules that must be neither loaded nor built in: ``nouveau``."""
    dkms: tuple[Module, ...] = ()
    """DKMS modules that must be installed for the running kernel. Installed by a version set or the GPU driver; others
    are only checked."""
    secure_boot: bool | None = None
    holds: tuple[Name, ...] = ()
    """Packages to hold once they are installed."""
    package_versions: dict[Name, VersionPattern] | None = Field(default=None, min_length=1)
    """Package: exact version, or with ``*`` as wildcard. Installed by a version set; without one only checked."""
    version_set: Literal[True] | None = None
    """Every package of the version set that the inventory names (``versions_lock``) is installed at exactly its
    version and held, and the locked kernel runs."""
    files: dict[Path, Sha256] | None = Field(default=None, min_length=1)
    """Path: sha256 of the content. Placed by a version set's ``files``; others are only checked."""
    kernel_log: tuple[KernelEvent, ...] = ()
    """Kinds of messages that the kernel must not have printed since it started."""
    swap: bool | None = None
    """Whether there is swap space."""
    clock_source: Name | None = None
    """``tsc``: other sources need a system call to read the clock."""
    mitigations: Literal["active", "off"] | None = None
    """``active``: no CPU vulnerability is unmitigated; ``off``: booted with ``mitigations=off``."""
    hugepages: dict[int, int] | None = Field(default=None, min_length=1)
    """Page size in KiB: number of reserved pages."""
    irqbalance: bool | None = None
    """Whether the irqbalance daemon runs."""
    tuned_profile: Name | None = None
    limits: Limits | None = None
    """Open files, processes and stack of logins and services."""
    users: tuple[User, ...] = ()
    irq_affinity: Literal["local"] | None = None
    """``local``: interrupts of NICs are pinned to CPUs of their NUMA node. Needs ``irqbalance: false``."""
    cmdline_next_boot: Literal[True] | None = None
    """Kernel arguments in the boot loader equal the running kernel's."""
    reboot_pending: Literal[False] | None = None
    """No change of the kit, package or kernel waits for a reboot."""

    _each_user_once = field_validator("users")(distinct)

    @model_validator(mode="after")
    def _stays(self) -> Self:
        if self.irq_affinity and self.irqbalance is not False:
            raise ValueError("irq_affinity needs irqbalance: false; the daemon would move the interrupts again")
        return self


OF_GPUS: Final = frozenset({"dcgmi", "nvbandwidth", "nvidia-smi"})
NCCL_TESTS: Final = "_perf"
"""End of the names of nccl-tests' programs: ``all_reduce_perf``."""


def of_gpus(program: str) -> bool:
    """Whether a program has nothing to measure on a node without GPUs."""
    return program in OF_GPUS or program.endswith(NCCL_TESTS)


def between_nodes(program: str) -> bool:
    """Whether a program measures what nodes exchange: perftest, iperf3, and the launcher of collectives."""
    return program in ("iperf3", "mpirun") or program.startswith("ib_")


class Tools(Model):
    """Benchmark programs, and their packages. ``Architecture.programs_of`` says which nodes are asked for a program."""

    packages: tuple[Name, ...] = ()
    programs: tuple[Name, ...] = ()


SYSTEM_CHECKS: Final = checks_of(
    "os", System,
    without="packages sysctl limits_memlock transparent_hugepages cpu_governor unattended_upgrades time limits",
    cmdline_next_boot="next_boot",
)  # fmt: skip
