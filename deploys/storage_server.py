"""NFS server over TCP and RDMA with a drive of its own; version 3 if a storage declares it.

Only the fabric's networks may mount its exports. At boot the server starts when its drive is mounted and the network,
with its RDMA devices, is online; until then clients retry. Where clients mount from several addresses
(``mounts_per_client``), every node of the role serves, and on its second addresses as well.
"""

from __future__ import annotations

from deploys.base import base
from deploys.fabric import fabric_needed
from deploys.preflight import preflight
from deploys.reboot import reboot
from rackproof.configure import operations
from rackproof.configure.deploy import alone, deploy
from rackproof.configure.files import RemoteDirectory
from rackproof.configure.site import here
from rackproof.configure.storage_client import operations as storage_operations
from rackproof.configure.storage_server import plan


@deploy("Storage server", plan.why_nothing)
def storage_server() -> None:
    site = here()
    drive, mount = plan.export_drive(site), plan.export_mount(site)
    operations.filesystem(name="File system", drive=drive)
    operations.files(name="Files", entries=plan.files(site))
    operations.mounted(name="Drive", wanted=(mount,))
    if below := [path for path in plan.export_paths(site) if path != mount.where]:
        operations.files(name="Exported folders", entries=[RemoteDirectory(path) for path in below])
    if steps := plan.address_steps(site):
        storage_operations.ensured(name="Second addresses", steps=steps)
    operations.units(name="Services", wanted=plan.units(site))


if alone(__name__, plan.why_nothing):
    preflight()
    base()
    fabric_needed()
    storage_server()
    reboot()
