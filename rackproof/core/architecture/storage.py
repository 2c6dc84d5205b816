"""File systems as their clients see them, and the check of each key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from rackproof.core.architecture.base import Claims, Identifier, Model
from rackproof.core.rack import Node, Rack
from rackproof.core.texts import FsType, Host, MountOption, MountSource, Name, Path, Prose

CLIENTS: Final = ("lustre", "beegfs", "gpfs", "wekafs")
"""Parallel file systems whose client reports its state, by fstype. Ceph reports cluster state instead."""

TELL_TRANSPORT: Final = ("ceph", "lustre", "beegfs", "gpfs", "wekafs", "fuse.daos")
"""Parallel file systems whose client reports its transport."""

TELL_TARGETS: Final = ("lustre", "beegfs")
"""Parallel file systems whose client lists its connected targets."""


_SHOWN: Final = ("noatime", "relatime", "nodiratime", "nodev", "noexec", "nosuid", "sync")
"""Options that the kernel shows unchanged for any mount."""
_SHOWN_NFS: Final = ("vers", "proto", "hard", "soft", "nolock", "rsize", "wsize", "fsc", "sec")
"""Options that the kernel shows of an NFS mount, without ``nconnect``: only the mount that opened the connections has
it."""
_KERNEL_CLIENTS: Final = ("ceph", "lustre")
"""Parallel file systems whose mounts show options in the kernel's form."""
NFS_SYNONYMS: Final = {"nfsvers": "vers", "tcp": "proto=tcp", "rdma": "proto=rdma", "udp": "proto=udp"}


def canonical(option: str) -> str:
    """An NFS mount option as the kernel shows it: ``vers=3`` for ``nfsvers=3``, ``proto=rdma`` for ``rdma``."""
    key, equals, value = option.partition("=")
    return f"{NFS_SYNONYMS.get(key, key)}{equals}{value}"


def shown_options(class_: str, fstype: str, transport: str | None, options: tuple[str, ...]) -> tuple[str, ...]:
    """Options that the kernel must show for a mount with ``options``; empty where the client's own form differs."""
    if class_ != "nfs":
        if class_ != "local" and not (fstype in _KERNEL_CLIENTS and options):
            return ()
        shown = tuple(option for option in options if option in _SHOWN)
    else:
        by_name = {canonical(option).partition("=")[0]: canonical(option) for option in options}
        if transport and "proto" not in by_name:
            by_name["proto"] = f"proto={transport}"
        shown = tuple(by_name[key] for key in _SHOWN_NFS if key in by_name)
    return ("ro" if "ro" in options else "rw", *shown)


_OPTIONS: Final = TypeAdapter(tuple[MountOption, ...])


