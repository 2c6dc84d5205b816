"""Containers: the declared runtime, the bridge that gives them shared storage without privileges, and GPUs in them.

Takes effect at once; a changed daemon restarts (docker keeps its containers: live restore). daemon.json and
config.toml name NVIDIA's runtime from the start, so that each file has one writer. Which runtimes hand out GPUs is the
inventory's ``gpu.runtimes``; the CDI specification, for all others, is written again at every boot, since it names
files of the driver in force. See ``rackproof.configure.containers.bridge`` for the bridge.
"""

from __future__ import annotations

from collections.abc import Sequence

from deploys.base import base
from deploys.preflight import preflight
from deploys.reboot import reboot
from deploys.versions import repositories
from rackproof.configure import operations
from rackproof.configure.containers import daemon, plan
from rackproof.configure.containers import operations as container_operations
from rackproof.configure.containers.inputs import ContainerInputs
from rackproof.configure.deploy import alone, deploy
from rackproof.configure.gpu import operations as gpu_operations
from rackproof.configure.gpu import packages, runtimes
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.gpu.plan import INSTALL_TIMEOUT_S
from rackproof.configure.machine import family_here, machine_here, required_machine
from rackproof.configure.repositories import declared_repository
from rackproof.configure.settings import read_inputs
from rackproof.configure.shared_files import rendered
from rackproof.configure.site import here
from rackproof.configure.units import Unit
from rackproof.configure.versions.site import packages_here
from rackproof.configure.versions.stages import stage


@deploy("Containers")
def containers() -> None:
    site = here()
    declared = site.architecture.containers
    if declared is None or not plan.applies(site):
        return
    chosen = plan.inputs_here(site)
    family = family_here()
    _packages(daemon.packages(declared.runtime, family), family, chosen)
    if chosen.packages:
        container_operations.downloads(name="Downloads", wanted=chosen.packages, family=family)
    machine = machine_here()
    operations.files(
        name="Files", entries=plan.files(site, declared, chosen, family, machine.arch if machine else "x86_64")
    )
    if units := plan.units(declared):
        operations.units(name="Services", wanted=units)
    if declared.bridge:
        container_operations.container_user(name="User", inputs=chosen, folders=plan.folders(site, declared))
    if declared.bridge and declared.runtime == "podman":
        container_operations.host_root(name="Root of containers without an image", mountpoints=plan.mountpoints(site))


def _packages(names: Sequence[str], family: str, chosen: ContainerInputs) -> None:
    stages, others = plan.sources(names, packages_here("all"))
    plan.check_sources(others, family, chosen)
    if family == "rhel" and (repository := chosen.repository):
        declared_repository("containers", "Containers", repository, family)
    for component in stages:
        stage(component, "Locked runtime")
    if others:
        operations.packages(name="Packages", names=others, family=family)


@deploy("Containers: NVIDIA toolkit")
def container_toolkit() -> None:
    site = here()
    if not plan.hands_out_gpus(site):
        return
    stack, machine = read_inputs(site.node, GpuInputs), required_machine()
    declared, groups = site.architecture.containers, site.node.groups
    handing_out, own = runtimes.handing_out(declared, groups, stack), runtimes.owned(declared, groups)
    if packages_here("container_toolkit"):
        stage("container_toolkit", "Locked packages")
    else:
        gpu_operations.installed(
            name="Packages",
            packages=packages.container_toolkit(stack, handing_out),
            family=machine.family,
            hold=stack.hold,
            _timeout=INSTALL_TIMEOUT_S,
        )
    operations.files(name="Files", entries=(rendered(f"/etc/systemd/system/{runtimes.CDI_SERVICE}"),))
    operations.units(name="Services", wanted=(Unit(runtimes.CDI_SERVICE, running=None),))
    gpu_operations.runtimes(name="Runtimes", wanted=runtimes.with_runtime(declared, handing_out, own), owned=own)


@deploy("Containers needed")
def containers_needed() -> None:
    """For this file alone: refuse a node without the mounts and the GPU driver that containers get."""
    site = here()
    if plan.applies(site) and (paths := plan.mountpoints(site)):
        operations.mounts_needed(name="Shared storage", paths=paths)
    if plan.hands_out_gpus(site):
        operations.programs_needed(name="GPU driver", names=("nvidia-smi",), by="deploys/gpu.py")


if alone(__name__, plan.why_nothing):
    preflight()
    base()
    repositories()
    containers_needed()
    containers()
    container_toolkit()
    reboot()
