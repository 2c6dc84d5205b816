"""The virtual rack as the inventory would describe it, without one being up."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from rackproof import architectures
from rackproof.configure.site import Site, settings_of
from rackproof.core.architecture import Architecture
from rackproof.core.rack import Node, Rack


@lru_cache(maxsize=1)
def architecture() -> Architecture:
    return architectures.load("virtual-rack").model


def node(name: str, role: str, index: int, **data: Any) -> Node:
    drives = {
        "gpu": {"data_drive": "/dev/disk/by-id/nvme-*_rplocal"},
        "storage": {"nfs_drive": "/dev/disk/by-id/nvme-*_rpnfs", "ceph_drive": "/dev/disk/by-id/nvme-*_rpceph"},
    }
    common = {
        "fabric_addresses": [f"10.77.0.{index}/24"],
        "fabric_macs": [f"52:54:77:20:00:{index:02x}"],
        "simulated_gpus": role == "gpu",
        "virtual": True,
    }
    return Node(name, (role,), {**common, **drives[role], **data})


def rack() -> Rack:
    return Rack("test", (node("gpu-01", "gpu", 21), node("gpu-02", "gpu", 22), node("storage-01", "storage", 11)))


def site(name: str = "gpu-01", arch: Architecture | None = None, whole: Rack | None = None) -> Site:
    arch, whole = arch or architecture(), whole or rack()
    here = whole.node(name)
    return Site(whole, arch, here, settings_of(here, arch))