class Storage(Model):
    """One file system as the clients see it. ``class`` is one of the storage classes of the vocabulary."""

    class_: Literal["local", "nfs", "parallel", "object"] = Field(alias="class")
    mountpoint: Path
    """With ``mounts_per_client`` > 1, mount k (from 1) has the number k appended."""
    fstype: FsType
    """As /proc/mounts names it: ext4, nfs4, ceph …"""
    source: MountSource
    """local: file-system label; nfs: exported path on the server; parallel: the file system's name, of
    Ceph and Lustre with ``/PATH`` where clients mount a folder of it."""
    server_role: Name | None = None
    servers: tuple[Host, ...] = ()
    """Addresses or names that clients may mount from, for a server outside the inventory. The kit resolves no name: a
    mount has to use it as it is given here."""
    client_roles: tuple[Name, ...] = ("gpu",)
    transport: Literal["tcp", "rdma"] | None = None
    port: int | None = None
    options: tuple[MountOption, ...] = ()
    """Mount options that are set. For NFS ``proto``, ``port`` and ``nconnect`` follow from ``transport``, ``port`` and
    ``connections``."""
    options_required: tuple[MountOption, ...] = ()
    """Options that the kernel must report as active. Default: derived from ``options`` and ``transport``."""
    options_forbidden: tuple[MountOption, ...] = ()
    connections: int | None = Field(default=None, ge=1, le=16)
    """nconnect."""
    min_free_gb: float = 0.0
    """GB (10^9 B)."""
    max_used_pct: float | None = Field(default=None, gt=0, lt=100)
    """Share of the blocks; most file systems slow down long before they are full."""
    min_free_inodes: int | None = Field(default=None, ge=1)
    """Free inodes."""
    mounts_per_client: int | None = Field(default=None, ge=1)
    """Separate mounts of the same export on every client, one for each server address."""
    mounts_balance: int | None = Field(default=None, ge=0)
    """How far the numbers of mounts of two server addresses may differ on one client."""
    stat_latency_ms: float | None = Field(default=None, gt=0)
    """Median of several statfs calls on an idle client, each of which asks the server."""
    read_ahead_kib: int | None = Field(default=None, ge=0)
    """KiB that the kernel reads ahead of a sequential reader."""
    max_retransmit_pct: float | None = Field(default=None, ge=0, lt=100)
    """NFS: retransmitted calls since the mount, % of all calls."""
    max_timeouts: int | None = Field(default=None, ge=0)
    """NFS: calls since the mount that timed out after all retransmissions."""
    local_cache: Literal["fscache"] | None = None
    """NFS: reads are cached on a local drive (option ``fsc`` and an active cache)."""
    targets: int | None = Field(default=None, ge=1)
    """Parallel: data targets (OST, storage target) that every client must be connected to."""
    at_boot: bool | None = None
    """True: mounted at boot."""
    managed: bool = True
    """False: an appliance; deploys mount it and do not configure the server."""
    stat_timeout_s: float = Field(default=5.0, gt=0)
    """A mount that does not answer statfs within this many seconds is not usable."""
    note: Prose | None = None
    claim: Claims = ()

    @model_validator(mode="before")
    @classmethod
    def _derive_required_options(cls, data: Any) -> Any:
        """Fill in ``options_required`` where a file does not set it."""
        if not isinstance(data, dict) or data.get("options_required") is not None:
            return data
        try:
            options = _OPTIONS.validate_python(data.get("options") or ())
            class_ = str(data.get("class", data.get("class_")))
            required = shown_options(class_, data.get("fstype", ""), data.get("transport"), options)
            return {**data, "options_required": _OPTIONS.validate_python(required)}
        except ValidationError:  # reported at the keys themselves
            return data

    @property
    def file_system(self) -> str:
        """Name of the whole file system, of which ``source`` may be a folder."""
        return self.source.partition("/")[0] if self.fstype in _KERNEL_CLIENTS else self.source

    @property
    def mountpoints(self) -> tuple[str, ...]:
        """Mount points on a client."""
        count = self.mounts_per_client or 1
        return (self.mountpoint,) if count == 1 else tuple(f"{self.mountpoint}{k}" for k in range(1, count + 1))

    def clients(self, rack: Rack) -> list[str]:
        """Nodes that mount it, each once: a node may be in several groups."""
        return list(dict.fromkeys(node.name for role in self.client_roles for node in rack.group(role)))

    def server_nodes(self, rack: Rack) -> tuple[Node, ...]:
        """Nodes of the inventory that serve it."""
        return rack.group(self.server_role) if self.server_role else ()

    def addresses(self, rack: Rack) -> tuple[str, ...]:
        """Addresses of its servers: as given, or of the nodes that serve it; empty if nothing names any.

        All nodes of an appliance serve one file system; of servers that the deploys set up, only the first serves.
        """
        if self.servers:
            return tuple(dict.fromkeys(self.servers))
        nodes = self.server_nodes(rack)[: 1 if self.managed else None]
        return tuple(dict.fromkeys(address for node in nodes for address in node.server_addresses))

    @property
    def takes_connections(self) -> bool:
        """Whether a mount can have several connections: RDMA has one."""
        return self.class_ == "nfs" and self.transport != "rdma"

    @property
    def over_rdma(self) -> bool:
        """Whether it is NFS over RDMA, which its server can answer over TCP as well."""
        return self.class_ == "nfs" and self.transport == "rdma"

    @property
    def mounts_again(self) -> bool:
        """Whether a client can mount it once more beside the declared mount."""
        return self.fstype in ("nfs", "nfs4", "ceph", "lustre", "wekafs")

    @property
    def tells_transport(self) -> bool:
        """Whether the client reports its transport."""
        return self.class_ == "nfs" or (self.class_ == "parallel" and self.fstype in TELL_TRANSPORT)

    @property
    def tells_state(self) -> bool:
        """Whether the client reports its state, beyond being mounted."""
        return self.class_ == "parallel" and self.fstype in CLIENTS

    @property
    def tells_targets(self) -> bool:
        """Whether its client lists the targets that hold the data."""
        return self.class_ == "parallel" and self.fstype in TELL_TARGETS


class Ceph(Model):
    """A Ceph cluster that the kit sets up itself (virtual rack)."""

    filesystem: Identifier
    pool_size: int = Field(ge=1, le=3)
    osd_memory_target_mib: int = Field(default=896, ge=512)
    answer_timeout_s: float = Field(default=15.0, gt=0)
    """A cluster whose monitors do not answer within this many seconds is down."""


def _set(key: str) -> Callable[[Storage], bool]:
    return lambda storage: getattr(storage, key) is not None


def _nfs_set(key: str) -> Callable[[Storage], bool]:
    return lambda storage: storage.class_ == "nfs" and getattr(storage, key) is not None


STORAGE_CHECKS: Final[dict[str, tuple[str, Callable[[Storage], bool]]]] = {
    # key of a storage: check of every client, and whether the key's value requires it
    "mountpoint": ("mount.mounted", lambda storage: True),
    "source": ("mount.source", lambda storage: True),
    "options_required": ("mount.options", lambda storage: bool(storage.options_required or storage.options_forbidden)),
    "transport": ("mount.transport", lambda storage: storage.transport is not None and storage.tells_transport),
    "connections": ("mount.connections", lambda storage: (storage.connections or 0) > 1 and storage.class_ == "nfs"),
    "stat_timeout_s": ("mount.answers", lambda storage: True),
    "min_free_gb": ("mount.free", lambda storage: storage.min_free_gb > 0),
    "max_used_pct": ("mount.used", _set("max_used_pct")),
    "min_free_inodes": ("mount.inodes", _set("min_free_inodes")),
    "mounts_per_client": ("mount.count", _set("mounts_per_client")),
    "mounts_balance": ("mount.balance", _set("mounts_balance")),
    "stat_latency_ms": ("mount.latency", _set("stat_latency_ms")),
    "read_ahead_kib": ("mount.read_ahead", _set("read_ahead_kib")),
    "max_retransmit_pct": ("mount.retransmissions", _nfs_set("max_retransmit_pct")),
    "max_timeouts": ("mount.timeouts", _nfs_set("max_timeouts")),
    "local_cache": ("mount.cache", _nfs_set("local_cache")),
    "at_boot": ("mount.at_boot", lambda storage: bool(storage.at_boot)),
    "fstype": ("mount.client", lambda storage: storage.tells_state),
    "targets": ("mount.targets", lambda storage: storage.targets is not None and storage.tells_targets),
}
