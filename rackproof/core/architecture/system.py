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
    "hard_lockup",
    "hung_task",
    "io_error",
    "kernel_bug",
    "machine_check",
    "memory_error",
    "nfs_timeout",
    "nvme_timeout",
    "out_of_memory",
    "rcu_stall",
    "soft_lockup",
    "thermal",
]


class TimeSync(Model):
    """One node serves the time, the others follow it."""

    server_role: str | None = None
    """Null: the site has time servers of its own, which the inventory or the nodes' own chrony.conf names."""
    max_offset_ms: float = Field(default=100.0, gt=0)
    """The default is enough to line up the logs of different nodes."""


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
    """Arguments that the running kernel was started with: ``iommu=pt``."""
    cmdline_forbidden: tuple[Token, ...] = ()
    """Arguments that it must not have been started with; a name alone means every value of it."""
    modules: tuple[Module, ...] = ()
    """Kernel modules that must be loaded, or built in."""
    modules_forbidden: tuple[Module, ...] = ()
    """Kernel modules that must be neither loaded nor built in: ``nouveau``."""
    dkms: tuple[Module, ...] = ()
    """Names of DKMS modules that must be installed for the running kernel. Set by what builds them: a version set, or
    the GPU driver; of others it is checked only."""
    secure_boot: bool | None = None
    holds: tuple[Package, ...] = ()
    """Packages that the package manager must not change: installed by whatever brings them, and held at the end."""
    package_versions: dict[Package, str] | None = Field(default=None, min_length=1)
    """Package: version, to the last digit, or with ``*`` for anything. Set by a version set; without one it is checked
    only."""
    version_set: Literal[True] | None = None
    """Every package of the version set that the inventory names (``versions_lock``) is installed at exactly its
    version and held, and the locked kernel runs."""
    files: dict[File, Sha256] | None = Field(default=None, min_length=1)
    """Path: sha256 of what the file must contain. Set by a version set's ``files``; of others it is checked only."""
    kernel_log: tuple[KernelEvent, ...] = ()
    """Kinds of messages that the kernel must not have printed since it started."""
    swap: bool | None = None
    """Whether there is swap space."""
    clock_source: str | None = None
    """``tsc``: everything slower costs a system call for each look at the clock."""
    mitigations: Literal["active", "off"] | None = None
    """``active``: no weakness of the processors is open; ``off``: the kernel was started with ``mitigations=off``."""
    hugepages: dict[int, int] | None = Field(default=None, min_length=1)
    """Size in KiB: how many pages of it are reserved."""
    irqbalance: bool | None = None
    """Whether the daemon runs that moves interrupts between processors."""
    tuned_profile: str | None = None
    limits: Limits | None = None
    """Open files, processes and stack of logins and services."""
    users: tuple[User, ...] = ()
    irq_affinity: Literal["local"] | None = None
    """``local``: interrupts of network cards come in on processors of their NUMA node. Needs ``irqbalance: false``."""
    cmdline_next_boot: Literal[True] | None = None
    """The boot loader starts every kernel with the arguments that the running one has: none waits for a reboot."""
    reboot_pending: Literal[False] | None = None
    """Nothing waits for a reboot: no change of the kit's, no package, no installed kernel that was promised."""

    @field_validator("users")
    @classmethod
    def _once(cls, users: tuple[User, ...]) -> tuple[User, ...]:
        for attribute in ("name", "uid"):
            values = [value for user in users if (value := getattr(user, attribute)) is not None]
            if twice := next((value for value in values if values.count(value) > 1), None):
                raise ValueError(f"{attribute} {twice} is there twice")
        return users

    @model_validator(mode="after")
    def _stays(self) -> Self:
        if self.irq_affinity and self.irqbalance is not False:
            raise ValueError("irq_affinity needs irqbalance: false; the daemon would move the interrupts again")
        return self


class Tools(Model):
    """Benchmark programs on every node: package and the program that proves it."""

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
"""Key of ``system`` whose value is asked for on every node where it is set: check."""
