"""Slurm and the container runtime of an architecture, and the check of each key."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from rackproof.core.architecture.base import Claims, Identifier, Model, checks_of
from rackproof.core.texts import Name, Path, Version


class Slurm(Model):
    """Slurm on every node of ``roles``. Slurm's node names are the inventory's."""

    roles: tuple[Name, ...] = Field(default=("gpu",), min_length=1)
    """Roles that run slurmd."""
    controller_role: Name | None = None
    """The first node of this role runs slurmctld, and the kit sets Slurm up. Null: the controller is outside
    the rack, and these keys are only checked."""
    version: Version | None = None
    """Version prefix of controller and nodes: ``24.11``."""
    gres: dict[Identifier, int] = Field(default_factory=dict)
    """Generic resources of every node, all types together: ``gpu: 8``."""
    partitions: tuple[Name, ...] = ()
    """Partitions that are up and hold every node of ``roles``."""
    memory_tolerance_pct: float = Field(default=10.0, ge=0, le=50)
    """How far the configured memory may be below the node's actual memory; never above."""
    health_check: Path | None = None
    """Absolute path of ``HealthCheckProgram``."""
    munge: bool = True
    """False where another plugin authenticates."""
    max_clock_skew_s: float = Field(default=5.0, ge=1)
    """Between node and controller; credentials expire after minutes."""
    pyxis: bool | None = None
    """Jobs may ask for a container (``srun --container-image``)."""
    source: Name | None = None
    claim: Claims = ()

    def set_up_on(self, groups: Collection[str]) -> bool:
        """Whether the kit sets up slurmd on a node of these groups, and may drain it: the controller is the rack's."""
        return self.controller_role is not None and not set(self.roles).isdisjoint(groups)


class Containers(Model):
    """The container runtime of every node of ``roles``."""

    roles: tuple[Name, ...] = Field(default=("gpu",), min_length=1)
    runtime: Literal["docker", "containerd", "podman", "enroot"]
    version: Version | None = None
    """Version prefix: ``27.3``."""
    storage_driver: Name | None = None
    """overlay2, overlayfs, overlay …"""
    data_root: Path | None = None
    """Directory of images and layers."""
    rootless: bool | None = None
    default_runtime: Name | None = None
    """``runc``, ``nvidia`` …"""
    nvidia_runtime: bool | None = None
    """The NVIDIA runtime (enroot: its hook) is installed."""
    cdi: bool | None = None
    """Every GPU of the node is a CDI device."""
    mounts: tuple[Identifier, ...] = ()
    """Storage that is mounted in the daemon's namespace, for bind mounts into containers."""
    bridge: tuple[Identifier, ...] = ()
    """Storage that an unprivileged user's container can read and write as that user, without extra privileges."""
    rdma: bool | None = None
    """An unprivileged container has the node's RDMA devices and may pin memory."""
    source: Name | None = None
    claim: Claims = ()

    @model_validator(mode="after")
    def _answerable(self) -> Self:
        unanswered = [key for key in _UNANSWERED[self.runtime] if getattr(self, key) not in (None, ())]
        if unanswered:
            raise ValueError(f"{self.runtime} has no check for {', '.join(unanswered)}")
        return self


_UNANSWERED: Final = {
    "docker": (),
    "containerd": ("rootless", "bridge", "rdma"),
    "podman": ("mounts",),
    "enroot": ("storage_driver", "data_root", "rootless", "default_runtime", "mounts"),
}
"""Keys of ``containers`` without a check, by runtime."""

SLURM_ALWAYS: Final = ("slurm.controller", "slurm.slurmd", "slurm.node_state", "slurm.config")
"""Checks of every node of Slurm's roles, always."""

SLURM_CHECKS: Final = checks_of(
    "slurm", Slurm, without="roles",
    controller_role="controller", partitions="partition", memory_tolerance_pct="registered", max_clock_skew_s="clock",
)  # fmt: skip
"""Items of slurm.partition are the partitions, of slurm.gres the resources."""

CONTAINER_CHECKS: Final = checks_of("container", Containers, without="roles", runtime="answers", mounts="mount")
"""Items of container.mount and container.bridge are the names of storage."""

_ONLY_TRUE: Final = ("munge", "pyxis", "nvidia_runtime", "cdi", "rdma")


def asks(part: Slurm | Containers, key: str) -> bool:
    """Whether the value of a key of ``slurm`` or ``containers`` requires its check."""
    value: Any = getattr(part, key)
    if key in _ONLY_TRUE:
        return bool(value)
    return value is not None and value != () and value != {}


def service_items(slurm: Slurm | None, containers: Containers | None, check: str) -> tuple[str, ...]:
    """Items of a check of ``slurm`` or ``containers``; none for a check without items."""
    items: dict[str, Iterable[str]] = {}
    if slurm:
        items |= {"slurm.gres": slurm.gres, "slurm.partition": slurm.partitions}
    if containers:
        items |= {"container.mount": containers.mounts, "container.bridge": containers.bridge}
    return tuple(items.get(check, ()))
