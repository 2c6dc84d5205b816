"""Files from templates, and those that several concerns declare with different content."""

from __future__ import annotations

from collections.abc import Sequence

from rackproof.configure.files import RemoteFile
from rackproof.configure.mounts import DesiredMount
from rackproof.configure.render import templates


def rendered(
    path: str,
    *,
    mode: str = "644",
    restart: tuple[str, ...] = (),
    reload: tuple[str, ...] = (),
    **values: object,
) -> RemoteFile:
    """The file whose template is at its own path, with the template's values."""
    return RemoteFile(path, templates.text(path, **values), mode=mode, restart=restart, reload=reload)


def drive_unit(mount: DesiredMount, description: str) -> RemoteFile:
    """Unit that mounts a local drive; a change remounts it."""
    text = templates.text("/etc/systemd/system/drive.mount", description=description, mount=mount)
    return RemoteFile(f"/etc/systemd/system/{mount.unit}", text, restart=(mount.unit,))


def boot_modules(name: str, purpose: str, modules: Sequence[str], *, load_now: bool = False) -> RemoteFile:
    """Modules to load at boot, in ``/etc/modules-load.d/rackproof-NAME.conf``. ``load_now``: a change loads them."""
    return RemoteFile(
        f"/etc/modules-load.d/rackproof-{name}.conf",
        templates.text("/etc/modules-load.d/rackproof.conf", purpose=purpose, modules=modules),
        restart=("systemd-modules-load.service",) if load_now else (),
    )
