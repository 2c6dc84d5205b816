"""The cluster of a node, its files and units."""

from __future__ import annotations

from rackproof.configure.files import Entry, RemoteDirectory
from rackproof.configure.render import templates
from rackproof.configure.settings import read_inputs
from rackproof.configure.shared_files import rendered
from rackproof.configure.site import Site
from rackproof.configure.slurm.cluster import Cluster, check_mig, cluster_of, is_member
from rackproof.configure.slurm.inputs import SlurmInputs
from rackproof.configure.units import Unit
from rackproof.errors import DeclarationError


def why_nothing(site: Site) -> str | None:
    """Raises DeclarationError for what this rack cannot have."""
    return None if cluster_here(site) else "the architecture gives this node no Slurm cluster"


def cluster_here(site: Site) -> Cluster | None:
    """The cluster that this node is a part of. Raises DeclarationError for what this rack cannot have."""
    cluster = cluster_of(site.architecture, site.rack, read_inputs(site.node, SlurmInputs))
    if cluster is None or not is_member(cluster, site.node):
        return None
    if read_inputs(site.rack.node(cluster.controller), SlurmInputs) != cluster.inputs:
        raise DeclarationError(f"slurm: not the inputs of {cluster.controller}; set them for all nodes")
    return cluster


def check_gpus(site: Site, cluster: Cluster) -> None:
    """Raises DeclarationError where slurm.conf cannot describe the node's MIG devices."""
    if site.node.name in cluster.nodes and not site.settings.simulated_gpus:
        check_mig(cluster, site.node.name)


def configuration(site: Site, cluster: Cluster, nodes: list[str], partitions: list[str]) -> str:
    return templates.text(
        "/etc/slurm/slurm.conf",
        cluster=cluster,
        inputs=cluster.inputs,
        nodes=nodes,
        partitions=partitions,
    )


def files(site: Site, cluster: Cluster) -> tuple[Entry, ...]:
    """All files but those that depend on other nodes' answers."""
    base = cluster.inputs.state_directory
    cgroup, limits = "/etc/slurm/cgroup.conf", "/etc/systemd/system/slurmd.service.d/rackproof.conf"
    entries: list[Entry] = [RemoteDirectory("/etc/slurm"), RemoteDirectory(base)]
    if site.node.name == cluster.controller:
        entries.append(RemoteDirectory(f"{base}/slurmctld", mode="700", owner="slurm", group="slurm"))
    if site.node.name in cluster.nodes:
        entries += [
            RemoteDirectory(f"{base}/slurmd"),
            rendered(limits, restart=("slurmd.service",), memlock=_memlock(site)),
            rendered(cgroup, restart=("slurmd.service",)),
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
    """The limit in systemd's notation."""
    memlock = site.architecture.system.limits_memlock
    return "infinity" if memlock == "unlimited" else f"{memlock}K"
