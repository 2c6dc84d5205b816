"""How adapters are set up: the inventory's mapping ``nic``."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints, model_validator

from rackproof.configure.inputs import Download
from rackproof.configure.network import ETHERNET_MAC_LENGTH
from rackproof.configure.settings import Inputs
from rackproof.core.texts import Interface, Line, Mac, OwnInterface, PathId, RdmaName, Version, Words

PciIds = Annotated[str, StringConstraints(pattern=r"^15b3:[0-9a-f]{4}$")]
Psid = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9_]{6,16}$")]
PartitionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,31}$")]
Pkey = Annotated[int, Field(ge=1, le=0x7FFF)]
EightNumbers = Annotated[tuple[int, ...], Field(min_length=8, max_length=8)]


class Image(Download):
    """Firmware of one kind of board: the ``.bin`` file for exactly its PSID (not a zip)."""

    version: Version
    """As ``flint query`` prints it: ``28.43.2566``."""


class Partition(Inputs):
    """A partition of the subnet manager on this node, and what ports of the rack are in it."""

    pkey: Pkey
    """Partition key, 15 bits. Bit 15 declares full membership and is not part of the key."""
    ipoib: bool = True
    """Whether IP runs in the partition. Default: yes, opensm's broadcast group is made for it."""
    mtu: Literal[2048, 4096] = 4096
    """MTU of the partition's broadcast group, bytes: 4096 gives IPoIB 4092. Default: what HDR and NDR fabrics use."""
    members: tuple[Annotated[str, StringConstraints(pattern=r"^(ALL|SELF|0x[0-9a-f]{16})$")], ...] = ("ALL",)
    """Port GUIDs with full membership, or ALL. Default: all, as opensm does without a file."""


class Child(Inputs):
    """IPoIB interfaces of another partition, one on every rail."""

    pkey: Pkey
    """Number of the partition, ``0x8001``."""
    addresses: tuple[IPv4Interface, ...] = ()
    """Addresses with prefix length, rail by rail. Default: none, the interface only exists."""


class NodePort(Inputs):
    """A port that is no rail: storage, front end, in-band. It is named and configured as rails are.

    Not for the port that the deploy itself connects through: no default gateway is set, and a port that has addresses
    is not renamed.
    """

    purpose: Words | None = None
    """Purpose of the entry in the architecture's ``nics`` that applies to this port. Default: none, the
    architecture has no entry for it."""
    mac: Mac | None = None
    """Permanent MAC address; of an InfiniBand port also its GUID, the last eight bytes."""
    path: PathId | None = None
    """Instead: udev's ID_PATH, ``pci-0000:29:00.0``."""
    link_layer: Literal["Ethernet", "InfiniBand"] | None = None
    """Default: the architecture's for the purpose; where it has none, Ethernet."""
    address: IPv4Interface | None = None
    """Address with prefix length. Default: none; a member of a bond never has one."""
    mtu: int | None = Field(default=None, ge=576, le=65520)
    """Bytes, of the interface. Default: on Ethernet the bond's of a member, else the architecture's of the purpose,
    else as the driver has it; on InfiniBand the fabric's where that is InfiniBand, else 4092, the most in datagram
    mode."""
    rdma: RdmaName | None = None
    """Name of its RDMA device. Default: none, it keeps the kernel's. Not of a bond's members: the ports of one adapter
    have one device together there, which the driver names."""
    lossless: bool | None = None
    """Whether the classes, pauses and congestion settings of ``fabric.lossless`` apply to this Ethernet port too.
    Default: yes where ``rdma`` is set and the architecture has them; members of a bond set it themselves."""
    max_read_request: Literal[128, 256, 512, 1024, 2048, 4096] | None = None
    """PCIe max read request size, bytes. Default: the architecture's value for the purpose."""
    relaxed_ordering: bool | None = None
    """PCIe relaxed ordering. Default: the architecture's for the purpose; where it has none, as the firmware has it."""

    @model_validator(mode="after")
    def _one_port(self) -> NodePort:
        if bool(self.mac) == bool(self.path):
            raise ValueError("give either mac or path")
        return self


NO_INFINIBAND_BONDS = (
    "InfiniBand ports are not bonded here (the kernel knows active-backup alone for IPoIB); give each an address of its"
    " own in nic.ports"
)


