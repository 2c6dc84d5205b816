"""The network between nodes: port names, addresses, MTU, RDMA, names and ssh between nodes.

Ports are renamed and configured at once; the same names and settings come back at boot through udev and
systemd-networkd, or NetworkManager on RHEL and its rebuilds. RDMA is a matter of its own for each kind of fabric: see
``rdma_soft`` and ``rdma_connectx``. A node without rails gets no more than the keys, what it declares of ports and
bonds, and what the version set has for its adapters.
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from deploys import rdma_connectx, rdma_soft
from rackproof.configure import operations, rack_operations
from rackproof.configure.fabric import plan, soft_roce
from rackproof.configure.nic import operations as nic_operations
from rackproof.configure.nic import plan as nic_plan
from rackproof.configure.nic.declared import Declared, declared_here, uses_adapters_here
from rackproof.configure.site import Site, here


@deploy("Fabric")
def fabric() -> None:
    site = here()
    if site.fabric.kind != "soft-roce":
        declared = declared_here()
        if uses_adapters_here(site):
            _real(site, declared)
    elif site.ports:
        _simulated(site)
    rack_operations.own_key(name="Own ssh key")
    rack_operations.ssh_trust(
        name="ssh between nodes",
        names=plan.known_names(site),
        mpi_nodes=[node.name for node in site.rack.group("gpu")],
    )


def _simulated(site: Site) -> None:
    plan.check_simulated(site)
    operations.files(name="Files", entries=(*plan.files(site), *soft_roce.files(site)))
    operations.units(name="Services", wanted=plan.units(site.ports))
    operations.ports(name="Ports", wanted=site.ports)
    operations.kernel_values(name="Kernel values", sysctl=plan.port_sysctl(site.ports), patterns={})
    rdma_soft.rdma_soft()


def _real(site: Site, declared: Declared) -> None:
    nic_plan.warn_of_shared_subnets(site, declared)
    entries = (*plan.files(site, declared), *nic_plan.files(site, declared))
    rdma_connectx.adapters()
    operations.files(name="Files", entries=entries)
    addressed = declared.addressed()
    if declared.ports or declared.stack.bonds or declared.stack.vlans:
        operations.units(name="Services", wanted=plan.units(addressed, declared))
    if declared.ports:
        ports = [each.port for each in declared.ports]
        nic_operations.rail_ports(name="Ports", wanted=ports, manager=declared.manager)
    if addressed:
        nic_operations.rail_sysctl(name="Kernel values", wanted=plan.port_sysctl(addressed))
    if routes := plan.rail_tables(site, declared):
        nic_operations.rail_tables(name="Tables of rails", wanted=routes, manager=declared.manager)
    rdma_connectx.rdma_connectx()
