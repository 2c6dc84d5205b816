"""Inputs of collectives: their launch, and the guests of nodes. What they measure is the architecture's profile."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints, model_validator

from rackproof.configure.settings import Inputs
from rackproof.core.texts import Host, Name, Path, UserName

Domain = Annotated[str, StringConstraints(pattern=r"^([A-Za-z_]|[0-9]+[A-Za-z_.-])[A-Za-z0-9._+-]*$", max_length=200)]
"""``virsh`` takes a number for the id of a running domain."""


class CollectiveInputs(Inputs):
    """``collectives`` in the inventory's data; every node of the group that is measured must have the same."""

    KEY: ClassVar = "collectives"

    launcher: Literal["mpirun", "srun", "ssh"] = "mpirun"
    """Launcher of the processes of all nodes: Open MPI's ``mpirun`` over the kit's own connections, Slurm's ``srun``,
    or one command a node over ssh, which the engine ``torch`` alone can use between nodes. Default: ``mpirun``,
    because nccl-tests needs an MPI between nodes."""
    mpirun: Path | None = None
    """Absolute path of Open MPI's ``mpirun``, the same on all nodes. Default: the first of the one that
    the deploy built (``gpu.tools.openmpi``), the one on the PATH, ``/usr/lib64/openmpi`` (RHEL), ``/usr/mpi/gcc``
    (DOCA-OFED) and HPC-X in ``/opt`` that suits the engine."""
    python: Path | None = None
    """Absolute path of the Python that has torch. Default: ``python3`` on the PATH."""
    port: int = Field(default=29500, ge=1024, le=65535)
    """TCP port on the first node's fabric address where the engine ``torch`` brings its processes together.
    Default: torch's own."""
    partition: Name | None = None
    """Partition for ``srun``. Default: Slurm's own default partition."""


class GuestInputs(Inputs):
    """``guest`` in a node's data: a virtual machine of the node's libvirt that gets all its GPUs (``hostdev`` with
    ``managed='yes'``). The node's root can log in to it by ssh, and its known_hosts has the guest's host key. A step
    adds the account ``rackproof-bench`` to the guest."""

    KEY: ClassVar = "guest"

    domain: Domain | None = None
    """Name or UUID of the domain (``virsh -c qemu:///system list --all``), which is shut off except in its step.
    Default: none, and ``guest.collective_busbw`` is UNMEASURED."""
    address: Host | None = None
    """Name or address of the guest, seen from the node. Required with a domain."""
    port: int = Field(default=22, ge=1, le=65535)
    """Port of its ssh server. Default: ssh's own."""
    user: UserName = "root"
    """User of the guest; another one than root needs ``sudo`` without a password. Default: root, because only root
    reads the UUID of the machine."""
    ssh_key: Path | None = None
    """Private key on the node. Default: the keys of the node's root."""
    boot_s: int = Field(default=600, ge=10, le=3600)
    """Seconds from the start of the domain until its ssh server answers. Default: large, because the memory of a guest
    with GPUs is pinned before it boots."""
    shutdown_s: int = Field(default=120, ge=1, le=3600)
    """Seconds for a clean shutdown, before the domain is ended (``virsh destroy``). Default: more than systemd's 90 s
    for a service that does not stop."""

    @model_validator(mode="after")
    def _reachable(self) -> GuestInputs:
        if (self.domain is None) != (self.address is None):
            raise ValueError("domain and address must be given together")
        return self
