"""GPUs: the driver stack of real ones, or the replay of ``nvidia-smi`` on nodes that say they simulate theirs."""

from __future__ import annotations

from typing import Any

from pyinfra.api.deploy import deploy

from deploys import templates
from deploys.gpu_driver import gpu_driver
from rackproof.configure import operations, simulated
from rackproof.configure.files import Entry, RemoteFile
from rackproof.configure.site import Site, here
from rackproof.configure.units import Unit
from rackproof.core.architecture import Gpu

# What a machine would measure is constant in a replay; the time says that it is none.
TIMESTAMP = "Thu Jan  1 00:00:00 1970"
POWER_W = 78
POWER_CAP_W = 700
DEVICES = "/etc/tmpfiles.d/rackproof-simulated-gpu.conf"
DEVICES_UNIT = "systemd-tmpfiles-setup-dev.service"


@deploy("GPU")
def gpu(prove_storage: bool = True) -> None:
    """``prove_storage``: False where ``gpudirect_storage`` is called after the file systems' clients."""
    site = here()
    declared = site.architecture.gpu
    if declared is None or declared.count == 0:
        return
    if site.settings.simulated_gpus:
        operations.files(name="Simulated GPUs", entries=files(site, declared))
        operations.units(name="Devices of simulated GPUs", wanted=units(declared))
    else:
        gpu_driver(prove_storage)


def files(site: Site, declared: Gpu) -> tuple[Entry, ...]:
    driver = (declared.driver or simulated.DRIVER_IF_UNSAID).removeprefix(">=").strip()
    values: dict[str, Any] = {
        "gpus": simulated.simulated_gpus(site.node.name, declared),
        "declared": declared,
        "driver": driver,
        "cuda": simulated.cuda_version(driver),
        "ecc": declared.ecc or "Enabled",
        "persistence": declared.persistence or "Enabled",
        "pcie_generation": declared.pcie_generation or 5,
        "pcie_width": declared.pcie_width or 16,
        "nvlinks": simulated.NVLINKS,
        "nvlink_gb_per_s": simulated.NVLINK_GB_PER_S,
        "timestamp": TIMESTAMP,
        "power_w": POWER_W,
        "power_cap_w": POWER_CAP_W,
    }
    answers = [
        RemoteFile(f"{simulated.RECORDINGS}/{name}", templates.text(f"{simulated.RECORDINGS}/{name}", **values))
        for name in ("table.txt", "query.xml", "list.txt", "topo.txt", "nvlink.txt", "nvlink-errors.txt")
    ]
    program = templates.text(simulated.PROGRAM, recordings=simulated.RECORDINGS)
    devices = templates.text(DEVICES, device=simulated.DEVICE, count=declared.count)
    return (
        *answers,
        RemoteFile(simulated.PROGRAM, program, mode="755"),
        RemoteFile(DEVICES, devices, restart=(DEVICES_UNIT,)),
    )


def units(declared: Gpu) -> tuple[Unit, ...]:
    return (Unit(DEVICES_UNIT, enabled=None, proof=f"test -c {simulated.DEVICE}{declared.count - 1}"),)
