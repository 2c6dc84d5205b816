"""A site's package repositories on RHEL's family: a key that was compared, and the file that names it.

The key lies on the node before the repository is named: one that cannot be verified would stop every other
installation as well, and ``dnf -y`` imports whatever it is shown.
"""

from __future__ import annotations

from rackproof.configure.files import RemoteFile


def key_path(name: str) -> str:
    """Where the key that has the declared digest lies."""
    return f"/etc/pki/rpm-gpg/rackproof-{name}.asc"


def dnf_repository(name: str, title: str, url: str) -> RemoteFile:
    text = (
        f"# Written by rackproof.\n[rackproof-{name}]\nname={title}\nbaseurl={url}\nenabled=1\ngpgcheck=1\n"
        f"gpgkey=file://{key_path(name)}\n"
    )
    return RemoteFile(f"/etc/yum.repos.d/rackproof-{name}.repo", text)
