"""GPUs in containers: NVIDIA's toolkit, its runtime in Docker and containerd, and a CDI specification for all others.

The runtimes themselves are another deploy's. Which of them hand out GPUs is the inventory's
``gpu_stack.runtimes``; the CDI specification is written anew at every boot, since it names files of the driver in
force.
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from deploys.gpu_driver import INSTALL_TIMEOUT_S
from deploys.versions import stage
from rackproof.configure import operations
from rackproof.configure.containers import toolkit
from rackproof.configure.gpu import operations as gpu_operations
from rackproof.configure.gpu import packages, plan, runtimes
from rackproof.configure.machine import machine_here
from rackproof.configure.site import here
from rackproof.configure.units import Unit
from rackproof.configure.versions.site import packages_here


@deploy("Container toolkit")
def container_toolkit() -> None:
    site = here()
    declared, stack = site.architecture.gpu, plan.stack_of(site)
    wanted = toolkit.handing_out(site, stack)
    if declared is None or declared.count == 0 or site.settings.simulated_gpus:
        return
    if not wanted and stack.container_toolkit is None:
        return
    machine = machine_here()
    if machine is None:
        gpu_operations.refused(name="Machine", reason="operating system and PCI devices could not be read")
        return
    if packages_here("container_toolkit"):
        stage("container_toolkit", "Locked packages")
    else:
        gpu_operations.installed(
            name="Packages",
            packages=packages.container_toolkit(stack, wanted),
            family=machine.family,
            hold=stack.hold,
            _timeout=INSTALL_TIMEOUT_S,
        )
    operations.files(name="Files", entries=(toolkit.cdi_unit(),))
    operations.units(name="Services", wanted=(Unit(runtimes.CDI_SERVICE, running=None),))
    own = toolkit.owned(site)
    gpu_operations.runtimes(
        name="Runtimes", wanted=runtimes.with_runtime(site.architecture.containers, wanted, own), owned=own
    )
