"""The cluster that inventory and architecture describe, checked before anything is touched."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from rackproof.configure.packages import names_for
from rackproof.configure.slurm.inputs import SlurmInputs
from rackproof.core.architecture import Architecture, Slurm
from rackproof.core.machine import Machine
from rackproof.core.nearest import suggestion
from rackproof.core.rack import Node, Rack
from rackproof.core.version_numbers import numbers
from rackproof.errors import InventoryError


@dataclass(frozen=True, slots=True)
class Cluster:
    """Contents of slurm.conf, except for the nodes' hardware."""

    declared: Slurm
    inputs: SlurmInputs
    controller: str
    controller_address: str | None
    """Control address of the controller, if all members have one; None: the controller is reached by its name."""
    nodes: tuple[str, ...]
    """Nodes that run slurmd, in inventory order."""
    mig: bool = False
    """GPUs are given to jobs in partitions of MIG."""

    @property
    def members(self) -> tuple[str, ...]:
        """The controller and all nodes."""
        return tuple(dict.fromkeys((self.controller, *self.nodes)))

    @property
    def partitions(self) -> tuple[str, ...]:
        return self.declared.partitions or self.declared.roles[:1]

    @property
    def health_check(self) -> str | None:
        """Path of HealthCheckProgram; None without one, or if the interval is 0."""
        return self.declared.health_check if self.inputs.health_check_interval_s else None


def cluster_of(architecture: Architecture, rack: Rack, inputs: SlurmInputs) -> Cluster | None:
    """The cluster of a rack; None where the architecture has none, or its controller is outside the rack.

    Raises InventoryError, one line, when the architecture demands what this rack cannot have.
    """
    declared = architecture.slurm
    if declared is None or declared.controller_role is None:
        return None
    name = architecture.metadata.id
    for role in (declared.controller_role, *declared.roles):
        if role not in architecture.roles:
            raise InventoryError(
                f"{name}: slurm: no role '{role}' in this architecture; {suggestion(role, architecture.roles)}"
            )
    controllers = rack.group(declared.controller_role)
    if not controllers:
        raise InventoryError(f"{rack.source}: slurm: no node of role '{declared.controller_role}' for the controller")
    nodes = tuple(dict.fromkeys(node.name for role in declared.roles for node in rack.group(role)))
    if not nodes:
        raise InventoryError(f"{rack.source}: slurm: no node of {', '.join(declared.roles)} to run slurmd")
    if "gpu" in declared.gres:
        _check_gpus(architecture, declared.gres["gpu"])
    unknown = set(inputs.partition_options) - set(declared.partitions or declared.roles[:1])
    if unknown:
        word = sorted(unknown)[0]
        raise InventoryError(f"slurm.partition_options: the architecture has no partition '{word}'")
    order = {node.name: index for index, node in enumerate(rack.nodes)}
    first = controllers[0]
    members = (first, *(rack.node(name) for name in nodes))
    kind = architecture.fabric.kind if architecture.fabric else "none"
    return Cluster(
        declared=declared,
        inputs=inputs,
        controller=first.name,
        controller_address=(
            first.control_address(kind) if all(member.control_address(kind) for member in members) else None
        ),
        nodes=tuple(sorted(nodes, key=lambda node: order[node])),
        mig="gpu" in declared.gres and architecture.gpu is not None and architecture.gpu.mig == "Enabled",
    )


def _check_gpus(architecture: Architecture, wanted: int) -> None:
    name, gpu = architecture.metadata.id, architecture.gpu
    if gpu is None or gpu.count == 0:
        raise InventoryError(f"{name}: slurm.gres.gpu is {wanted}, and the architecture has no GPUs")
    if gpu.mig != "Enabled" and gpu.count != wanted:
        raise InventoryError(f"{name}: slurm.gres.gpu is {wanted}, gpu.count is {gpu.count}: make them agree")


def check_mig(cluster: Cluster, node: str) -> None:
    """Raises InventoryError where no method is left to find MIG devices.

    For a node with real GPUs. ``nvidia`` finds whole GPUs only, and ``off`` counts /dev/nvidiaN, which MIG devices lack
    (gres.conf(5)).
    """
    method = cluster.inputs.gres_autodetect
    if cluster.mig and method not in ("auto", "nvml"):
        raise InventoryError(
            f"{node}: slurm.gres_autodetect: {method} does not find partitions of MIG (gpu.mig: Enabled): say nvml,"
            " with a package of Slurm that has gpu_nvml.so, or gpu.mig: Disabled"
        )


def is_member(cluster: Cluster, node: Node) -> bool:
    return node.name in cluster.members


CGROUP_V2_SINCE: Final = "22.05"
"""First Slurm with the plugin cgroup/v2 (its RELEASE_NOTES)."""
V1_ONLY: Final = {("ubuntu", "22.04"): "21.08.5"}
"""Slurm of supported releases whose Slurm is older; they all boot with control groups v2 only."""
V1_ARGUMENT: Final = "systemd.unified_cgroup_hierarchy=0"
"""Kernel argument with which systemd mounts v1 (systemd(1))."""


def cgroup_problem(machine: Machine, locked: Mapping[str, str], arguments: Collection[str]) -> str | None:
    """Why slurmd would exit on this node, one line.

    ``locked``: versions of the version set by package; ``arguments``: of the kernel, running and required.
    """
    version = locked.get("slurmd") or V1_ONLY.get((machine.os_id, machine.os_version))
    if version is None or numbers(version) >= numbers(CGROUP_V2_SINCE) or V1_ARGUMENT in arguments:
        return None
    return (
        f"Slurm: {version} of {machine.label} knows control groups v1 only, and the node boots with v2, where slurmd"
        " does not start"
    )


def package_names(cluster: Cluster, node: Node, family: str) -> tuple[str, ...]:
    """Packages of a node, by the names of its distribution's family (``debian`` or ``rhel``)."""
    names = ["slurm-client"]
    if node.name == cluster.controller:
        names.append("slurmctld")
    if node.name in cluster.nodes:
        names.append("slurmd")
    return ("munge", *names_for(names, family))
