"""What apt and dnf stumble over, as shell: who holds their lock (waited for, and named when it does not go away), and a
disk without room.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

LOCK_WAIT_S: Final = 300
"""Seconds that another run of the package manager is waited for."""
LOCK_FILES: Final = {
    "debian": (
        "/var/lib/dpkg/lock-frontend",
        "/var/lib/dpkg/lock",
        "/var/lib/apt/lists/lock",
        "/var/cache/apt/archives/lock",
    ),
    "rhel": ("/var/lib/rpm/.rpm.lock",),
}
"""Locked with fcntl: the kernel says by whom."""

PID_FILES: Final = {
    "debian": (),
    "rhel": ("/var/lib/dnf/rpmdb_lock.pid", "/var/cache/dnf/metadata_lock.pid", "/var/cache/dnf/download_lock.pid"),
}
"""dnf writes its process id instead; the file stays behind when dnf was killed."""

NO_ROOM: Final = ("No space left on device", "enough free space", "more space needed on")
"""Words of the kernel, of apt and of dnf (libdnf) for a full disk."""

LOCKED: Final = "the package manager is locked by process"


def wait_for_lock(
    family: str, wait_s: int, files: Sequence[str] | None = None, pid_files: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Shell lines that wait for every lock, and end with exit status 1 and one line that names the holder.

    Builtins and coreutils only: fuser and lsof are not there on a small installation.
    """
    files = LOCK_FILES[family] if files is None else files
    pid_files = PID_FILES[family] if pid_files is None else pid_files
    return (
        "command_of() { tr '\\0' ' ' <\"/proc/$1/cmdline\" 2>/dev/null | head -c 200; }",
        "lock_holder() {",
        f"  for f in {' '.join(map(shlex.quote, files)) or '/nonexistent'}; do",
        '    [ -e "$f" ] || continue',
        '    i=$(stat -c %i -- "$f") || continue',
        "    while read -r _ _ _ _ p d _; do",
        # Inode numbers repeat on other file systems: the process must have this very file open.
        '      case "$d" in *:"$i") if ls -l "/proc/$p/fd" 2>/dev/null | grep -qF -- "-> $f";'
        ' then echo "$p ($(command_of "$p"))"; return 0; fi ;; esac',
        "    done </proc/locks",
        "  done",
        f"  for f in {' '.join(map(shlex.quote, pid_files)) or '/nonexistent'}; do",
        '    [ -s "$f" ] || continue',
        '    read -r p <"$f" || [ -n "$p" ] || continue',
        '    if [ -d "/proc/$p" ]; then echo "$p ($(command_of "$p"))"; return 0; fi',
        "  done",
        "  return 1",
        "}",
        f'n=0; while h=$(lock_holder); do [ $n -lt {wait_s} ] || {{ echo "{LOCKED} $h'
        f' after {wait_s} s; let it finish or end it, then run again" >&2; exit 1; }}; n=$((n + 1)); sleep 1; done',
    )
