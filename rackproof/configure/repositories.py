"""Repositories that the inventory declares: a verified key and the repository file.

The key must be on the node before the repository file: a repository that cannot be verified stops every installation,
and ``dnf -y`` imports any key.
"""

from __future__ import annotations

from rackproof.configure import operations
from rackproof.configure.inputs import Repository
from rackproof.configure.versions import operations as versions
from rackproof.configure.versions.repositories import declared_file, declared_key


def declared_repository(name: str, title: str, source: Repository, family: str) -> None:
    """Operations for one repository; call it from a deploy."""
    repository_key(name, source, family)
    operations.files(name="Repository", entries=(declared_file(name, title, source, family),))


def repository_key(name: str, source: Repository, family: str) -> None:
    """Operation for the key of one repository."""
    versions.signing_keys(name="Repository key", wanted=(declared_key(name, source, family),), family=family)
