"""Local storage: a labelled file system on a local drive, mounted at boot."""

from __future__ import annotations

from rackproof.configure.mounts import DesiredMount
from rackproof.configure.storage_client.client import NamedStorage


def mounts(named: NamedStorage) -> tuple[DesiredMount, ...]:
    storage = named.storage
    keys = {option.split("=")[0] for option in storage.options}
    return (
        DesiredMount(
            name=named.name,
            what=f"/dev/disk/by-label/{storage.source}",
            where=storage.mountpoint,
            type=storage.fstype,
            options=(*storage.options, *(() if "nofail" in keys else ("nofail",))),
            fstype=storage.fstype,
            required=storage.options_required,
            forbidden=storage.options_forbidden,
            network=False,
            read_ahead_kib=storage.read_ahead_kib,
        ),
    )
