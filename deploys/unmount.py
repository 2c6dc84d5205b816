"""Unmount storage: ``pyinfra INVENTORY deploys/unmount.py``, optionally with ``--data unmount=nfs-tcp,scratch``.

Without ``unmount``: mounts that are no longer in the architecture. With names: also these; with ``all``: every network
mount of the kit, e.g. before another NFS client is installed. A mount that is in use stays, the process is named, and
the run fails on that node. The next deploy mounts declared storage again.
"""

from __future__ import annotations

from pyinfra.context import host

from rackproof.configure import operations
from rackproof.configure.deploy import alone, deploy
from rackproof.configure.site import here
from rackproof.configure.storage_client import plan


@deploy("Unmount")
def unmount() -> None:
    operations.unmounted(name="Mounts", keep=plan.kept_mounts(here(), str(host.data.get("unmount") or "")))


if alone(__name__):
    unmount()
