"""Inputs of collectives: how they are launched. What they measure is the architecture's profile."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from rackproof.configure.settings import Inputs
from rackproof.core.texts import Name, Path


class CollectiveInputs(Inputs):
    """``collectives`` in the inventory's data; every node of the group that is measured must have the same."""

    KEY: ClassVar = "collectives"

    launcher: Literal["mpirun", "srun", "ssh"] = "mpirun"
    """What starts the processes of all nodes: Open MPI's ``mpirun`` over the kit's own connections, Slurm's ``srun``,
    or one command a node over ssh, which the engine ``torch`` alone can use between nodes. Default: ``mpirun``,
    because nccl-tests needs an MPI between nodes."""
    mpirun: Path | None = None
    """Absolute path of Open MPI's ``mpirun``, the same on all nodes. Default: the first of the one on the PATH,
    ``/usr/lib64/openmpi`` (RHEL), ``/usr/mpi/gcc`` (DOCA-OFED) and HPC-X in ``/opt`` that suits the engine."""
    python: Path | None = None
    """Absolute path of the Python that has torch. Default: ``python3`` on the PATH."""
    port: int = Field(default=29500, ge=1024, le=65535)
    """TCP port on the first node's fabric address where the engine ``torch`` brings its processes together.
    Default: torch's own."""
    partition: Name | None = None
    """Partition for ``srun``. Default: Slurm's own default partition."""
