"""What an architecture says about ports and the network between nodes, and the check that answers for each key."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetParseError
from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from rackproof.core.architecture.base import Claims, Model


def expand_names(value: Any) -> Any:
    """``mlx5_[0-7]``, or a list of such, as names in the order given. Raises ValueError."""
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, list | tuple) or not all(isinstance(entry, str) for entry in value):
        return value
    try:
        return tuple(name for entry in value for name in NodeSet(entry, resolver=RESOLVER_NOGROUP))
    except NodeSetParseError as error:
        raise ValueError(f"no set of names: {error}") from None


Names = Annotated[tuple[str, ...], BeforeValidator(expand_names)]
PciAddress = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")]
PerPort = Annotated[tuple[int, ...], BeforeValidator(lambda value: (value,) if isinstance(value, int) else value)]


OnOff = Annotated[
    Literal["off", "on"], BeforeValidator(lambda value: ("off", "on")[value] if isinstance(value, bool) else value)
]
"""``off`` without quotes is ``false`` to some readers of YAML."""

INFINIBAND_MTU: Final = 4096


class Nic(Model):
    """Ports of one purpose on every node of a role.

    Which ports these are is said by ``ports`` or ``interfaces``, or by ``nic_ports: {purpose: names}`` or the ports of
    ``nic_stack`` in the inventory's data of a node, which go before them. Otherwise they are taken from all
    ports of the link layer and speed, whose number must then be exact; what cannot be told apart is UNMEASURED.
    """

    purpose: str
    """``compute``, ``storage``, ``in_band`` …"""
    count: int = Field(ge=1)
    ports: Names = ()
    """RDMA devices in the order of the rails: ``mlx5_[0-7]``."""
    interfaces: Names = ()
    """Network interfaces in the same order: ``rail[0-7]``."""
    slots: tuple[PciAddress, ...] = ()
    """PCI addresses in the same order: ``0000:1a:00.0``."""
    numa_nodes: PerPort = ()
    """NUMA node of every port in the same order, or one for all."""
    model: str | None = None
    """Regular expression on the adapter's name."""
    speed_gbps: float = Field(gt=0)
    link_layer: Literal["InfiniBand", "Ethernet"]
    mtu: int | None = None
    """Bytes: of the netdev on Ethernet, of the port's path on InfiniBand (4096 at most)."""
    gid_index: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    max_read_request: int | None = Field(default=None, ge=128, le=4096)
    """Bytes that the adapter asks the memory for at once; lost at every boot."""
    max_payload: int | None = Field(default=None, ge=128, le=4096)
    """Bytes in one PCIe packet."""
    relaxed_ordering: bool | None = None
    """Whether the adapter may let its PCIe writes overtake each other."""
    ipoib_mode: Literal["datagram", "connected"] | None = None
    """Of the ports' IPoIB interfaces."""
    pkeys: tuple[int, ...] = ()
    """Partitions that the subnet manager has put the ports into, beside the default one; 15 bits of each."""
    firmware: str | None = None
    """Exact version, or the oldest allowed one as ``>=28.39.1002``."""
    firmware_settings: dict[str, str] | None = Field(default=None, min_length=1)
    """mlxconfig parameter: value, ``LINK_TYPE_P1: ETH``; both in force and at the next boot."""
    counters: dict[str, int] | None = Field(default=None, min_length=1)
    """Error counter: the most that is allowed since the driver was loaded.

    Names are those of ``/sys/class/infiniband/*/ports/*/{counters,hw_counters}``, or of ``ethtool -S``.
    """
    link_flaps_max: int | None = Field(default=None, ge=0)
    """How often the link may have gone down since the driver was loaded; bringing a port up can count as one."""
    effective_ber_max: float | None = Field(default=None, gt=0, lt=1)
    """Bit error rate after error correction, as mlxlink reports it: ``1.0e-15``."""
    driver_messages_max: int | None = Field(default=None, ge=0)
    """How many complaints about a port, of its driver, may be in the kernel's log since boot."""
    source: str
    claim: Claims = ()

    @model_validator(mode="after")
    def _one_entry_a_port(self) -> Nic:
        for key in ("ports", "interfaces", "slots", "numa_nodes"):
            values = getattr(self, key)
            if values and len(values) != self.count and not (key == "numa_nodes" and len(values) == 1):
                raise ValueError(f"{key} names {len(values)} of {self.count} ports")
            if key != "numa_nodes" and len(set(values)) != len(values):
                raise ValueError(f"{key} names a port twice")
        if self.link_layer == "InfiniBand" and (self.mtu or 0) > INFINIBAND_MTU:
            raise ValueError(f"mtu is {self.mtu}: on InfiniBand it is the port's, {INFINIBAND_MTU} at most")
        if self.link_layer == "InfiniBand" and self.gid_index is not None:
            raise ValueError("gid_index applies to ports on Ethernet only")
        if self.link_layer != "InfiniBand" and (self.ipoib_mode is not None or self.pkeys):
            raise ValueError("ipoib_mode and pkeys apply to ports on InfiniBand only")
        if any(not 0 < pkey < 0x7FFF for pkey in self.pkeys):
            raise ValueError("a pkey has 15 bits, and 0x7fff is the default partition")
        return self


