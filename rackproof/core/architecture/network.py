"""Ports and fabric of an architecture, and the check of each key."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from rackproof.core.architecture.base import Claims, Model, checks_of
from rackproof.core.rack import expand
from rackproof.core.texts import (
    Expression,
    Interface,
    InterfacePrefix,
    Name,
    Prose,
    RdmaName,
    Value,
    WantedVersion,
    Words,
)


def expand_names(value: Any) -> Any:
    """``mlx5_[0-7]``, or a list of such, as names in the order given. Raises ValueError."""
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, list | tuple) or not all(isinstance(entry, str) for entry in value):
        return value
    try:
        return tuple(name for entry in value for name in expand(entry))
    except ValueError as error:
        raise ValueError(f"invalid node set: {error}") from None


PciAddress = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")]
RdmaPrefix = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,59}$")]
Parameter = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]+(\[[0-9]+\])?$")]
Counter = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\[\]-]*$")]
PerPort = Annotated[tuple[int, ...], BeforeValidator(lambda value: (value,) if isinstance(value, int) else value)]


OnOff = Annotated[
    Literal["off", "on"], BeforeValidator(lambda value: ("off", "on")[value] if isinstance(value, bool) else value)
]
"""YAML 1.1 parsers read an unquoted ``off`` as ``false``."""

INFINIBAND_MTU: Final = 4096


class Nic(Model):
    """Ports of one purpose on every node of a role.

    Ports are identified by the node's inventory data (``nic_ports: {purpose: names}``, or the ports of ``nic``),
    otherwise by ``ports`` or ``interfaces``, otherwise by link layer and speed; then exactly ``count`` ports must
    match, and ambiguous ports are UNMEASURED.
    """

    purpose: Words
    """``compute``, ``storage``, ``in_band`` …"""
    count: int = Field(ge=1)
    ports: Annotated[tuple[RdmaName, ...], BeforeValidator(expand_names)] = ()
    """RDMA devices in the order of the rails: ``mlx5_[0-7]``."""
    interfaces: Annotated[tuple[Interface, ...], BeforeValidator(expand_names)] = ()
    """Network interfaces in the same order: ``rail[0-7]``."""
    slots: tuple[PciAddress, ...] = ()
    """PCI addresses in the same order: ``0000:1a:00.0``."""
    numa_nodes: PerPort = ()
    """NUMA node of every port in the same order, or one value for all."""
    model: Expression | None = None
    """Regular expression on the adapter's name."""
    speed_gbps: float = Field(gt=0)
    link_layer: Literal["InfiniBand", "Ethernet"]
    mtu: int | None = None
    """Bytes: of the netdev on Ethernet, of the port's path on InfiniBand (4096 at most)."""
    gid_index: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    max_read_request: int | None = Field(default=None, ge=128, le=4096)
    """PCIe max read request size in bytes; reset at every boot."""
    max_payload: int | None = Field(default=None, ge=128, le=4096)
    """PCIe max payload size in bytes."""
    relaxed_ordering: bool | None = None
    """Whether PCIe relaxed ordering is enabled."""
    ipoib_mode: Literal["datagram", "connected"] | None = None
    """Mode of the ports' IPoIB interfaces."""
    pkeys: tuple[int, ...] = ()
    """Partition keys (15 bits) that the subnet manager assigned, besides the default one."""
    firmware: WantedVersion | None = None
    """Exact version, or the oldest allowed one as ``>=28.39.1002``."""
    firmware_settings: dict[Parameter, Value] | None = Field(default=None, min_length=1)
    """mlxconfig parameter: value, ``LINK_TYPE_P1: ETH``; both current and at the next boot."""
    counters: dict[Counter, int] | None = Field(default=None, min_length=1)
    """Error counter: maximum since the driver was loaded.

    Names are those of ``/sys/class/infiniband/*/ports/*/{counters,hw_counters}``, or of ``ethtool -S``.
    """
    link_flaps_max: int | None = Field(default=None, ge=0)
    """Link-down events since the driver was loaded; bringing a port up can count as one."""
    effective_ber_max: float | None = Field(default=None, gt=0, lt=1)
    """Bit error rate after error correction, as mlxlink reports it: ``1.0e-15``."""
    driver_messages_max: int | None = Field(default=None, ge=0)
    """Driver messages about one port in the kernel log since boot."""
    source: Name
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
    """ACS of bridges. ``disabled``: all off; ``no_redirect``: peer-to-peer packets are not redirected to the root
    complex (``pci=disable_acs_redir``); ``enabled``: isolated, for virtual machines."""
    full_links: Literal[True] | None = None
    """Every link runs at the highest speed and width that both ends support."""
    correctable_errors_max: int | None = Field(default=None, ge=0)
    """Errors of one device since boot."""
    uncorrectable_errors_max: int | None = Field(default=None, ge=0)
    """Errors of one device since boot, fatal or not."""
    messages_max: int | None = Field(default=None, ge=0)
    """PCIe error messages in the kernel log since boot; firmware-first platforms report only there."""
    source: Name
    claim: Claims = ()


