"""Slurm: one controller, slurmd on the architecture's roles, one key and one configuration for all.

Takes effect at once. A changed configuration is read again where that is enough and daemons start anew where it is
not; jobs outlive both. A new rack comes up idle. A node that Slurm itself put down because of what was changed here
is taken back; one that somebody drained stays drained. slurmdbd is not set up, only named (``accounting_host``).
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError

from deploys import templates
from deploys.site_repository import site_repository
from rackproof.configure import operations
from rackproof.configure.files import Entry, RemoteDirectory, RemoteFile
from rackproof.configure.machine import family_here
from rackproof.configure.settings import read_inputs
from rackproof.configure.site import Site, here
from rackproof.configure.slurm import operations as slurm_operations
from rackproof.configure.slurm.cluster import Cluster, check_mig, cluster_of, is_member, package_names
from rackproof.configure.slurm.inputs import SlurmInputs
from rackproof.configure.units import Unit
from rackproof.configure.versions.site import take
from rackproof.errors import InventoryError

REPOSITORY = "slurm"


def cluster_here(site: Site) -> Cluster | None:
    """The cluster that this node is a part of. Raises DeployError for what this rack cannot have."""
    try:
        cluster = cluster_of(site.architecture, site.rack, read_inputs(site.node, "slurm", SlurmInputs))
        if cluster is None or not is_member(cluster, site.node):
            return None
        head = read_inputs(site.rack.node(cluster.controller), "slurm", SlurmInputs)
    except InventoryError as error:
        raise DeployError(str(error)) from None
    if head != cluster.inputs:
        raise DeployError(f"{site.node.name}: slurm: not the inputs of {cluster.controller}; set them for all nodes")
    return cluster


@deploy("Slurm")
def slurm() -> None:
    site = here()
    cluster = cluster_here(site)
    if cluster is None:
        return
    if site.node.name in cluster.nodes and not site.settings.simulated_gpus:
        try:
            check_mig(cluster, site.node.name)
        except InventoryError as error:
            raise DeployError(str(error)) from None
    family = family_here()
    controls, works = site.node.name == cluster.controller, site.node.name in cluster.nodes
    if family == "rhel" and cluster.inputs.repository_url:
        said = cluster.inputs
        site_repository(
            REPOSITORY, "Slurm", said.repository_url or "", said.repository_key_url or "",
            said.repository_key_sha256 or "",
        )  # fmt: skip
    packages = package_names(cluster, site.node, family)
    operations.packages(name="Packages", names=packages, family=family)
    take(packages)
    operations.files(name="Files", entries=files(site, cluster))
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
        render=lambda nodes, partitions: configuration(site, cluster, nodes, partitions),
        simulated=site.settings.simulated_gpus,
    )
    if controls:
        operations.units(name="Controller", wanted=controller_units())
    operations.meet(name="Controller before nodes")
    if works:
        operations.units(name="Node", wanted=node_units())
        slurm_operations.registered(name="Registered", node=site.node.name)


def configuration(site: Site, cluster: Cluster, nodes: list[str], partitions: list[str]) -> str:
    return templates.text(
        "/etc/slurm/slurm.conf",
        architecture=site.architecture.metadata.id,
        cluster=cluster,
        inputs=cluster.inputs,
        nodes=nodes,
        partitions=partitions,
    )


def files(site: Site, cluster: Cluster) -> tuple[Entry, ...]:
    """Everything but what another node has to answer for."""
    base = cluster.inputs.state_directory
    cgroup, limits = "/etc/slurm/cgroup.conf", "/etc/systemd/system/slurmd.service.d/rackproof.conf"
    entries: list[Entry] = [RemoteDirectory("/etc/slurm"), RemoteDirectory(base)]
    if site.node.name == cluster.controller:
        entries.append(RemoteDirectory(f"{base}/slurmctld", mode="700", owner="slurm", group="slurm"))
    if site.node.name in cluster.nodes:
        entries += [
            RemoteDirectory(f"{base}/slurmd"),
            RemoteFile(limits, templates.text(limits, memlock=_memlock(site)), restart=("slurmd.service",)),
            RemoteFile(cgroup, templates.text(cgroup), restart=("slurmd.service",)),
        ]
    return tuple(entries)


def controller_units() -> tuple[Unit, ...]:
    return (
        Unit("munge.service"),
        Unit("slurmctld.service", proof="timeout -k 2 10 scontrol ping 2>/dev/null | grep -q ' is UP'"),
    )


def node_units() -> tuple[Unit, ...]:
    return (Unit("munge.service"), Unit("slurmd.service"))


def _memlock(site: Site) -> str:
    """As systemd reads it."""
    memlock = site.architecture.system.limits_memlock
    return "infinity" if memlock == "unlimited" else f"{memlock}K"
