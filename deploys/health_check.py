"""Health check: installs the kit on the node, and the program that Slurm runs.

Cost: all checks of an idle GPU node take about 10 s of one core at lowest priority, once per interval
(``slurm.health_check_interval_s``, 300 s: 3 %). On an emulated node they take a minute or two, and the installation
several: there ``install`` is off unless the inventory enables it.
"""

from __future__ import annotations

from deploys.base import base
from deploys.preflight import preflight
from deploys.reboot import reboot
from deploys.versions import repositories
from rackproof.configure import operations
from rackproof.configure.deploy import alone, deploy
from rackproof.configure.health_check import kit, plan
from rackproof.configure.health_check import operations as health_operations
from rackproof.configure.machine import family_here
from rackproof.configure.site import here


@deploy("Health check", plan.why_nothing)
def health_check() -> None:
    site = here()
    inputs = kit.inputs_of(site.node, site.settings.virtual)
    if inputs.install:
        family = family_here()
        inputs = plan.with_python_of(inputs, family)
        if packages := kit.packages(inputs, family):
            operations.packages(name="Packages", names=packages, family=family)
        health_operations.kit(name="Kit", wanted=plan.wanted_kit(inputs))
    architecture = plan.architecture_text(str(site.node.data.get("architecture") or site.architecture.metadata.id))
    operations.files(name="Files", entries=plan.files(site, inputs, architecture))


@deploy("Health check needed")
def health_check_needed() -> None:
    """For this file alone: refuse a node without the daemon that calls the health check."""
    operations.programs_needed(name="Slurm", names=("slurmd",), by="deploys/slurm.py")


if alone(__name__, plan.why_nothing):
    preflight()
    base()
    repositories()
    health_check_needed()
    health_check()
    reboot()