class Pcie(Model):
    """State of the PCI devices of every node of a role."""

    acs: Literal["disabled", "no_redirect", "enabled"] | None = None
    """Access control of bridges. ``disabled``: nothing of it is in force; ``no_redirect``: packets between devices are
    not sent up to the root (``pci=disable_acs_redir``); ``enabled``: isolated, for virtual machines."""
    full_links: Literal[True] | None = None
    """Every link runs at the speed and width that both of its ends can do."""
    correctable_errors_max: int | None = Field(default=None, ge=0)
    """Of one device since boot."""
    uncorrectable_errors_max: int | None = Field(default=None, ge=0)
    """Of one device since boot, fatal or not."""
    messages_max: int | None = Field(default=None, ge=0)
    """Messages about errors of PCIe in the kernel's log since boot: where the firmware keeps the counters to itself,
    it reports there."""
    source: str
    claim: Claims = ()


class Lossless(Model):
    """How RoCE keeps from losing packets, on every port of the fabric."""

    pfc_priority: int | None = Field(default=None, ge=0, le=7)
    """The class that is paused, and no other."""
    ecn: bool | None = None
    """Congestion is answered and notified (reaction and notification point), for ``pfc_priority`` where given."""
    gid_index: int | None = Field(default=None, ge=0)
    """Of the RoCE v2 address."""
    trust: Literal["dscp", "pcp"] | None = None
    """What tells the class of a packet that arrives."""
    dscp_priority: dict[int, int] | None = Field(default=None, min_length=1)
    """DSCP: class that it belongs to, ``26: 3``."""
    tos: int | None = Field(default=None, ge=0, le=255)
    """Type of service of connections of the RDMA connection manager: 106 is DSCP 26 with ECN."""
    traffic_class: int | None = Field(default=None, ge=0, le=255)
    """Forced on all queue pairs by the driver."""
    cnp_dscp: int | None = Field(default=None, ge=0, le=63)
    """Of congestion notifications."""
    cnp_priority: int | None = Field(default=None, ge=0, le=7)
    global_pause: OnOff | None = None
    """Pauses of the whole link, in both directions; they are off where classes are paused one by one."""
    roce_mode: Literal["RoCE v2", "IB/RoCE v1"] | None = None
    """That connections of the RDMA connection manager begin with."""


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
    loss_max_pct: float | None = Field(default=None, ge=0, lt=100)
    """Of a hundred small packets to a neighbour, % that may stay without an answer."""
    topology: str | None = None
    """In words: rail-optimised full fat tree …"""
    lossless: Lossless | None = None
    rail_tables: Literal[True] | None = None
    """What leaves with a rail's address leaves by that rail: each has a routing table and a rule of its own."""
    subnet_manager: bool | None = None
    """Whether opensm runs on the nodes themselves; false where switches or a manager of their own do it."""
    source: str | None = None
    claim: Claims = ()


NIC_CHECKS: Final = {
    "count": "nic.count",
    "interfaces": "nic.interfaces",
    "slots": "nic.slots",
    "numa_nodes": "nic.numa",
    "model": "nic.model",
    "speed_gbps": "nic.speed",
    "link_layer": "nic.link_layer",
    "mtu": "nic.mtu",
    "gid_index": "nic.gid",
    "pcie_generation": "nic.pcie_generation",
    "pcie_width": "nic.pcie_width",
    "max_read_request": "nic.max_read_request",
    "max_payload": "nic.max_payload",
    "relaxed_ordering": "nic.relaxed_ordering",
    "ipoib_mode": "nic.ipoib_mode",
    "pkeys": "nic.pkeys",
    "firmware": "nic.firmware",
    "firmware_settings": "nic.firmware_settings",
    "counters": "nic.counters",
    "link_flaps_max": "nic.link_flaps",
    "effective_ber_max": "nic.bit_errors",
    "driver_messages_max": "nic.driver_messages",
}
"""Key of a NIC: check, whose item is the purpose."""

PCIE_CHECKS: Final = {
    "acs": "pcie.acs",
    "full_links": "pcie.links",
    "correctable_errors_max": "pcie.correctable_errors",
    "uncorrectable_errors_max": "pcie.uncorrectable_errors",
    "messages_max": "pcie.messages",
}
"""Key of ``pcie``: check."""

RAIL_CHECKS: Final = {
    "rail_tables": "fabric.rail_tables",
    "subnet_manager": "fabric.subnet_manager",
}
"""Key of ``fabric``: check of the whole node."""

FABRIC_CHECKS: Final = {
    "pfc_priority": "fabric.pfc",
    "ecn": "fabric.ecn",
    "gid_index": "fabric.gid",
    "trust": "fabric.trust",
    "dscp_priority": "fabric.dscp_priority",
    "tos": "fabric.tos",
    "traffic_class": "fabric.traffic_class",
    "cnp_dscp": "fabric.cnp_dscp",
    "cnp_priority": "fabric.cnp_priority",
    "global_pause": "fabric.global_pause",
    "roce_mode": "fabric.roce_mode",
}
"""Key of ``fabric.lossless``: check."""