class Bond(Inputs):
    """Several ports as one, for storage or the front end; rails are never bonded."""

    macs: tuple[Mac, ...] = ()
    """Permanent MAC addresses of the members."""
    paths: tuple[PathId, ...] = ()
    """Instead: udev's ID_PATH of the members, ``pci-0000:29:00.0``."""
    ports: tuple[Interface, ...] = ()
    """Instead: names of the members in ``nic.ports``, which hold the settings of each port."""
    address: IPv4Interface | None = None
    """Address with prefix length; none where only VLANs carry addresses."""
    mtu: int = Field(default=9000, ge=576, le=9978)
    """MTU of bond and members, bytes: a member with less drops what the bond sends. Default: jumbo frames."""
    mode: Literal["802.3ad", "active-backup", "balance-xor"] = "802.3ad"
    """Bonding mode. Default: LACP, which notices a cable in the wrong port; the switches must speak it."""
    lacp_rate: Literal["fast", "slow"] = "fast"
    """How often the partner sends LACP messages. Default: every second; a dead leg is out after three."""
    hash_policy: Literal["layer2", "layer2+3", "layer3+4", "encap2+3", "encap3+4"] = "layer3+4"
    """Hash that distributes connections over the legs. Default: addresses and ports, as NFS with nconnect needs."""
    miimon_ms: int = Field(default=100, ge=1)
    """Milliseconds between readings of the link state. Default: 100, from the kernel's documentation of bonding."""

    @model_validator(mode="after")
    def _two_members(self) -> Bond:
        if sum(map(bool, (self.macs, self.paths, self.ports))) != 1:
            raise ValueError("give one of macs, paths and ports")
        members = self.macs or self.paths or self.ports
        if len(members) < 2 or len(set(members)) != len(members):
            raise ValueError("a bond has at least two members, each named once")
        if other := [mac for mac in self.macs if len(mac) != ETHERNET_MAC_LENGTH]:
            raise ValueError(f"{other[0]} is no Ethernet port's MAC address: {NO_INFINIBAND_BONDS}")
        return self


class Vlan(Inputs):
    """A tagged network on a rail, another port or a bond."""

    parent: Interface
    """The port or bond that carries the VLAN."""
    id: int = Field(ge=1, le=4094)
    """Tag, 1 to 4094."""
    address: IPv4Interface
    """Address with prefix length."""
    mtu: int | None = Field(default=None, ge=576, le=9978)
    """MTU in bytes, at most the parent's. Default: the parent's."""


