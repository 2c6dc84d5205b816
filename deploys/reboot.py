"""What waits for a reboot: said, or done where it is allowed (``reboot: allowed``, ``rackproof deploy --reboot``).

The last thing of a deploy, so that everything that needs a reboot shares one. What had to wait for it (clients built
for another kernel, GPUs whose driver was not in force) comes with the run after it: ``rackproof deploy --reboot`` makes
both, and gives nodes back to Slurm at the end of the second.

Servers and Slurm's controller go before all others, one at a time, never in a batch with those that wait for them: what
clients write meanwhile waits in their hard mounts, and a node is drained and given back by a controller that is up.
"""

from __future__ import annotations

from typing import Any

from pyinfra.api.deploy import deploy
from pyinfra.context import host

from rackproof.configure.reboot import operations, plan
from rackproof.configure.site import here

SPARE_S = 900
"""Of pyinfra's limit for the whole operation: what reading and giving back take beside the waiting."""


@deploy("Reboot")
def reboot() -> None:
    site = here()
    inputs = plan.reboot_inputs(site, host.data.get("reboot_serial"))
    slurm = site.architecture.slurm
    works = site.in_slurm
    arguments: dict[str, Any] = {
        "mode": plan.mode_of(site, host.data.get("reboot", "refused")),
        "inputs": inputs,
        "kernel": site.architecture.system.kernel,
        "slurm": works,
        "health_check": slurm.health_check if slurm and works else None,
        "exchanges": site.real_gpus is not None,
        "_timeout": int(inputs.limit_s + (inputs.drain_limit_s if works else 0) + inputs.health_limit_s + SPARE_S),
    }
    if site.others_wait:
        operations.reboot(name="Servers", **arguments, _parallel=1)
    else:
        operations.reboot(name="Reboot", **arguments, _parallel=inputs.serial)
