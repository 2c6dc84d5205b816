"""Take a node out of Slurm before its driver is exchanged. It comes back when nothing waits for a reboot any more."""

from __future__ import annotations

from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from rackproof.configure.driver_swap import gpu_users
from rackproof.configure.driver_swap.facts import DriverUse
from rackproof.configure.driver_swap.pending import pending_swaps_here
from rackproof.configure.machine import machine_here
from rackproof.configure.operations import Commands, refuse, unreadable
from rackproof.configure.reboot import drain
from rackproof.configure.site import Site

WHY = "driver or network stack is exchanged"


@operation()
def out_of_slurm(site: Site, accepted: bool) -> Commands:
    """Drain the node where this run exchanges driver or network stack, and look once more who works on it.

    ``accepted``: somebody said that whoever works there may be disturbed.
    """
    machine = machine_here()
    due = pending_swaps_here(site, machine) if machine is not None else None
    if due is None:
        yield from unreadable("what of driver and network stack is installed")
        return
    if not due:
        host.noop("neither driver nor network stack is exchanged")
        return
    found = host.get_fact(DriverUse, node=host.name)
    if found is None:
        yield from unreadable("who works with the driver")
        return
    # What the health check drained it may give back at any moment.
    if found.node is None or found.node.by_deploy or ("DRAIN" in found.node.states and not found.node.ours):
        # Without a controller's word a node that runs slurmd has jobs that nobody knows.
        refused = None if accepted else gpu_users.obstacle(found, due, drains=True)
        if refused:
            yield from refuse("; ".join(refused))
        else:
            host.noop("Slurm does not know the node" if found.node is None else "the node is drained")
        return
    before = found.node
    yield StringCommand(drain.withdraw_script(host.name, WHY))
    if not host.state.is_executing:
        return
    # A job may have come between preflight and here; from now on none does.
    found = host.get_fact(DriverUse, node=host.name)
    if found is None:
        yield StringCommand(drain.undo_script(host.name, before))
        yield from unreadable("who works with the driver")
    elif not accepted and (refused := gpu_users.obstacle(found, due, drains=True)):
        yield StringCommand(drain.undo_script(host.name, before))
        yield from refuse(f"in Slurm as before, nothing was exchanged: {'; '.join(refused)}")
