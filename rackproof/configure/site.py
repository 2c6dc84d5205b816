"""The declaration for the current node: rack, architecture and the node's settings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra.context import host

from rackproof import architectures
from rackproof.configure import mounts, network
from rackproof.configure.ceph import cluster as ceph
from rackproof.configure.drives import Drive
from rackproof.configure.settings import NodeSettings, node_settings, read_inputs
from rackproof.configure.storage_client import catalogue
from rackproof.configure.storage_client import inputs as storage_inputs
from rackproof.configure.storage_client.client import ClientNode, NamedStorage
from rackproof.configure.storage_client.nfs import shared_transport
from rackproof.configure.versions.inputs import VersionInputs
from rackproof.core.architecture import Architecture, Fabric, Gpu, Storage
from rackproof.core.architecture.expectations import on_fabric
from rackproof.core.rack import Node, Rack
from rackproof.errors import DeclarationError


@dataclass(frozen=True, slots=True)
class Site:
    """Everything that deploys read about a node; plain values, no connection."""

    rack: Rack
    architecture: Architecture
    node: Node
    settings: NodeSettings

    @property
    def ports(self) -> tuple[network.Port, ...]:
        fabric = self.architecture.fabric
        return network.ports(fabric, self.settings) if fabric else ()

    @property
    def fabric(self) -> Fabric:
        """Raises DeclarationError when the architecture has none."""
        if self.architecture.fabric is None:
            raise DeclarationError("the architecture has no fabric")
        return self.architecture.fabric

    def has_role(self, role: str | None) -> bool:
        return role in self.node.groups

    def first(self, role: str | None) -> Node | None:
        """The first node of a role in inventory order, which serves when only one node can."""
        nodes = self.rack.group(role) if role else ()
        return nodes[0] if nodes else None

    @property
    def real_gpus(self) -> Gpu | None:
        """The declared GPUs when the deploy installs their driver on this node; None without GPUs or with simulated
        ones."""
        declared = self.architecture.gpu
        here = self.has_role("gpu") and not self.settings.simulated_gpus
        return declared if declared and declared.count and here else None

    @property
    def in_slurm(self) -> bool:
        """Whether the deploy manages slurmd on this node; it then drains and resumes the node in Slurm."""
        slurm = self.architecture.slurm
        return slurm is not None and slurm.set_up_on(self.node.groups)

    @property
    def others_wait(self) -> bool:
        """Whether other nodes depend on this one: it serves storage, or is Slurm's controller."""
        slurm = self.architecture.slurm
        return self.node == self.first(slurm.controller_role if slurm else None) or any(
            self.has_role(storage.server_role) for storage in self.architecture.storage.values()
        )

    def served(self, class_: str) -> dict[str, Storage]:
        """Storage of a class that this node serves."""
        storages = self.architecture.storage.items()
        return {
            name: storage
            for name, storage in storages
            if storage.class_ == class_ and self.first(storage.server_role) == self.node
        }

    def client_storage(self) -> dict[str, Storage]:
        """Storage that this node mounts, in the architecture's order."""
        return {
            name: storage
            for name, storage in self.architecture.storage.items()
            if any(role in self.node.groups for role in storage.client_roles)
        }

    def drive(self, key: str, label: str, fstype: str = "ext4") -> Drive:
        """The drive that the inventory names under a key, with its desired file system.

        Raises DeclarationError when the inventory names none, or the file system is not supported.
        """
        device = getattr(self.settings, key)
        if device is None:
            raise DeclarationError(f"{key}: the architecture needs a drive, the inventory names none")
        drive = Drive(device, label, fstype)
        drive.check()
        return drive

    @property
    def client_node(self) -> ClientNode:
        """The node as a client of storage. Raises DeclarationError when the inventory's inputs are wrong."""
        roles = [role for storage in self.client_storage().values() for role in storage.client_roles]
        role = next((role for role in roles if self.has_role(role)), None)
        lossless = self.architecture.fabric.lossless if self.architecture.fabric else None
        return ClientNode(
            node=self.node.name,
            index=self.rack.group(role).index(self.node) if role else 0,
            interfaces=tuple(port.name for port in self.ports),
            roce_tos=lossless.tos if lossless else None,
            inputs=read_inputs(self.node, storage_inputs.StorageClientInputs),
            policy=read_inputs(self.node, VersionInputs).policy,
        )

    def named_storage(self) -> tuple[NamedStorage, ...]:
        """Storage that this node mounts, with the addresses of its servers."""
        return tuple(
            NamedStorage(name, storage, storage.addresses(self.rack)) for name, storage in self.client_storage().items()
        )

    @property
    def own_fsid(self) -> str | None:
        """FSID of the Ceph cluster that the kit sets up; None without one."""
        every = (ceph.own_fsid(self.architecture, self.rack, storage) for storage in self.client_storage().values())
        return next(filter(None, every), None)

    def client_mounts(self) -> tuple[mounts.DesiredMount, ...]:
        """Desired mounts of this node, in the architecture's order.

        Raises DeclarationError when a storage cannot be mounted, or when two mounts conflict.
        """
        client_node, fsid = self.client_node, self.own_fsid
        client_mounts = [
            mount for named in self.named_storage() for mount in catalogue.mounts_of(named, client_node, fsid)
        ]
        if conflict := shared_transport(client_mounts):
            raise DeclarationError(conflict)
        return tuple(client_mounts)

    def fabric_addresses(self) -> dict[str, tuple[str, ...]]:
        """Addresses of every node of the rack, in the order of rails; nodes in inventory order."""
        rails = range(self.architecture.rails)
        return {
            node.name: tuple(address for k in rails if (address := node.fabric_address(k)) is not None)
            for node in self.rack.nodes
        }

    @property
    def fabric_subnets(self) -> tuple[str, ...]:
        """Networks of the fabric's ports, in the order of rails."""
        return tuple(dict.fromkeys(str(address.network) for address in self.settings.fabric_addresses))

    def ceph_plan(self) -> ceph.CephPlan:
        """Raises DeclarationError when the architecture has no Ceph, the inventory no drive or no address for it."""
        cluster = self.architecture.ceph
        if cluster is None:
            raise DeclarationError("the architecture has no section ceph")
        if not self.settings.fabric_addresses:
            raise DeclarationError("fabric_addresses: Ceph is reached on rail 0, the inventory has none")
        address = self.settings.fabric_addresses[0]
        if self.settings.ceph_drive is None:
            raise DeclarationError("ceph_drive: the architecture has Ceph, the inventory no drive")
        return ceph.CephPlan(
            node=self.node.name,
            address=str(address.ip),
            network=str(address.network),
            drive=self.settings.ceph_drive,
            cluster=cluster,
            fsid=ceph.cluster_fsid(cluster, self.node.name, str(address.ip)),
        )


