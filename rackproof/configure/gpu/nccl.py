"""/etc/nccl.conf: which adapters collectives use and how their packets are marked. Pure.

What the fabric needs is read from the architecture, so that it cannot differ from what the adapters are set to. Values
that only a site knows (an algorithm, a topology file) override it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rackproof.core.architecture import Fabric, Nic

PATH = "/etc/nccl.conf"


def devices(fabric: Fabric, nics: Sequence[Nic], declared: Sequence[str] | None = None) -> tuple[str, ...]:
    """RDMA devices of collectives: the declared ones, else the compute ports, else one per rail."""
    if declared is not None:
        return tuple(declared)
    ports = tuple(port for nic in nics if nic.purpose == "compute" for port in nic.ports)
    return ports or tuple(f"{fabric.rdma_prefix}{rail}" for rail in range(fabric.rails))


def settings(
    fabric: Fabric | None, nics: Sequence[Nic], hca: Sequence[str] | None, over: Mapping[str, str]
) -> dict[str, str]:
    """Key: value, in the order of the file."""
    derived: dict[str, str] = {}
    if fabric is not None:
        names = devices(fabric, nics, hca)
        if names:
            # "=" takes the names as they are; without it mlx5_1 would stand for mlx5_10 as well.
            derived["NCCL_IB_HCA"] = f"={','.join(names)}"
        if fabric.kind == "roce" and fabric.lossless is not None:
            marked = fabric.lossless.traffic_class
            marked = fabric.lossless.tos if marked is None else marked
            if marked is not None:
                derived["NCCL_IB_TC"] = str(marked)
            if fabric.lossless.gid_index is not None:
                derived["NCCL_IB_GID_INDEX"] = str(fabric.lossless.gid_index)
    merged = {**derived, **over}
    return {key: value for key, value in merged.items() if value != ""}
