"""Benchmark programs: checks that they are on PATH. Their packages are installed with all others."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from deploys.base import base
from deploys.preflight import preflight
from deploys.reboot import reboot
from rackproof.configure import operations
from rackproof.configure.alone import alone
from rackproof.configure.site import here


@deploy("Tools")
def tools() -> None:
    operations.programs(name="Programs", names=here().architecture.tools.programs)


if alone(__name__):
    preflight()
    base()
    tools()
    reboot()