@lru_cache(maxsize=8)
def _architecture(identifier: str) -> Architecture:
    return architectures.of_run(identifier).model


def rack_of(source: Inventory) -> Rack:
    """pyinfra's inventory as a Rack, in inventory order."""
    nodes = tuple(
        Node(other.name, tuple(group for group in other.groups if group != "all"), _data(other)) for other in source
    )
    return Rack("inventory", nodes)


def settings_of(node: Node, architecture: Architecture) -> NodeSettings:
    """Settings of a node in the inventory. Raises InventoryError, also when a required rail is missing."""
    return node_settings(node, architecture.rails, on_fabric(architecture, node.groups))


def _data(other: Host) -> dict[str, Any]:
    return dict(other.data.dict())  # type: ignore[no-untyped-call]


_sites: WeakKeyDictionary[Inventory, dict[str, Site]] = WeakKeyDictionary()


def here() -> Site:
    """The declaration for pyinfra's current host.

    Raises DeclarationError, one line, when inventory or architecture cannot be used; nothing has been changed then.
    """
    source: Inventory = host.inventory
    sites = _sites.setdefault(source, {})
    if host.name not in sites:
        identifier = host.data.get("architecture")
        if not identifier:
            raise DeclarationError("no architecture; set it in inventories/group_data/all.py")
        architecture, rack = _architecture(str(identifier)), rack_of(source)
        node = rack.node(host.name)
        sites[host.name] = Site(rack, architecture, node, settings_of(node, architecture))
    return sites[host.name]
