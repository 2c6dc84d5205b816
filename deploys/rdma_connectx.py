"""RDMA on real adapters (RoCE and InfiniBand): drivers, firmware, names, and what ports forget at every boot.

``adapters`` goes before the ports get their names and addresses, ``rdma_connectx`` after it. How is the inventory's
business (``nic_stack``), what is the architecture's. Everything is set through a unit, so that it comes back at boot
and when a port reappears, and a port whose settings are not in force is set again by the next run.
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from deploys import versions
from rackproof.configure import operations as common
from rackproof.configure.nic import links, operations, plan
from rackproof.configure.nic.declared import Declared, declared_here, firmware_wanted
from rackproof.configure.nic.packages import inbox_packages
from rackproof.configure.site import Site, here

INSTALL_TIMEOUT_S = 1800
FIRMWARE_TIMEOUT_S = 3600
"""Eight adapters, a few minutes each."""


@deploy("ConnectX: drivers and firmware")
def adapters() -> None:
    site = here()
    declared = declared_here()
    said = declared.stack
    others = tuple(each for each in declared.ports if not each.rail)
    operations.adapters(name="Adapters", wanted=site.ports, declared=said.adapters, others=others)
    if declared.drivers:
        _drivers(site, declared)
    wanted = firmware_wanted(site, said)
    if wanted or declared.locked:
        operations.adapter_firmware(
            name="Firmware", wanted=wanted, rails=[each.port for each in declared.ports], locked=declared.locked,
            _timeout=FIRMWARE_TIMEOUT_S,
        )  # fmt: skip


def _drivers(site: Site, declared: Declared) -> None:
    said = declared.stack
    operations.remove_drivers(
        name="Other drivers", source=declared.source, version=declared.ofed, allowed=said.remove_old,
        _timeout=INSTALL_TIMEOUT_S,
    )  # fmt: skip
    if declared.source == "inbox":
        common.packages(name="Packages", names=inbox_packages(declared), family=declared.family)
    else:
        versions.network_stack()
    common.files(name="Driver files", entries=plan.driver_files(site, declared))
    operations.drivers(
        name="Drivers", source=declared.source, dkms=declared.dkms, restart=said.drivers_by == "restart"
    )  # fmt: skip


@deploy("ConnectX: ports")
def rdma_connectx() -> None:
    site = here()
    declared = declared_here()
    said = declared.stack
    settings = plan.port_settings(site, declared)
    if uppers := links.uppers(said):
        operations.upper_links(name="Bonds and VLANs", wanted=uppers, manager=declared.manager)
    common.units(name="Services", wanted=plan.units(site, declared))
    if said.rdma_names and (named := plan.rdma_ports(declared)):
        operations.rdma_devices(name="RDMA devices", wanted=named)
    for is_infiniband in (False, True):
        if wanted := {name: settings[name] for name in settings if declared.is_infiniband(name) == is_infiniband}:
            operations.port_settings(name="Port settings", wanted=wanted, infiniband=is_infiniband)
    names = [each.port.name for each in declared.ports if each.of_nvidia]
    if said.zero_link_counters and names:
        operations.zero_link_counters(name="Link counters", names=names)
