"""A site's package repository on RHEL's family: the key first, then dnf's repository file."""

from __future__ import annotations

from rackproof.configure import operations
from rackproof.configure.gpu import operations as gpu_operations
from rackproof.configure.repositories import dnf_repository, key_path


def site_repository(name: str, title: str, url: str, key_url: str, key_sha256: str) -> None:
    """Operations for one repository; call it from a deploy."""
    gpu_operations.signing_key(
        name="Repository key", path=key_path(name), url=key_url, sha256=key_sha256, family="rhel"
    )  # fmt: skip
    operations.files(name="Repository", entries=(dnf_repository(name, title, url),))
