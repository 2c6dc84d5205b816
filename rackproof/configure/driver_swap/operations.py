"""Drain a node in Slurm before its driver is replaced. It is resumed when no reboot is needed any more."""

from __future__ import annotations

from pyinfra.api.command import StringCommand
from pyinfra.context import host

from rackproof.configure.driver_swap.pending import pending_swaps_here
from rackproof.configure.machine import machine_here
from rackproof.configure.operation import Commands, Unreadable, ask, operation, record, required
from rackproof.configure.reboot import drain, gpu_users
from rackproof.configure.reboot.facts import DriverUse
from rackproof.configure.site import Site
from rackproof.core.plan import Change
from rackproof.core.wording import some
from rackproof.errors import Refused

WHY = "driver or network stack is replaced"


@operation()
def out_of_slurm(site: Site, accepted: bool) -> Commands:
    """Drain the node if this run replaces its driver or network stack, then check again for programs and jobs.

    + site: the node, its rack and its architecture
    + accepted: the inventory accepts that running programs are disturbed

    **Example:**

    .. code:: python

        operations.out_of_slurm(name="Out of Slurm", site=here(), accepted=False)
    """
    machine = machine_here()
    due = pending_swaps_here(site, machine) if machine is not None else None
    due = required(due, "the installed driver and network stack")
    if not due:
        host.noop("neither driver nor network stack is replaced")
        return
    use = ask(DriverUse, "programs and jobs that use the driver", node=host.name)
    # A drain of the health check does not count: the health check may resume the node at any moment.
    if use.node is None or use.node.by_deploy or ("DRAIN" in use.node.states and not use.node.ours):
        # Without the controller's answer the jobs of a node that runs slurmd are unknown.
        refused = None if accepted else gpu_users.obstacle(use, due, drains=True)
        if refused:
            raise Refused("; ".join(refused))
        else:
            host.noop("Slurm does not know the node" if use.node is None else "the node is drained")
        return
    before = use.node
    record([Change(what=f"{host.name} in Slurm", why=f"drained: {some(due, gpu_users.SHOWN)}")])
    yield StringCommand(drain.withdraw_script(host.name, WHY))
    if not host.state.is_executing:
        return
    # A job may have started since preflight; after the drain none can.
    now = host.get_fact(DriverUse, node=host.name)
    if now is None:
        yield StringCommand(drain.undo_script(host.name, before))
        raise Unreadable("programs and jobs that use the driver")
    if not accepted and (refused := gpu_users.obstacle(now, due, drains=True)):
        yield StringCommand(drain.undo_script(host.name, before))
        raise Refused(f"in Slurm as before, nothing was replaced: {'; '.join(refused)}")
