"""Unmount storage: ``pyinfra INVENTORY deploys/unmount.py`` or, with more, ``--data unmount=nfs-tcp,scratch``.

Without ``unmount``: what the architecture does not have (any more). With names: those of the architecture too; with
``all``: every network mount of the kit's, as before another NFS client is installed. A mount that somebody uses stays,
the process is named, and the run fails on that node. What is in the architecture is mounted again by the next deploy.
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.context import host

from rackproof.configure import operations
from rackproof.configure.mounts import Mount
from rackproof.configure.site import Site, here
from rackproof.core.nearest import suggestion

DEFAULTS = {
    # Names of storage to unmount, divided by commas, or all.
    "unmount": "",
}


@deploy("Unmount", data_defaults=DEFAULTS)
def unmount() -> None:
    site = here()
    operations.unmounted(name="Mounts", keep=staying(site, str(host.data.unmount or "")))


def staying(site: Site, said: str) -> tuple[Mount, ...]:
    """Network mounts that are left alone. Raises DeployError for a storage that no node of the rack mounts."""
    names = {name for name in (part.strip() for part in said.split(",")) if name}
    known = site.architecture.storage
    for name in sorted(names - {"all"} - set(known)):
        raise DeployError(f"unmount: {name}: no such storage; {suggestion(name, known)}")
    if "all" in names:
        return ()
    return tuple(mount for mount in site.client_mounts() if mount.network and mount.name not in names)


unmount()