class NicInputs(Inputs):
    """Inputs about adapters, which differ from site to site."""

    KEY: ClassVar = "nic"
    DOWNLOADS: ClassVar = True

    source: Literal["doca", "mlnx_ofed", "inbox"] | None = None
    """Drivers of NVIDIA's packages or the distribution's own. Default: what the version set has
    (``components.network``), the distribution's without a set."""
    remove_old: bool = False
    """Whether another installed OFED is removed first (``ofed_uninstall.sh --force``). Default: no, because everything
    that was built against it goes with it."""
    drivers_by: Literal["reboot", "restart"] = "reboot"
    """How new drivers come into force. Default: with the reboot at the end; ``restart`` restarts openibd, which
    interrupts every RDMA connection of the node and is refused while a file system or a drive uses it."""
    adapters: dict[PciIds, Line] = Field(default_factory=dict)
    """Kinds of adapters that the kit does not know yet, by PCI ids: ``{"15b3:1031": ConnectX-10}``. Default: none."""
    firmware_images: dict[Psid, Image] = Field(default_factory=dict)
    """Firmware that may be written to boards of a PSID; goes before the version set's ``nic_firmware``. Default: none,
    firmware is only compared."""
    rdma_names: bool = True
    """Whether RDMA devices are named as the architecture says (``rdma_prefix`` + rail). Default: yes; NCCL_IB_HCA and
    file systems name devices, and the kernel numbers them in the order in which they answer."""
    ecn_by_firmware: bool = False
    """Only with the distribution's driver, which has no switch for ECN of a class: it is left to the firmware's default
    (``ROCE_CC_PRIO_MASK_P1: "255"`` in ``firmware_settings`` says so). Default: no, the contradiction is refused."""
    switch_cnp_dscp: int | None = Field(default=None, ge=0, le=63)
    """DSCP that the switches treat as congestion notifications, for preflight to compare with what the ports send
    (``fabric.lossless.cnp_dscp``): switch guides take 48, NVIDIA's NIC operator 4. Default: not compared."""
    prio2buffer: EightNumbers | None = None
    """Receive buffer of each priority. Needs mlnx_qos. Default: the driver's."""
    buffer_size: EightNumbers | None = None
    """Bytes of each receive buffer; the buffer of the lossless class is usually enlarged, to about 2 MB in one public
    field script. Needs mlnx_qos. Default: the driver computes them from cable length and MTU."""
    ring_rx: int | None = Field(default=None, ge=64, le=8192)
    """Descriptors of the receive ring. Default: the driver's (1024)."""
    ring_tx: int | None = Field(default=None, ge=64, le=8192)
    """Descriptors of the send ring. Default: the driver's (1024)."""
    relaxed_ordering: bool | None = None
    """PCIe relaxed ordering of the rails, where the architecture has no value. Default: as the firmware has it (on, for
    ConnectX-5 and later); AMD hosts and virtual machines need it on (NCCL_IB_PCI_RELAXED_ORDERING)."""
    max_read_request: Literal[128, 256, 512, 1024, 2048, 4096] | None = None
    """PCIe max read request size of the rails, bytes. Default: the architecture's ``nics.*.max_read_request``."""
    ipoib_mode: Literal["datagram", "connected"] = "datagram"
    """IPoIB mode of InfiniBand rails, where the architecture has none. Default: datagram, the only one that ConnectX-4
    and later have with the distribution's driver (Red Hat, Configuring IPoIB); connected needs NVIDIA's packages, and
    ``ipoib_enhanced=0``."""
    subnet_manager: bool = False
    """Whether opensm runs on this node. Default: no, and the deploy masks it: a second subnet manager would take
    over the fabric."""
    partitions: dict[PartitionName, Partition] = Field(default_factory=dict)
    """Partitions beside the default one, for opensm on this node. Default: none."""
    pkeys: tuple[Child, ...] = ()
    """IPoIB interfaces ``railK.PKEY`` of other partitions. Default: none."""
    rail_gateways: tuple[IPv4Address, ...] = ()
    """Gateway of rail k to the other nodes' subnets of that rail, where rails are routed. Default: none."""
    rail_routes: tuple[IPv4Network, ...] = (IPv4Network("0.0.0.0/0"),)
    """Destinations behind ``rail_gateways``, in each rail's own table. Default: everything."""
    rail_table: int = Field(default=100, ge=1, le=32000)
    """Number of rail 0's routing table; rail k has this plus k. Default: 100."""
    ports: dict[OwnInterface, NodePort] = Field(default_factory=dict)
    """Ports other than rails, by the names that the kit gives them. Default: none."""
    bonds: dict[Interface, Bond] = Field(default_factory=dict)
    """Bonds of ports other than rails. Default: none."""
    vlans: dict[Interface, Vlan] = Field(default_factory=dict)
    """Tagged networks. Default: none."""
    zero_link_counters: bool = False
    """Whether counters of link errors and flaps begin at zero after the deploy (``mlxlink --pc`` where it
    is there, and a baseline that validators subtract), so that acceptance counts what happens from now on. Once a
    boot. Default: no."""

    @model_validator(mode="after")
    def _names_are_free(self) -> NicInputs:
        for name, vlan in self.vlans.items():
            if name in self.bonds:
                raise ValueError(f"{name} is a bond and a VLAN")
            bond = self.bonds.get(vlan.parent)
            if bond and (vlan.mtu or 0) > bond.mtu:
                raise ValueError(f"vlans.{name}: MTU {vlan.mtu} is more than {bond.mtu} of {vlan.parent}")
        keys = [part.pkey for part in self.partitions.values()]
        if len(set(keys)) != len(keys):
            raise ValueError("two partitions have one pkey")
        if self.partitions and not self.subnet_manager:
            raise ValueError("partitions are opensm's: say subnet_manager: true on the node where it runs")
        return self

    def members(self, bond: str) -> tuple[tuple[str | None, str | None], ...]:
        """MAC address or path of each member of a bond."""
        settings = self.bonds[bond]
        named = ((self.ports[port].mac, self.ports[port].path) for port in settings.ports)
        return (*((mac, None) for mac in settings.macs), *((None, path) for path in settings.paths), *named)
