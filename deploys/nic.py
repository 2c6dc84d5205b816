"""Adapters (ConnectX, RoCE and InfiniBand): drivers and firmware, before their ports get names and addresses.

Architecture, version set and inventory (``nic``) declare drivers and firmware. The ports' settings are part of
``deploys/fabric.py``, which calls this deploy.
"""

from __future__ import annotations

from deploys.base import base
from deploys.driver_swap import driver_swap
from deploys.preflight import preflight
from deploys.reboot import reboot
from deploys.versions import kernel, network_stack, repositories
from rackproof.configure import operations as common
from rackproof.configure.deploy import alone, deploy
from rackproof.configure.nic import firmware_operations, links, operations, plan
from rackproof.configure.nic.declared import Declared, declared_here, firmware_wanted
from rackproof.configure.site import Site, here

INSTALL_TIMEOUT_S = 1800
FIRMWARE_TIMEOUT_S = 3600
"""Eight adapters, a few minutes each."""
NAME = "NIC: drivers and firmware"


@deploy(NAME)
def nic() -> None:
    site, declared = here(), declared_here()
    stack = declared.stack
    others = tuple(port for port in declared.ports if not port.rail)
    operations.adapters(
        name="Adapters", wanted=site.ports, declared=stack.adapters, others=others, uppers=links.uppers(stack),
        addresses=plan.addresses(declared),
    )  # fmt: skip
    if declared.drivers:
        _drivers(site, declared)
    firmware = firmware_wanted(site)
    if firmware or declared.locked:
        firmware_operations.adapter_firmware(
            name="Firmware", wanted=firmware, rails=[port.port for port in declared.ports], locked=declared.locked,
            _timeout=FIRMWARE_TIMEOUT_S,
        )  # fmt: skip


@deploy(NAME, plan.why_nothing)
def drivers_needed() -> None:
    """For deploys that run alone and build against the drivers of the adapters."""
    declared = declared_here()
    if declared.drivers:
        _drivers(here(), declared)


def _drivers(site: Site, declared: Declared) -> None:
    stack = declared.stack
    operations.remove_drivers(
        name="Other drivers", source=declared.source, version=declared.ofed, allowed=stack.remove_old,
        _timeout=INSTALL_TIMEOUT_S,
    )  # fmt: skip
    if declared.source == "inbox":
        common.packages(name="Packages", names=declared.inbox_packages, family=declared.family)
    else:
        network_stack()
    common.files(name="Driver files", entries=plan.driver_files(declared))
    operations.drivers(
        name="Drivers", source=declared.source, dkms=declared.dkms, restart=stack.drivers_by == "restart",
        addresses=plan.addresses(declared),
    )  # fmt: skip


if alone(__name__, plan.why_nothing):
    preflight()
    base()
    repositories()
    kernel()
    driver_swap()
    nic()
    reboot()
