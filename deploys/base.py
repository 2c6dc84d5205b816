"""Base of every node: packages, time, limits, kernel settings, no unattended upgrades.

Takes effect at once; limits in logins and services that start afterwards. Files set the same values at boot.
Unattended upgrades are disabled first: they would lock the package manager, or change what was just installed.
"""

from __future__ import annotations

from deploys.preflight import preflight
from deploys.reboot import reboot
from rackproof.configure import operations, packages
from rackproof.configure.base import plan
from rackproof.configure.deploy import alone, deploy
from rackproof.configure.kernel import CLOCK_SOURCE
from rackproof.configure.machine import family_here, machine_here
from rackproof.configure.node.inputs import NodeInputs
from rackproof.configure.reboot.reasons import nothing_waits_for_a_reboot
from rackproof.configure.settings import read_inputs
from rackproof.configure.site import here


@deploy("Base")
def base() -> None:
    site = here()
    inputs, family = read_inputs(site.node, NodeInputs), family_here()
    if plan.frozen(site):
        operations.units(name="Updates", wanted=plan.updates(masked=True, family=family))
    operations.packages(
        name="Packages",
        names=packages.declared_packages(site.architecture, site.node, family),
        family=family,
    )
    operations.files(name="Files", entries=plan.files(site, family, inputs, machine_here()))
    operations.kernel_values(
        name="Kernel values", sysctl=site.architecture.system.sysctl, patterns=plan.kernel_patterns(site, inputs)
    )
    operations.units(name="Services", wanted=plan.units(site, family), manager=plan.manager_limits(site, inputs))
    if site.first(site.architecture.system.time.server_role) is None:
        operations.time_followed(name="Time")


@deploy("Clock source")
def clock_source() -> None:
    """Late in a deploy: if a reboot is pending, e.g. for a kernel argument, the run after it sets the clock source."""
    if source := here().architecture.system.clock_source:
        operations.kernel_values(
            name="In force", sysctl={}, patterns={CLOCK_SOURCE: source}, _if=nothing_waits_for_a_reboot
        )


if alone(__name__):
    preflight()
    base()
    clock_source()
    reboot()
