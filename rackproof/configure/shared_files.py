"""Files from templates, and those that several concerns declare with different content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rackproof.configure.files import RemoteFile
from rackproof.configure.mounts import DesiredMount
from rackproof.configure.render import templates


def rendered(
    path: str, *, template: str | None = None, mode: str = "644", restart: tuple[str, ...] = (),
    reload: tuple[str, ...] = (), sysctl: Mapping[str, str] | None = None, **values: object,
) -> RemoteFile:  # fmt: skip
    """A file from a template with its values; the template is at the path of ``template``, by default at its own."""
    content = templates.text(template or path, sysctl=sysctl, **values)
    return RemoteFile(path, content, mode=mode, restart=restart, reload=reload, sysctl=sysctl or {})


def drive_unit(mount: DesiredMount, description: str) -> RemoteFile:
    """Unit that mounts a local drive; a change remounts it."""
    folder = "/etc/systemd/system"
    return rendered(
        f"{folder}/{mount.unit}", template=f"{folder}/drive.mount", restart=(mount.unit,), description=description,
        mount=mount,
    )  # fmt: skip


def boot_modules(name: str, purpose: str, modules: Sequence[str], *, load_now: bool = False) -> RemoteFile:
    """Modules to load at boot, in ``/etc/modules-load.d/rackproof-NAME.conf``. ``load_now``: a change loads them."""
    return rendered(
        f"/etc/modules-load.d/rackproof-{name}.conf", template="/etc/modules-load.d/rackproof.conf", purpose=purpose,
        modules=modules, restart=("systemd-modules-load.service",) if load_now else (),
    )  # fmt: skip
