"""RDMA in software (Soft-RoCE) on every fabric port. Its devices do not survive a reboot; a unit makes them again.

``files`` lands together with the fabric's own files: every operation is a round trip to every node.
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from rackproof.configure import operations
from rackproof.configure.fabric import soft_roce
from rackproof.configure.site import here


@deploy("Soft-RoCE")
def rdma_soft() -> None:
    operations.units(name="Devices", wanted=soft_roce.units(here()))
