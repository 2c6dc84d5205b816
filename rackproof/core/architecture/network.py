"""What an architecture says about ports and the network between nodes, and the check that answers for each key."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from rackproof.core.architecture.base import Claims, Model


class Nic(Model):
    """Ports of one purpose on every node of a role."""

    purpose: str
    """``compute``, ``storage``, ``in_band`` …"""
    count: int = Field(ge=1)
    model: str | None = None
    """Regular expression on the adapter's name."""
    speed_gbps: float = Field(gt=0)
    link_layer: Literal["InfiniBand", "Ethernet"]
    mtu: int | None = None
    """Bytes."""
    gid_index: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    firmware: str | None = None
    source: str
    claim: Claims = ()


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


NIC_CHECKS: Final = {
    "count": "nic.count",
    "model": "nic.model",
    "speed_gbps": "nic.speed",
    "link_layer": "nic.link_layer",
    "mtu": "nic.mtu",
    "gid_index": "nic.gid",
    "pcie_generation": "nic.pcie_generation",
    "pcie_width": "nic.pcie_width",
    "firmware": "nic.firmware",
}
"""Key of a NIC: check, whose item is the purpose."""

FABRIC_CHECKS: Final = {"pfc_priority": "fabric.pfc", "ecn": "fabric.ecn", "gid_index": "fabric.gid"}
"""Key of ``fabric.lossless``: check."""
