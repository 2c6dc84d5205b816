"""The stack of real GPUs: driver, fabric manager, settings, DCGM, CUDA, GPUDirect Storage.

Which driver a node gets follows from the generation of its GPUs (PCI device ids), the operating system and the
inputs ``gpu_stack``; versions come from the version set where there is one. What the running kernel still holds against
it (nouveau, an older driver, options of a module) needs a reboot: it is marked, and everything else is prepared for it.
"""

from __future__ import annotations

from pyinfra import logger
from pyinfra.api.deploy import deploy
from pyinfra.context import host

from deploys.versions import stage
from rackproof.configure import operations
from rackproof.configure.gpu import install
from rackproof.configure.gpu import operations as gpu_operations
from rackproof.configure.gpu import plan as planning
from rackproof.configure.gpu import repository as gpu_repository
from rackproof.configure.machine import machine_here
from rackproof.configure.site import here
from rackproof.core.gpu_generations import UnsupportedGpu

INSTALL_TIMEOUT_S = 3600
"""CUDA over a slow mirror, DKMS and initial file systems for several kernels."""


@deploy("GPU driver")
def gpu_driver(prove_storage: bool = True) -> None:
    """``prove_storage``: False where ``gpudirect_storage`` is called later, after the file systems' clients."""
    site = here()
    machine = machine_here()
    if machine is None:
        gpu_operations.refused(name="Machine", reason="operating system and PCI devices could not be read")
        return
    try:
        plan = planning.plan_of(site, machine)
    except UnsupportedGpu as error:
        gpu_operations.refused(name="Driver", reason=str(error))
        return
    for problem in planning.warnings(plan):
        logger.warning("%s: %s", host.name, problem)
    family, stack = machine.family, plan.stack
    entries = planning.files(site, plan)
    target = planning.wanted(plan, entries)
    # Before the repository that names it: one that cannot be verified stops every other installation, too.
    if repository := plan.repository:
        gpu_operations.signing_key(
            name="Repository key",
            path=gpu_repository.KEYS[family],
            url=repository.key_url,
            sha256=repository.key_sha256,
            family=family,
        )
    operations.files(name="Files", entries=entries)
    if plan.headers:
        gpu_operations.installed(
            name="Kernel headers", packages=plan.headers, family=family, hold=False, _timeout=INSTALL_TIMEOUT_S
        )
    if plan.versions:
        stage("driver", "Driver packages")
    gpu_operations.driver(name="Driver", target=target, machine=machine, _timeout=INSTALL_TIMEOUT_S)
    if plan.versions:
        stage("gpu", "Locked tools")
        if plan.declared.gds:
            stage("gds", "Locked GPUDirect Storage")
    if plan.tools:
        gpu_operations.installed(
            name="Tools", packages=plan.tools, family=family, hold=stack.hold, _timeout=INSTALL_TIMEOUT_S
        )
    if plan.declared.gpudirect == "dmabuf":
        gpu_operations.gpudirect_dmabuf(name="GPUDirect RDMA", target=target, machine=machine)
    gpu_operations.driver_units(name="Services", wanted=planning.units(plan), target=target, machine=machine)
    if plan.tuning:
        gpu_operations.tuned(name="Settings", wanted=plan.tuning, machine=machine)
    if prove_storage:
        _prove_storage(plan, target)


@deploy("GPUDirect Storage")
def gpudirect_storage() -> None:
    """Prove that every promised file system is reached directly: after their clients, which are built against the
    driver's and nvidia-fs's sources."""
    site = here()
    machine = machine_here()
    declared = site.architecture.gpu
    if machine is None or declared is None or not declared.gds or site.settings.simulated_gpus:
        return
    try:
        plan = planning.plan_of(site, machine)
    except UnsupportedGpu:
        return  # gpu_driver refuses the node
    _prove_storage(plan, planning.wanted(plan, planning.files(site, plan)))


def _prove_storage(plan: planning.Plan, target: install.WantedDriver) -> None:
    if plan.declared.gds:
        gpu_operations.gpudirect_storage(
            name="GPUDirect Storage", declared=plan.declared, stack=plan.stack, target=target, machine=plan.machine
        )
