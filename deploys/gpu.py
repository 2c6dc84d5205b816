"""GPUs: the driver stack of real ones, or the replay of ``nvidia-smi`` on nodes that say they simulate theirs."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from deploys.gpu_driver import gpu_driver
from rackproof.configure import operations
from rackproof.configure.gpu import simulated
from rackproof.configure.site import here


@deploy("GPU")
def gpu(prove_storage: bool = True) -> None:
    """``prove_storage``: False where ``gpudirect_storage`` is called after the file systems' clients."""
    site = here()
    declared = site.architecture.gpu
    if declared is None or declared.count == 0:
        return
    if site.settings.simulated_gpus:
        operations.files(name="Simulated GPUs", entries=simulated.files(site, declared))
        operations.units(name="Devices of simulated GPUs", wanted=simulated.units(declared))
    else:
        gpu_driver(prove_storage)
