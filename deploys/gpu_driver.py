"""Driver, fabric manager and persistence of real GPUs. The place is here; the deploy is not written yet."""

from __future__ import annotations

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError

from rackproof.configure.site import here


@deploy("GPU driver")
def gpu_driver() -> None:
    """Raises DeployError: a GPU node without its driver is not what was asked for."""
    raise DeployError(
        f"{here().node.name}: real GPUs (driver, fabric manager, persistence) are not supported yet; nothing was done."
        " Nodes that replay nvidia-smi say simulated_gpus in the inventory"
    )
