"""Scripts of root in a mount namespace: /etc, /run and /mnt are its own, for accounts and planted links."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

STRANGER = 61234
"""An unprivileged user id without an account."""
_BEGIN = """\
set -eu
mount -t tmpfs -o mode=755 tmpfs /mnt
cp -a /etc /mnt/etc
mount --bind /mnt/etc /etc
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /mnt
stranger() { setpriv --reuid=%d --regid=%d --clear-groups -- "$@"; }
set +eu
"""


def in_own_root(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script as root. Its function ``stranger`` runs a command as an unprivileged user.

    Needs root, or subordinate user ids (uidmap); without either the test fails.
    """
    path = folder / "own-root.sh"
    path.write_text(_BEGIN % (STRANGER, STRANGER) + script)
    become = [] if os.geteuid() == 0 else ["--user", "--map-root-user", "--map-auto"]
    command = ["unshare", *become, "--mount", "--propagation=private", "sh", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd="/")
