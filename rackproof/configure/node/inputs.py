"""Inputs of a node's own settings: the mapping ``node`` in group or host data."""

from __future__ import annotations

import os
import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints, field_validator

from rackproof.configure.settings import Inputs
from rackproof.core.architecture.node import Limit, Service, distinct
from rackproof.core.texts import Environment, FsLabel, KernelArgument, Line, Name, Path, UserName
from rackproof.errors import DeclarationError

_HASH = re.compile(r"^\$(?:y|gy|7|2[abxy]|6|5)\$[./A-Za-z0-9$,=+-]+$")


class User(Inputs):
    """One account. Its files and further groups are left alone."""

    name: UserName
    """Login name."""
    uid: int | None = Field(default=None, ge=1000, lt=65534)
    """The same number on every node, or files on shared storage change their owner. Default: the next free one."""
    groups: tuple[UserName, ...] = ()
    """Added to its groups; a missing group is made."""
    shell: Path = "/bin/bash"
    """Login shell. Default: the distribution's."""
    ssh_keys: tuple[Line, ...] = ()
    """Public keys, one line each. Empty leaves the user's file alone."""
    password_from: Environment | None = None
    """Environment variable, where the deploy runs, with a password's hash (``mkpasswd -m yescrypt``). The hash is
    never shown. Default: no password is set."""
    sudo: Line | None = None
    """Rights after the name in sudoers: ``ALL=(ALL) NOPASSWD: ALL``. Default: none."""

    def password_hash(self) -> str | None:
        """Raises DeclarationError when the variable is unset, or holds something else than a hash."""
        if self.password_from is None:
            return None
        value = os.environ.get(self.password_from)
        if not value:
            raise DeclarationError(f"user {self.name}: password_from: {self.password_from} is not set where this runs")
        if not _HASH.match(value):
            where = f"user {self.name}: password_from: {self.password_from}"
            raise DeclarationError(f"{where} holds no hash; make one with mkpasswd -m yescrypt")
        return value


class NodeInputs(Inputs):
    KEY: ClassVar = "node"

    kernel_arguments: tuple[KernelArgument, ...] = ()
    """Further arguments of the kernel, beside the architecture's ``system.cmdline_required``."""
    proposals: tuple[Literal["iommu", "numa_balancing", "init_on_alloc", "acs_redirection"], ...] = (
        "iommu",
        "numa_balancing",
        "init_on_alloc",
        "acs_redirection",
    )
    """Arguments for machines with NVIDIA GPUs where the architecture has none of that name: ``iommu=pt`` (on arm
    ``iommu.passthrough=1``), ``numa_balancing=disable``, ``init_on_alloc=0``, ``pci=disable_acs_redir=pci:0:0``.
    Source: NVIDIA's DGX OS (nv-iommu-pt, nvidia-acs-disable) and NVIDIA's tuned profiles. Empty: none.
    ``mitigations=off``, ``mce=ignore_ce`` and ``iommu=off`` are never proposed: the first is a decision about security,
    the second hides what an acceptance test looks for, the third breaks other drivers."""
    idle_limit: Literal["none", "latency", "cmdline"] = "none"
    """Keep processors out of deep idle states: ``latency`` asks the kernel at run time (a service holds
    ``/dev/cpu_dma_latency``), ``cmdline`` at boot (``processor.max_cstate=1``, on Intel ``intel_idle.max_cstate=1``).
    Default none: it costs power and turbo, and few clusters that publish their settings do it."""
    idle_latency_us: int = Field(default=0, ge=0, le=10000)
    """Longest wake-up that is allowed with ``latency``, microseconds. 0: the processors poll; 2 allows C1."""
    smt: bool | None = None
    """Several threads a core. Default: as the firmware has it."""
    nofile: int | None = Field(default=1048576, gt=0)
    """Open files of a login and of a service, where ``system.limits`` has no value. Source: AzHPC images and Google's
    Cluster Toolkit use 1048576."""
    nproc: Limit | None = None
    """Processes of a login and of a service. Default: the distribution's."""
    stack: Limit | None = None
    """Stack of a login and of a service, KiB. Default: the distribution's."""
    limited_services: tuple[Service, ...] = ("slurmd.service", "containerd.service")
    """Services that get the limits in a drop-in: their own unit files set others, which win over the manager's."""
    tuned_base: Name = "throughput-performance"
    """Profile that ``rackproof`` includes, where the architecture names that as ``system.tuned_profile``.
    Source: Oracle's HPC images."""
    timezone: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$")] | None = (
        None
    )
    """As timedatectl lists them: ``Etc/UTC``. Default: as it is."""
    irq_affinity: bool = True
    """Whether interrupts of network adapters are moved to processors beside them; only where the architecture has
    ``system.irqbalance: false``, or they would be moved again. ``system.irq_affinity: local`` takes precedence. Source:
    NVIDIA's set_irq_affinity scripts."""
    users: tuple[User, ...] = ()
    """Accounts of this node, beside the architecture's ``system.users``; of those only what the architecture leaves
    open, like ``password_from``. Default: none are touched."""
    passthrough: bool = False
    """Whether GPUs or ports of this node are passed to virtual machines, which needs ACS. It sets nothing: preflight
    reports what contradicts it (GPUDirect Storage). Default: no; ``vfio-pci.ids=`` among ``kernel_arguments`` means the
    same."""
    scratch_path: Path = "/scratch"
    """Mount point of the array of ``scratch_drives`` (host data: paths by id). The architecture's value for the
    role's ``scratch`` takes precedence over this and the three below."""
    scratch_fstype: Literal["xfs", "ext4"] = "xfs"
    """Source: AzHPC images and Oracle's stack use XFS."""
    scratch_label: FsLabel = "rp-scratch"
    """Name of the array and of its file system."""
    scratch_chunk_kib: int = Field(default=512, ge=4, le=65536)
    """Stripe of one drive, KiB. Default: mdadm's."""

    _each_user_once = field_validator("users")(distinct)
