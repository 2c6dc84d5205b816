"""Drains a node in Slurm before its driver or network stack is replaced, so that no job meets two versions.

The node is resumed at the end of the run after which no reboot is needed (``deploys/reboot.py``). Nodes without GPUs,
and those whose Slurm controller is outside the rack, are left to their operators; preflight checks the latter.

Run alone, this file only drains: ``deploys/reboot.py`` resumes the node.
"""

from __future__ import annotations

from deploys.preflight import preflight
from rackproof.configure.deploy import alone, deploy
from rackproof.configure.driver_swap import operations
from rackproof.configure.driver_swap.pending import why_nothing
from rackproof.configure.preflight.operations import preflight_inputs
from rackproof.configure.reboot.gpu_users import BUSY
from rackproof.configure.site import here


@deploy("Driver swap", why_nothing)
def driver_swap() -> None:
    site = here()
    operations.out_of_slurm(name="Out of Slurm", site=site, accepted=BUSY in preflight_inputs(site).accept)


if alone(__name__, why_nothing):
    preflight()
    driver_swap()