class Lossless(Model):
    """Lossless RoCE settings of every fabric port."""

    pfc_priority: int | None = Field(default=None, ge=0, le=7)
    """The only priority with PFC enabled."""
    ecn: bool | None = None
    """ECN reaction and notification point, for ``pfc_priority`` where given."""
    gid_index: int | None = Field(default=None, ge=0)
    """Index of the RoCE v2 address."""
    trust: Literal["dscp", "pcp"] | None = None
    """Trust mode: how the priority of an incoming packet is determined."""
    dscp_priority: dict[int, int] | None = Field(default=None, min_length=1)
    """DSCP: priority, ``26: 3``."""
    tos: int | None = Field(default=None, ge=0, le=255)
    """Type of service of connections of the RDMA connection manager: 106 is DSCP 26 with ECN."""
    traffic_class: int | None = Field(default=None, ge=0, le=255)
    """Forced on all queue pairs by the driver."""
    cnp_dscp: int | None = Field(default=None, ge=0, le=63)
    """DSCP of congestion notifications."""
    cnp_priority: int | None = Field(default=None, ge=0, le=7)
    global_pause: OnOff | None = None
    """Global pause frames, both directions; off where PFC is used."""
    roce_mode: Literal["RoCE v2", "IB/RoCE v1"] | None = None
    """Default RoCE mode of the RDMA connection manager."""


class Fabric(Model):
    """The network between nodes that carries storage and collectives."""

    kind: Literal["soft-roce", "roce", "infiniband"]
    rails: int = Field(default=1, ge=1)
    mtu: int = Field(ge=576, le=65520)
    """Bytes, of the netdev."""
    interface_prefix: InterfacePrefix = "fabric"
    """Rail k is named prefix + k."""
    rdma_prefix: RdmaPrefix = "rdma"
    line_rate_gbps: float | None = Field(default=None, gt=0)
    """Gb/s of one port; null for emulated links without a rate."""
    loss_max_pct: float | None = Field(default=None, ge=0, lt=100)
    """Loss of 100 small pings to a neighbour, %."""
    topology: Prose | None = None
    """Free text: rail-optimised full fat tree …"""
    lossless: Lossless | None = None
    rail_tables: Literal[True] | None = None
    """Source routing: each rail has its own routing table and rule."""
    subnet_manager: bool | None = None
    """Whether opensm runs on the nodes; false: on switches or a separate manager."""
    source: Name | None = None
    claim: Claims = ()


NIC_CHECKS: Final = checks_of(
    "nic", Nic, without="purpose ports",
    numa_nodes="numa", speed_gbps="speed", gid_index="gid", link_flaps_max="link_flaps", effective_ber_max="bit_errors",
    driver_messages_max="driver_messages",
)  # fmt: skip
"""Checks whose item is the purpose."""

PCIE_CHECKS: Final = checks_of(
    "pcie", Pcie,
    full_links="links", correctable_errors_max="correctable_errors", uncorrectable_errors_max="uncorrectable_errors",
    messages_max="messages",
)  # fmt: skip

RAIL_CHECKS: Final = {
    "rail_tables": "fabric.rail_tables",
    "subnet_manager": "fabric.subnet_manager",
}
"""Key of ``fabric``: check of the whole node."""

FABRIC_CHECKS: Final = checks_of("fabric", Lossless, pfc_priority="pfc", gid_index="gid")
