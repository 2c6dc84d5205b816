"""Health check: the kit on the node, and the program that Slurm calls.

What it costs: all checks of an idle GPU node take about 10 s of one core at lowest priority, once in the interval
(``slurm.health_check_interval_s``, 300 s: 3 %). On an emulated node they take a minute or two, and installing takes
several: there ``install`` is off unless the inventory turns it on.
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from rackproof.configure import operations
from rackproof.configure.health import kit, plan
from rackproof.configure.health import operations as health_operations
from rackproof.configure.machine import family_here
from rackproof.configure.site import here


@deploy("Health check")
def health_check() -> None:
    site = here()
    if not plan.applies(site):
        return
    chosen = plan.inputs_here(site)
    if chosen.install:
        family = family_here()
        if chosen.python == kit.PYTHON and family == "rhel":
            chosen = chosen.model_copy(update={"python": kit.RHEL_PYTHON})
        if needed := kit.packages(chosen, family):
            operations.packages(name="Packages", names=needed, family=family)
        health_operations.kit(name="Kit", wanted=plan.wanted_kit(chosen))
    operations.files(name="Files", entries=plan.files(site, chosen, plan.architecture_text(plan.architecture_id(site))))
