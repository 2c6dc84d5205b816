"""The network between nodes: port names, addresses, MTU, RDMA, names and ssh between nodes.

Ports are renamed and configured at once; the same names and settings come back at boot through udev and
systemd-networkd, or NetworkManager on RHEL and its rebuilds. What ports and Soft-RoCE devices forget at a reboot is set
by units, also when a port reappears, and a port whose settings are not in force is set again by the next run. A node
without rails gets no more than the keys, what it declares of ports and bonds, and what the version set has for its
adapters.
"""

from __future__ import annotations

from deploys.base import base
from deploys.driver_swap import driver_swap
from deploys.nic import nic
from deploys.preflight import preflight
from deploys.reboot import reboot
from deploys.versions import kernel, repositories
from rackproof.configure import operations, rack_operations
from rackproof.configure.deploy import alone, deploy
from rackproof.configure.fabric import plan, soft_roce
from rackproof.configure.machine import machine_here
from rackproof.configure.nic import links
from rackproof.configure.nic import operations as nic_operations
from rackproof.configure.nic import plan as nic_plan
from rackproof.configure.nic.declared import Declared, declared_here, uses_adapters_here
from rackproof.configure.site import Site, here


@deploy("Fabric", plan.why_nothing)
def fabric() -> None:
    site = here()
    if site.fabric.kind != "soft-roce":
        declared = declared_here()
        if uses_adapters_here(site):
            _adapter_ports(site, declared)
    elif site.ports:
        _soft_roce_ports(site)
    rack_operations.own_key(name="Own ssh key")
    rack_operations.ssh_trust(
        name="ssh between nodes",
        names=plan.known_names(site),
        mpi_nodes=[node.name for node in site.rack.group("gpu")],
    )


def _soft_roce_ports(site: Site) -> None:
    plan.check_soft_roce(site)
    operations.files(name="Files", entries=(*plan.files(site), *soft_roce.files(site)))
    operations.units(name="Services", wanted=plan.units(site.ports))
    nic_operations.rail_ports(name="Ports", wanted=site.ports)
    operations.kernel_values(name="Kernel values", sysctl=plan.port_sysctl(site.ports), patterns={})
    rdma_in_software()


@deploy("Soft-RoCE")
def rdma_in_software() -> None:
    operations.units(name="Devices", wanted=soft_roce.units(here()))


def _adapter_ports(site: Site, declared: Declared) -> None:
    nic_plan.warn_of_shared_subnets(site, declared)
    entries = (*plan.files(site, declared, machine_here()), *nic_plan.files(site, declared))
    nic()
    operations.files(name="Files", entries=entries)
    addressed = declared.addressed()
    if declared.ports or declared.stack.bonds or declared.stack.vlans:
        operations.units(name="Services", wanted=plan.units(addressed, declared))
    if declared.ports:
        ports = [declared_port.port for declared_port in declared.ports]
        nic_operations.rail_ports(
            name="Ports", wanted=ports, manager=declared.manager, addresses=nic_plan.addresses(declared)
        )
    if addressed:
        nic_operations.rail_sysctl(name="Kernel values", wanted=plan.port_sysctl(addressed))
    if routes := plan.rail_tables(site, declared):
        nic_operations.rail_tables(name="Tables of rails", wanted=routes, manager=declared.manager)
    port_settings()


@deploy("NIC: ports")
def port_settings() -> None:
    site, declared = here(), declared_here()
    stack, layers = declared.stack, nic_plan.settings_by_link_layer(site, declared)
    if uppers := links.uppers(stack):
        nic_operations.upper_links(
            name="Bonds and VLANs", wanted=uppers, manager=declared.manager, addresses=nic_plan.addresses(declared)
        )
    operations.units(name="Services", wanted=nic_plan.units(site, declared))
    if stack.rdma_names and (ports := nic_plan.rdma_ports(declared)):
        nic_operations.rdma_devices(name="RDMA devices", wanted=ports)
    for infiniband, wanted in layers:
        nic_operations.port_settings(name="Port settings", wanted=wanted, infiniband=infiniband)
    if names := nic_plan.counted_ports(declared):
        nic_operations.zero_link_counters(name="Link counters", names=names)


@deploy("Fabric needed")
def fabric_needed() -> None:
    """For deploys that run alone: refuse a node whose rails lack their addresses."""
    if ports := here().ports:
        operations.addressed(name="Addresses of the rails", wanted=ports)


if alone(__name__, plan.why_nothing):
    preflight()
    base()
    repositories()
    kernel()
    driver_swap()
    fabric()
    reboot()
