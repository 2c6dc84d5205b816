"""Checks that a node must answer because of its roles, fabric and GPUs, without a key of their own.

With ``expectations`` these are all checks of the kit's validators. Validators decide independently where they run; a
test compares both for every published architecture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from rackproof.core.architecture.expectations import (
    ExpectedCheck,
    on_fabric,
    role_with,
    served_items,
    shares_gpu_memory,
)
from rackproof.core.architecture.models import Architecture

EVERY_NODE: Final = {
    # check: key that it reads
    "base.failed_units": "system",
    "base.kernel": "system.packages",
    "base.memlock_login": "system.limits_memlock",
    "base.memlock_services": "system.limits_memlock",
    "base.packages": "system.packages",
    "base.time_compared": "system.time.max_offset_ms",
    "base.time_offset": "system.time.max_offset_ms",
    "base.time_synchronised": "system.time.server_role",
    "base.transparent_hugepages": "system.transparent_hugepages",
    "os.kernel_complaints": "system.kernel_log",
}

EVERY_RAIL: Final = {
    "fabric.address": "fabric.rails",
    "fabric.link": "fabric.rails",
    "fabric.mtu": "fabric.mtu",
    "fabric.port": "fabric.interface_prefix",
    "fabric.port_sysctl": "fabric.rails",
    "fabric.rdma": "fabric.rdma_prefix",
}

EVERY_GPU_NODE: Final = {
    "gpu.healthy": "gpu",
    "gpu.power_limit": "gpu.power_limit_w",
    "gpu.throttling": "gpu",
    "gpu.uniform": "gpu",
}

WITH_ECC: Final = ("gpu.ecc_errors", "gpu.page_retirement", "gpu.row_remapping")

REAL_GPUS: Final = {
    # need a driver and a kernel, which simulated GPUs lack
    "gpu.bound": "gpu.driver",
    "gpu.kernel_module": "gpu.driver",
    "gpu.on_bus": "gpu.count",
    "gpu.xid": "gpu.xid_allowed",
}

ACROSS_NODES: Final = ("gpu.nvlink_domain", "gpu.imex")

CLUSTER: Final = {
    "ceph.answers": "ceph",
    "ceph.health": "ceph",
    "ceph.metadata_server": "ceph.filesystem",
    "ceph.osds": "ceph",
    "ceph.placement_groups": "ceph",
    "ceph.pool_size": "ceph.pool_size",
}

SERVER: Final = ("storage_server.drive", "storage_server.export", "storage_server.listens", "storage_server.version")


@dataclass(frozen=True, slots=True)
class Place:
    """Properties of a node that determine its checks, besides the architecture."""

    groups: tuple[str, ...]
    leads: tuple[str, ...] = ()
    """Roles whose first node, the server, it is."""
    simulated_gpus: bool = False
    nodes: int = 1
    """Number of nodes in the rack."""
    gpu_nodes: int = 1


def node_checks(architecture: Architecture, place: Place) -> Iterator[ExpectedCheck]:
    """All checks that such a node must answer besides those of ``expected_checks``."""
    for check, item, key in (
        *_of_system(architecture, place),
        *_of_hardware(architecture, place),
        *_of_fabric(architecture, place),
        *_of_gpus(architecture, place),
        *_of_server(architecture, place),
    ):
        yield ExpectedCheck("", check, item, key)


CheckKey = tuple[str, str, str]
"""Check, item, key."""


def _of_system(architecture: Architecture, place: Place) -> Iterator[CheckKey]:
    yield from _plain(EVERY_NODE)
    if architecture.system.cpu_governor is not None:
        yield "base.cpu_governor", "", "system.cpu_governor"
    if architecture.system.unattended_upgrades == "frozen":
        yield "base.updates_stopped", "", "system.unattended_upgrades"
        yield "base.apt_periodic", "", "system.unattended_upgrades"
    for program in architecture.programs_of(place.groups):
        yield "tools.starts", program, "tools.programs"
    if "python3-mpi4py" in architecture.tools.packages:
        yield "tools.mpi4py", "", "tools.packages"


def _of_hardware(architecture: Architecture, place: Place) -> Iterator[CheckKey]:
    if role := role_with(architecture, place.groups, "nics"):
        prefix = f"roles.{role}.expect.nics"
        for nic in architecture.roles[role].expect.nics:
            yield "nic.state", nic.purpose, f"{prefix}.{nic.purpose}.count"
        yield "bond.members", "", prefix
    if role := role_with(architecture, place.groups, "drives"):
        for drives in architecture.roles[role].expect.drives:
            if drives.kind == "nvme":
                yield "drives.warning", drives.use, f"roles.{role}.expect.drives.{drives.use}"


def _of_fabric(architecture: Architecture, place: Place) -> Iterator[CheckKey]:
    fabric = architecture.fabric
    if fabric is None:
        return
    if on_fabric(architecture, place.groups):
        for rail in range(fabric.rails):
            port = f"{fabric.interface_prefix}{rail}"
            for check, key in EVERY_RAIL.items():
                yield check, port, key
            if place.nodes > 1:
                yield "fabric.jumbo", port, "fabric.mtu"
            if place.nodes > 1 and fabric.loss_max_pct is not None:
                yield "fabric.loss", port, "fabric.loss_max_pct"
        yield "fabric.names", "", "fabric.rails"
    if "gpu" in place.groups and place.gpu_nodes > 1:
        yield "fabric.ssh", "", "roles.gpu.count"


def _of_gpus(architecture: Architecture, place: Place) -> Iterator[CheckKey]:
    gpu = architecture.gpu
    if gpu is None or not gpu.count or "gpu" not in place.groups:
        return
    yield from _plain(EVERY_GPU_NODE)
    if gpu.nvlink is not None:
        yield "gpu.nvlink_errors", "", "gpu.nvlink"
    if gpu.ecc == "Enabled":
        for check in WITH_ECC:
            yield check, "", "gpu.ecc"
    if not place.simulated_gpus:
        yield from _plain(REAL_GPUS)
        if shares_gpu_memory(architecture, place.groups):
            for check in ACROSS_NODES:
                yield check, "", f"roles.{role_with(architecture, place.groups, 'services')}.expect.services"


def _of_server(architecture: Architecture, place: Place) -> Iterator[CheckKey]:
    served = [storage for storage in architecture.storage.values() if storage.server_role in place.leads]
    if any(storage.class_ == "nfs" for storage in served):
        yield "storage_server.running", "", "storage"
        for check in SERVER:
            for item in served_items(architecture, check, place.leads):
                yield check, item, "storage"
    if architecture.ceph is not None and any(storage.fstype == "ceph" for storage in served):
        yield from _plain(CLUSTER)


def _plain(checks: dict[str, str]) -> Iterable[CheckKey]:
    return ((check, "", key) for check, key in checks.items())
