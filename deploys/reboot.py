"""Reports pending reboots, or reboots nodes where allowed (``reboot.allowed``, ``rackproof deploy --reboot``).

It is the last part of a deploy, so that all changes share one reboot. What must follow the reboot (clients built for
another kernel, GPUs whose driver was not loaded) is done by a second run: ``rackproof deploy --reboot`` makes both, and
resumes nodes in Slurm at the end of the second.

Servers and Slurm's controller reboot before all other nodes, one at a time, never in a batch with nodes that depend on
them: writes of clients wait in their hard mounts, and the controller is up to drain and resume nodes.
"""

from __future__ import annotations

from pyinfra.context import host

from deploys.preflight import preflight
from rackproof.configure.deploy import alone, deploy
from rackproof.configure.preflight.operations import preflight_inputs
from rackproof.configure.reboot import operations, plan
from rackproof.configure.site import here


@deploy("Reboot")
def reboot() -> None:
    site = here()
    inputs = plan.reboot_inputs(site, host.data.get("reboot_serial"))
    arguments = plan.arguments(site, inputs, preflight_inputs(site).accept, host.data.get("reboot_mode"))
    if site.others_wait:
        operations.reboot(name="Servers", **arguments, _parallel=1)
    else:
        operations.reboot(name="Reboot", **arguments, _parallel=inputs.serial)


if alone(__name__):
    preflight()
    reboot()
