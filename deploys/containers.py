"""Containers: the declared runtime, and the bridge that gives them shared storage without privileges.

Takes effect at once; a changed daemon restarts (docker keeps its containers: live restore). GPUs in containers are
the container toolkit's business, which follows; daemon.json and config.toml name its runtime already, so that each
file has one writer. See ``rackproof.configure.containers.bridge`` for the mechanism.
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.context import host

from deploys.versions import stage
from rackproof.configure import facts, operations
from rackproof.configure.containers import daemon, plan
from rackproof.configure.containers import operations as container_operations
from rackproof.configure.containers.inputs import ContainerInputs
from rackproof.configure.machine import family_here
from rackproof.configure.site import Site, here
from rackproof.configure.site_repository import site_repository
from rackproof.configure.versions.site import packages_here


@deploy("Containers")
def containers() -> None:
    site = here()
    declared = site.architecture.containers
    if declared is None or not plan.applies(site):
        return
    chosen = plan.inputs_here(site)
    family = family_here()
    _packages(site, daemon.packages(declared.runtime, family), family, chosen)
    if chosen.packages:
        container_operations.downloads(name="Downloads", wanted=chosen.packages, family=family)
    operations.files(name="Files", entries=plan.files(site, declared, chosen, family))
    if wanted := plan.units(site, declared):
        operations.units(name="Services", wanted=wanted)
    if declared.bridge:
        container_operations.container_user(name="User", inputs=chosen, folders=plan.folders(site, declared))
    if declared.bridge and declared.runtime == "podman":
        container_operations.host_root(name="Root of containers without an image", mountpoints=plan.mountpoints(site))


def _packages(site: Site, names: tuple[str, ...], family: str, chosen: ContainerInputs) -> None:
    """The version set's by its rules, the others from where the inventory says, or the distribution's own."""
    locked = {each.name: each.component for each in packages_here("all")}
    left = [name for name in names if name not in locked]
    if left and (nowhere := daemon.without_source(left, family, chosen)):
        installed = host.get_fact(facts.InstalledPackages, packages_wanted=left, family=family)
        # What an image has brought need not come from anywhere.
        if installed is not None and not set(nowhere) <= installed:
            raise DeployError(
                f"{site.node.name}: containers.repository: RHEL's family has no {' and no '.join(nowhere)}; give source"
                " and key (url and sha256) of a repository that has, or name it in the version set"
            )
    if family == "rhel" and chosen.repository:
        source = chosen.repository
        site_repository("containers", "Containers", source.source, source.key.url, source.key.sha256)
    for component in dict.fromkeys(locked[name] for name in names if name in locked):
        stage(component, "Locked runtime")
    if left:
        operations.packages(name="Packages", names=left, family=family)
