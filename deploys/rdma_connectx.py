"""RDMA on real adapters (RoCE and InfiniBand). The place is here; the deploy is not written yet."""

from __future__ import annotations

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError

from rackproof.configure.site import here


@deploy("ConnectX")
def rdma_connectx() -> None:
    """Raises DeployError: a fabric that was silently left unconfigured would look like a slow one."""
    site = here()
    raise DeployError(
        f"{site.node.name}: fabric.kind {site.architecture.fabric.kind}: real adapters (PFC, ECN, device names) are"
        " not supported yet; nothing was done"
    )
