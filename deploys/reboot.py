"""What waits for a reboot: said, or done where it is allowed (``reboot.allowed``, ``rackproof deploy --reboot``).

The last thing of a deploy, so that everything that needs a reboot shares one. What had to wait for it (clients built
for another kernel, GPUs whose driver was not in force) comes with the run after it: ``rackproof deploy --reboot`` makes
both, and gives nodes back to Slurm at the end of the second.

Servers and Slurm's controller go before all others, one at a time, never in a batch with those that wait for them: what
clients write meanwhile waits in their hard mounts, and a node is drained and given back by a controller that is up.
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy
from pyinfra.context import host

from deploys.preflight import preflight
from rackproof.configure.alone import alone
from rackproof.configure.reboot import operations, plan
from rackproof.configure.site import here


@deploy("Reboot")
def reboot() -> None:
    site = here()
    inputs = plan.reboot_inputs(site, host.data.get("reboot_serial"))
    arguments = plan.arguments(site, inputs, host.data.get("reboot_mode"))
    if site.others_wait:
        operations.reboot(name="Servers", **arguments, _parallel=1)
    else:
        operations.reboot(name="Reboot", **arguments, _parallel=inputs.serial)


if alone(__name__):
    preflight()
    reboot()
