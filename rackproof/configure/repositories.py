"""A site's package repositories on RHEL's family: a verified key and the repository file.

The key must be on the node before the repository file: a repository that cannot be verified stops every installation,
and ``dnf -y`` imports any key.
"""

from __future__ import annotations

from rackproof.configure import operations
from rackproof.configure.files import RemoteFile
from rackproof.configure.gpu import operations as gpu_operations
from rackproof.configure.inputs import Repository


def key_path(name: str) -> str:
    """Path of the verified key on the node."""
    return f"/etc/pki/rpm-gpg/rackproof-{name}.asc"


def dnf_repository(name: str, title: str, url: str) -> RemoteFile:
    text = (
        f"# Written by rackproof.\n[rackproof-{name}]\nname={title}\nbaseurl={url}\nenabled=1\ngpgcheck=1\n"
        f"gpgkey=file://{key_path(name)}\n"
    )
    return RemoteFile(f"/etc/yum.repos.d/rackproof-{name}.repo", text)


def site_repository(name: str, title: str, source: Repository) -> None:
    """Operations for one repository; call it from a deploy."""
    key = source.key
    gpu_operations.signing_key(
        name="Repository key", path=key_path(name), url=key.url, sha256=key.sha256, family="rhel"
    )  # fmt: skip
    operations.files(name="Repository", entries=(dnf_repository(name, title, source.source),))
