"""File systems as their clients see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from pydantic import Field

from rackproof.core.architecture.base import Claims, Model


class Storage(Model):
    """One file system as the clients see it. ``class`` is one of the storage classes of the vocabulary."""

    class_: Literal["local", "nfs", "parallel", "object"] = Field(alias="class")
    mountpoint: str
    fstype: str
    """As /proc/mounts names it: ext4, nfs4, ceph …"""
    source: str
    """local: file-system label; nfs: exported path on the server; parallel: the file system's name."""
    server_role: str | None = None
    client_roles: tuple[str, ...] = ("gpu",)
    transport: Literal["tcp", "rdma"] | None = None
    port: int | None = None
    options: tuple[str, ...] = ()
    """Mount options that are set."""
    options_required: tuple[str, ...] = ()
    """Options that the kernel must report in force."""
    options_forbidden: tuple[str, ...] = ()
    connections: int | None = Field(default=None, ge=1, le=16)
    """nconnect."""
    min_free_gb: float = 0.0
    """GB (10^9 B)."""
    mounts_per_client: int | None = Field(default=None, ge=1)
    """Separate mounts of the same export on every client, one for each server address."""
    mounts_balance: int | None = Field(default=None, ge=0)
    """By so many the mounts of two server addresses may differ."""
    managed: bool = True
    """False: an appliance; the deploys mount it and set nothing up behind it."""
    stat_timeout_s: float = Field(default=5.0, gt=0)
    """A mount that does not answer statfs within this many seconds is not usable."""
    note: str | None = None
    claim: Claims = ()


class Ceph(Model):
    """A Ceph cluster that the kit sets up itself (virtual rack)."""

    filesystem: str
    pool_size: int = Field(ge=1, le=3)
    osd_memory_target_mib: int = Field(default=896, ge=512)


STORAGE_CHECKS: Final[dict[str, tuple[str, Callable[[Storage], bool]]]] = {
    # key of a storage: check of every client, and whether what the key says asks for it
    "mountpoint": ("mount.mounted", lambda storage: True),
    "source": ("mount.source", lambda storage: True),
    "options_required": ("mount.options", lambda storage: bool(storage.options_required)),
    "transport": ("mount.transport", lambda storage: storage.transport is not None),
    "connections": ("mount.connections", lambda storage: (storage.connections or 0) > 1),
    "stat_timeout_s": ("mount.answers", lambda storage: True),
    "min_free_gb": ("mount.free", lambda storage: storage.min_free_gb > 0),
    "mounts_per_client": ("mount.count", lambda storage: storage.mounts_per_client is not None),
    "mounts_balance": ("mount.balance", lambda storage: storage.mounts_balance is not None),
}
