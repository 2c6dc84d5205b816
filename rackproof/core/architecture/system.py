"""State of the operating system, the fabric and the tools, as deploys set it and validators check it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rackproof.core.architecture.base import Claims, Model


class TimeSync(Model):
    """One node serves the time, the others follow it."""

    server_role: str | None = None
    """Null: the site has time servers of its own."""
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


class Lossless(Model):
    """How RoCE keeps from losing packets."""

    pfc_priority: int | None = Field(default=None, ge=0, le=7)
    """The class that is paused."""
    ecn: bool | None = None
    gid_index: int | None = Field(default=None, ge=0)
    """Of the RoCE v2 address."""


class Fabric(Model):
    """The network between nodes that carries storage and collectives."""

    kind: Literal["soft-roce", "roce", "infiniband"]
    rails: int = Field(default=1, ge=1)
    mtu: int = Field(ge=576, le=65520)
    """Bytes, of the netdev."""
    interface_prefix: str = "fabric"
    """Rail k is named prefix + k."""
    rdma_prefix: str = "rdma"
    line_rate_gbps: float | None = Field(default=None, gt=0)
    """Gb/s of one port; null where the link has no rate (an emulated one)."""
    topology: str | None = None
    """In words: rail-optimised full fat tree …"""
    lossless: Lossless | None = None
    source: str | None = None
    claim: Claims = ()


class Tools(Model):
    """Benchmark programs on every node: package and the program that proves it."""

    packages: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
