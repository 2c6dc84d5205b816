"""Packages by URL and sha256: downloaded, compared, and only then installed, all in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from rackproof.configure.inputs import Download
from rackproof.configure.package_transaction.transaction import (
    STRICT,
    Policy,
    Transaction,
    package_file,
    transaction_script,
)
from rackproof.shell import Script

DONE = "/var/lib/rackproof/downloads"
"""A file for each sha256 that was installed."""


def state_command() -> str:
    return f'for f in {DONE}/*; do [ ! -e "$f" ] || echo "${{f##*/}}"; done; '


def install_script(downloads: Sequence[Download], family: str, policy: Policy = STRICT) -> str:
    """Fails with the URL when a file is missing or has another digest; nothing is installed then."""
    files = tuple(package_file(download.url, download.sha256, family) for download in downloads)
    return Script.of(
        "set -eu",
        transaction_script(Transaction(family, files=files, policy=policy)),
        f"mkdir -p {DONE}",
        *(f"touch {DONE}/{download.sha256}" for download in downloads),
    )
