"""Slurm: one controller, slurmd on the architecture's roles, one key and one configuration for all.

Takes effect at once. Daemons reload a changed configuration, or restart where a reload is not enough; jobs survive
both. Nodes of a new rack are idle. A node that Slurm itself set down because of this change is resumed; a node that an
operator drained stays drained. slurmdbd is not installed, only named (``accounting_host``).
"""

from __future__ import annotations

from deploys.base import base
from deploys.fabric import fabric_needed
from deploys.preflight import preflight
from deploys.reboot import reboot
from deploys.versions import repositories
from rackproof.configure import operations
from rackproof.configure.deploy import alone, deploy
from rackproof.configure.machine import family_here
from rackproof.configure.repositories import declared_repository
from rackproof.configure.site import here
from rackproof.configure.slurm import operations as slurm_operations
from rackproof.configure.slurm import plan
from rackproof.configure.slurm.cluster import package_names
from rackproof.configure.versions.site import take


@deploy("Slurm")
def slurm() -> None:
    site = here()
    cluster = plan.cluster_here(site)
    if cluster is None:
        return
    plan.check_gpus(site, cluster)
    family, inputs = family_here(), cluster.inputs
    controls, works = site.node.name == cluster.controller, site.node.name in cluster.nodes
    if family == "rhel" and inputs.repository:
        declared_repository("slurm", "Slurm", inputs.repository, family)
    packages = package_names(cluster, site.node, family)
    operations.packages(name="Packages", names=packages, family=family)
    take(packages)
    if family == "rhel":
        slurm_operations.system_user(name="User", number=inputs.user_id, home=inputs.state_directory)
    operations.files(name="Files", entries=plan.files(site, cluster))
    if controls:
        slurm_operations.make_munge_key(name="Munge key")
    operations.meet(name="Key before those who need it")
    if not controls:
        slurm_operations.same_clock(
            name="Clock", controller=cluster.controller, limit_s=cluster.declared.max_clock_skew_s
        )
        slurm_operations.bring_munge_key(name="Munge key of the controller", controller=cluster.controller)
    slurm_operations.configuration(
        name="Configuration",
        cluster=cluster,
        render=lambda nodes, partitions: plan.configuration(site, cluster, nodes, partitions),
        simulated=site.settings.simulated_gpus,
    )
    if controls:
        operations.units(name="Controller", wanted=plan.controller_units())
    operations.meet(name="Controller before nodes")
    if works:
        operations.units(name="Node", wanted=plan.node_units())
        slurm_operations.registered(name="Registered", node=site.node.name)


if alone(__name__, plan.why_nothing):
    preflight()
    base()
    repositories()
    fabric_needed()
    slurm()
    reboot()
