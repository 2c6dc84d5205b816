"""State of the operating system and the tools, as deploys set it and validators check it."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from rackproof.core.architecture.base import Model
from rackproof.core.architecture.node import Limits, User

Token = Annotated[str, StringConstraints(pattern=r"^[^\s\"']+$")]
"""One argument of the kernel: ``iommu=pt``."""
Module = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$")]
Package = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9+._-]*$")]
File = Annotated[str, StringConstraints(pattern=r"^/[^\n\\]*[^/\n\\]$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
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

    server_role: str | None = None
    """Null: the site's own time servers, from the inventory or the nodes' chrony.conf."""
    max_offset_ms: float = Field(default=100.0, gt=0)
    """The default is enough to correlate logs of several nodes."""


class System(Model):
    """State of the operating system on every node."""

    packages: tuple[str, ...] = ()
    sysctl: dict[str, str] = Field(default_factory=dict)
    limits_memlock: Literal["unlimited"] | int = "unlimited"
    """KiB, as in limits.conf."""
    transparent_hugepages: Literal["always", "madvise", "never"] = "madvise"
    cpu_governor: str | None = None
    """Applied and checked only where the kernel offers frequency scaling."""
    unattended_upgrades: Literal["frozen", "allowed"] = "frozen"
    time: TimeSync = TimeSync()
    kernel: str | None = None
    """Release of the running kernel, ``6.8.0-51-generic``; ``*`` matches anything."""
    cmdline_required: tuple[Token, ...] = ()
    """Required arguments of the running kernel: ``iommu=pt``."""
    cmdline_forbidden: tuple[Token, ...] = ()
    """Forbidden kernel arguments; a name alone covers every value."""
    modules: tuple[Module, ...] = ()
    """Kernel modules that must be loaded, or built in."""
    modules_forbidden: tuple[Module, ...] = ()
    """Kernel modules that must be neither loaded nor built in: ``nouveau``."""
    dkms: tuple[Module, ...] = ()
    """DKMS modules that must be installed for the running kernel. Installed by a version set or the GPU driver; others
    are only checked."""
    secure_boot: bool | None = None
    holds: tuple[Package, ...] = ()
    """Packages to hold once they are installed."""
    package_versions: dict[Package, str] | None = Field(default=None, min_length=1)
    """Package: exact version, or with ``*`` as wildcard. Installed by a version set; without one only checked."""
    version_set: Literal[True] | None = None
    """Every package of the version set that the inventory names (``versions_lock``) is installed at exactly its
    version and held, and the locked kernel runs."""
    files: dict[File, Sha256] | None = Field(default=None, min_length=1)
    """Path: sha256 of the content. Placed by a version set's ``files``; others are only checked."""
    kernel_log: tuple[KernelEvent, ...] = ()
    """Kinds of messages that the kernel must not have printed since it started."""
    swap: bool | None = None
    """Whether there is swap space."""
    clock_source: str | None = None
    """``tsc``: other sources need a system call to read the clock."""
    mitigations: Literal["active", "off"] | None = None
    """``active``: no CPU vulnerability is unmitigated; ``off``: booted with ``mitigations=off``."""
    hugepages: dict[int, int] | None = Field(default=None, min_length=1)
    """Page size in KiB: number of reserved pages."""
    irqbalance: bool | None = None
    """Whether the irqbalance daemon runs."""
    tuned_profile: str | None = None
    limits: Limits | None = None
    """Open files, processes and stack of logins and services."""
    users: tuple[User, ...] = ()
    irq_affinity: Literal["local"] | None = None
    """``local``: interrupts of NICs are pinned to CPUs of their NUMA node. Needs ``irqbalance: false``."""
    cmdline_next_boot: Literal[True] | None = None
    """Kernel arguments in the boot loader equal the running kernel's."""
    reboot_pending: Literal[False] | None = None
    """No change of the kit, package or kernel waits for a reboot."""

    @field_validator("users")
    @classmethod
    def _once(cls, users: tuple[User, ...]) -> tuple[User, ...]:
        for attribute in ("name", "uid"):
            values = [value for user in users if (value := getattr(user, attribute)) is not None]
            if twice := next((value for value in values if values.count(value) > 1), None):
                raise ValueError(f"duplicate {attribute} {twice}")
        return users

    @model_validator(mode="after")
    def _stays(self) -> Self:
        if self.irq_affinity and self.irqbalance is not False:
            raise ValueError("irq_affinity needs irqbalance: false; the daemon would move the interrupts again")
        return self


class Tools(Model):
    """Benchmark programs of every node, and their packages."""

    packages: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


SYSTEM_CHECKS: Final = {
    "kernel": "os.kernel",
    "cmdline_required": "os.cmdline_required",
    "cmdline_forbidden": "os.cmdline_forbidden",
    "modules": "os.modules",
    "modules_forbidden": "os.modules_forbidden",
    "dkms": "os.dkms",
    "secure_boot": "os.secure_boot",
    "holds": "os.holds",
    "package_versions": "os.package_versions",
    "version_set": "os.version_set",
    "files": "os.files",
    "kernel_log": "os.kernel_log",
    "swap": "os.swap",
    "clock_source": "os.clock_source",
    "mitigations": "os.mitigations",
    "hugepages": "os.hugepages",
    "irqbalance": "os.irqbalance",
    "tuned_profile": "os.tuned_profile",
    "users": "os.users",
    "irq_affinity": "os.irq_affinity",
    "cmdline_next_boot": "os.next_boot",
    "reboot_pending": "os.reboot_pending",
}
"""Key of ``system``: check of every node."""
