"""Benchmark programs: names those that the node's role needs and that are not on PATH.

Their packages are installed with all others.
"""

from __future__ import annotations

from deploys.base import base
from deploys.preflight import preflight
from deploys.reboot import reboot
from rackproof.configure import operations
from rackproof.configure.deploy import alone, deploy
from rackproof.configure.machine import family_here
from rackproof.configure.site import here


@deploy("Tools")
def tools() -> None:
    site = here()
    names = site.architecture.programs_of(site.node.groups)
    operations.programs(name="Programs", names=names, family=family_here())


if alone(__name__):
    preflight()
    base()
    tools()
    reboot()
