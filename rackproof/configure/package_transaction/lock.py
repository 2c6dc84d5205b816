"""Locks of apt and dnf: which files they are, and the shell that waits for them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from rackproof import shell

LOCK_WAIT_S: Final = 300
"""Seconds to wait for another run of the package manager."""
LOCKS: Final = {
    "debian": (
        "/var/lib/dpkg/lock-frontend",
        "/var/lib/dpkg/lock",
        "/var/lib/apt/lists/lock",
        "/var/cache/apt/archives/lock",
    ),
    "rhel": (
        "/var/lib/rpm/.rpm.lock",
        "/var/lib/dnf/rpmdb_lock.pid",
        "/var/cache/dnf/metadata_lock.pid",
        "/var/cache/dnf/download_lock.pid",
    ),
}
"""Locked with fcntl, so the kernel names the holder; dnf writes its process id into the ``*.pid`` files instead."""
LOCKED: Final = "the package manager is locked by process"
NO_ROOM: Final = ("No space left on device", "enough free space", "more space needed on", "MiB free")
"""Messages of the kernel, apt, dnf (libdnf) and transactions about a full disk."""


def lock_functions() -> str:
    """Shell functions: ``rp_lock_holder FILE…`` prints ``PID (COMMAND)`` of the process that holds one of the locks,
    with exit status 1 where none is held; ``rp_wait_for_lock SECONDS FILE…`` waits, and ends the script on a
    timeout."""
    return shell.script(__name__, "lock")


def lock_lines(family: str, wait_s: int, files: Sequence[str] | None = None) -> tuple[str, ...]:
    """Shell lines that wait for every lock of a family, and end with exit status 1 and one line that names the holder.

    They need ``lock_functions``.
    """
    return (f"rp_wait_for_lock {wait_s} {' '.join(map(shlex.quote, LOCKS[family] if files is None else files))}",)
