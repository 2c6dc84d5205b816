"""GPUs: the stack of real ones (driver, fabric manager, settings, DCGM, CUDA, GPUDirect Storage), or a replay of
``nvidia-smi`` on nodes that say that they simulate theirs.

The driver of a node depends on the generation of its GPUs (PCI device ids), the operating system and the inputs
``gpu``; versions come from the version set if there is one. What the running kernel still has loaded (nouveau, an
older driver, other module options) needs a reboot: a mark is left, and everything else is prepared.
"""

from __future__ import annotations

from deploys.base import base
from deploys.driver_swap import driver_swap
from deploys.nic import drivers_needed
from deploys.preflight import preflight
from deploys.reboot import reboot
from deploys.versions import kernel, repositories
from rackproof.configure import operations as common
from rackproof.configure.deploy import alone, deploy
from rackproof.configure.gpu import operations, plan, repository, simulated, tools
from rackproof.configure.gpu.plan import INSTALL_TIMEOUT_S
from rackproof.configure.machine import machine_here, required_machine
from rackproof.configure.repositories import repository_key
from rackproof.configure.site import here
from rackproof.configure.versions.stages import stage
from rackproof.core.gpu_generations import UnsupportedGpu
from rackproof.core.nvlink_domain import declared_domains


@deploy("GPU")
def gpu() -> None:
    site = here()
    declared = site.architecture.gpu
    if declared is None or plan.why_nothing(site):
        return
    if site.settings.simulated_gpus:
        common.files(name="Simulated GPUs", entries=simulated.files(site, declared))
        common.units(name="Devices of simulated GPUs", wanted=simulated.units(declared))
    else:
        gpu_driver()


@deploy("GPU: driver")
def gpu_driver() -> None:
    site, machine = here(), required_machine()
    planned = plan.plan_of(site, machine)
    plan.warn(planned)
    family, hold, entries = machine.family, planned.stack.hold, plan.files(site, planned)
    driver = plan.wanted(planned, entries)
    # Before the repository file that names it: a repository that cannot be verified stops every installation.
    if source := planned.repository:
        repository_key(repository.NAME, source, family)
    common.files(name="Files", entries=entries)
    if headers := planned.packages.headers:
        operations.installed(
            name="Kernel headers", packages=headers, family=family, hold=False, _timeout=INSTALL_TIMEOUT_S
        )
    if planned.versions:
        stage("driver", "Driver packages")
    operations.driver(name="Driver", target=driver, machine=machine, _timeout=INSTALL_TIMEOUT_S)
    if planned.versions:
        stage("gpu", "Locked tools")
        if planned.declared.gds:
            stage("gds", "Locked GPUDirect Storage")
    if planned.packages.tools:
        operations.installed(
            name="Tools", packages=planned.packages.tools, family=family, hold=hold, _timeout=INSTALL_TIMEOUT_S
        )  # fmt: skip
    if planned.declared.gpudirect == "dmabuf":
        operations.gpudirect_dmabuf(name="GPUDirect RDMA", target=driver, machine=machine)
    operations.driver_units(name="Services", wanted=plan.units(planned), target=driver, machine=machine)
    if planned.choice.imex:
        common.meet(name="GPUs of all nodes")
        operations.nvlink_domain(name="NVLink domain", declared=declared_domains(site.rack))
    if planned.tuning:
        operations.tuned(name="Settings", wanted=planned.tuning, machine=machine)
    for tool in tools.wanted(planned.stack):  # a program that cannot be built keeps no node from its reboot
        operations.built(
            name=f"Build {tool.name}", tool=tool, _timeout=INSTALL_TIMEOUT_S, _ignore_errors=True
        )  # fmt: skip


@deploy("GPU: GPUDirect Storage")
def gpudirect_storage() -> None:
    """Verify GPUDirect Storage on every declared file system, after the clients, which are built against the sources of
    driver and nvidia-fs."""
    site, machine = here(), machine_here()
    if machine is None or not plan.proves_storage(site):
        return
    try:
        planned = plan.plan_of(site, machine)
    except UnsupportedGpu:
        return  # gpu_driver refuses the node
    operations.gpudirect_storage(
        name="GPUDirect Storage", declared=planned.declared, stack=planned.stack,
        target=plan.wanted(planned, plan.files(site, planned)), machine=machine,
    )  # fmt: skip


if alone(__name__, plan.why_nothing):
    preflight()
    base()
    repositories()
    kernel()
    driver_swap()
    drivers_needed()
    gpu()
    gpudirect_storage()
    reboot()
