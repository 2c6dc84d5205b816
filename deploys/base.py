"""What every node needs: packages, time, limits, kernel settings, and nothing that changes it behind our back.

Takes effect at once; limits in logins and services that start afterwards. The same values are in files that apply at
boot. Updates by themselves are stopped before anything is installed: they would hold the package manager's lock, or
change what was just put there.
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy
from pyinfra.context import host

from rackproof.configure import operations, packages
from rackproof.configure.base import plan
from rackproof.configure.facts import Marks
from rackproof.configure.files import REBOOT
from rackproof.configure.kernel import CLOCK_SOURCE
from rackproof.configure.machine import machine_here
from rackproof.configure.site import here


@deploy("Base")
def base() -> None:
    site = here()
    inputs = plan.node_inputs(site)
    machine = machine_here()
    # Without an answer every question fails alike, and so does every operation.
    family = machine.family if machine and machine.family in plan.CHRONY else "debian"
    if plan.frozen(site):
        operations.units(name="Updates", wanted=plan.updates(site, family))
    operations.packages(
        name="Packages",
        names=packages.declared_packages(site.architecture, site.node, family),
        family=family,
    )
    operations.files(name="Files", entries=plan.files(site, family, inputs))
    operations.kernel_values(
        name="Kernel values", sysctl=site.architecture.system.sysctl, patterns=plan.kernel_patterns(site, inputs)
    )
    operations.units(name="Services", wanted=plan.units(site, family), manager=plan.manager_limits(site, inputs))
    if site.first(site.architecture.system.time.server_role) is None:
        operations.time_followed(name="Time")


@deploy("Clock source")
def clock_source() -> None:
    """Late: it may hang on an argument or a kernel of this very run, and comes with the run after their reboot then."""
    if wanted := here().architecture.system.clock_source:
        operations.kernel_values(
            name="In force", sysctl={}, patterns={CLOCK_SOURCE: wanted}, _if=nothing_waits_for_a_reboot
        )


def nothing_waits_for_a_reboot() -> bool:
    return not any(mark.startswith(REBOOT) for mark in host.get_fact(Marks) or ())
