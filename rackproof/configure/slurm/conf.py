"""slurm.conf and gres.conf: written from the cluster, read back from a node, compared."""

from __future__ import annotations

from collections.abc import Mapping

from rackproof.configure.gpu.simulated import DEVICE
from rackproof.configure.slurm.cluster import Cluster
from rackproof.configure.slurm.nodes import folded
from rackproof.errors import Refused
from rackproof.parse.slurm_conf import HEADER, NodeLine, SlurmConf

RESTART_KEYS = frozenset(
    (
        "accountingstoragetype", "authtype", "clustername", "credtype", "grestypes", "jobacctgathertype",
        "prologflags", "proctracktype", "selecttype", "slurmctldhost", "slurmctldport", "slurmdport",
        "slurmdspooldir", "slurmuser", "statesavelocation", "switchtype", "taskplugin", "taskpluginparam",
    )
)  # fmt: skip
"""Keys that a daemon reads when it starts (slurm.conf(5)). Everything else takes ``scontrol reconfigure``; so does,
from 23.11 on, a changed set of nodes, for which older daemons have to be restarted. Jobs outlive either."""


def node_text(cluster: Cluster, lines: Mapping[str, NodeLine]) -> list[str]:
    """NodeName lines, nodes that are alike folded."""
    gres = ",".join(f"{name}:{count}" for name, count in cluster.declared.gres.items())
    reserved = cluster.inputs.memory_reserved_mib
    kept = ",".join(map(str, cluster.inputs.cpu_spec_list))
    return [
        f"NodeName={names} Sockets={line.sockets} CoresPerSocket={line.cores} ThreadsPerCore={line.threads}"
        f" RealMemory={line.memory_mib}"
        + (f" MemSpecLimit={reserved}" if reserved else "")
        + (f" CpuSpecList={kept}" if kept else "")
        + (f" Gres={gres}" if gres else "")
        + " State=UNKNOWN"
        for names, line in folded(lines)
    ]


def check_kept(cluster: Cluster, lines: Mapping[str, NodeLine]) -> None:
    """Raises Refused if ``cpu_spec_list`` has CPUs that a node lacks, or leaves jobs no core: slurmd would exit."""
    kept = cluster.inputs.cpu_spec_list
    for names, line in folded(lines):
        threads = line.sockets * line.cores * line.threads
        if kept and max(kept) >= threads:
            raise Refused(f"slurm.cpu_spec_list: {names}: expected numbers below {threads}, actual {max(kept)}")
        if len({number // line.threads for number in kept}) >= line.sockets * line.cores:
            raise Refused(f"slurm.cpu_spec_list: {names}: every core is kept, and none is left for jobs")


def partition_text(cluster: Cluster, lines: Mapping[str, NodeLine]) -> list[str]:
    """PartitionName lines: every partition holds every node; the first one is the default."""
    names = [names for names, _ in folded(lines)]
    texts = []
    for index, partition in enumerate(cluster.partitions):
        options = {"Default": "YES" if index == 0 else "NO", "MaxTime": "INFINITE", "State": "UP"}
        options |= cluster.inputs.partition_options.get(partition, {})
        words = " ".join(f"{key}={value}" for key, value in options.items())
        texts.append(f"PartitionName={partition} Nodes={','.join(names)} {words}")
    return texts


def gres_text(cluster: Cluster, simulated: bool, nvml: bool) -> str:
    """gres.conf of one node. Raises Refused, one line, for MIG devices without the NVML plugin."""
    lines = [f"{HEADER}. What this node has to give to jobs beside processors and memory."]
    for name, count in cluster.declared.gres.items():
        if name != "gpu":
            lines.append(f"Name={name} Count={count}")
        elif simulated:
            # slurmd ignores GPUs without a device, whatever their number.
            lines += ["# Simulated: devices with nothing behind them.", "AutoDetect=off", _of_devices(DEVICE, count)]
        else:
            if cluster.mig and cluster.inputs.gres_autodetect != "nvml" and not nvml:
                raise Refused(
                    "slurm.gres.gpu: only NVML finds partitions of MIG (gpu.mig: Enabled), and Slurm's package here has"
                    " no gpu_nvml.so: install one that has (slurm.repository, or the version set), say"
                    " slurm.gres_autodetect: nvml where it lies elsewhere, or gpu.mig: Disabled"
                )
            lines += _gpus(cluster.inputs.gres_autodetect, count, nvml)
    return "\n".join(lines) + "\n"


def _gpus(method: str, count: int, nvml: bool) -> list[str]:
    if method == "auto" and nvml:
        method = "nvml"
    if method in ("auto", "off"):
        return ["AutoDetect=off", _of_devices("/dev/nvidia", count)]
    return [f"AutoDetect={method}", "Name=gpu"]


def needs_restart(before: SlurmConf | None, after: SlurmConf) -> bool:
    """Whether daemons have to restart for a changed slurm.conf; otherwise they reread it."""
    if before is None or set(before.nodes) != set(after.nodes) or before.kept != after.kept:
        return True
    return any(before.values.get(key) != after.values.get(key) for key in RESTART_KEYS)


def check_ours(node: str, before: SlurmConf | None, cluster: Cluster) -> None:
    """Raises Refused if the node's slurm.conf is not the kit's or names another controller than the inventory."""
    if before is None:
        return
    if not before.ours:
        where = f" of a cluster with the controller {before.controller}" if before.controller else ""
        raise Refused(
            f"{node}: /etc/slurm/slurm.conf{where} is not the kit's; nothing was done."
            " If that cluster is given up: remove the file"
        )
    if before.controller != cluster.controller:
        raise Refused(
            f"{node}: the controller is {before.controller}, the inventory says {cluster.controller}; nothing was done."
            f" To move it: stop slurmctld there, copy {cluster.inputs.state_directory}/slurmctld over, and remove"
            " /etc/slurm/slurm.conf on every node"
        )


def _of_devices(prefix: str, count: int) -> str:
    return f"Name=gpu File={prefix}{f'[0-{count - 1}]' if count > 1 else 0}"
