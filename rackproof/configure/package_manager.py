"""What apt and dnf stumble over, as shell: who holds their lock (waited for, and named when it does not go away), a
disk without room, packages that no repository has, repositories that are not signed or do not come.
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


ON_MIRROR: Final = "put them on the mirror (rackproof mirror list)"
"""The way out where a repository lacks a package."""
UNSIGNED: Final = (
    "NO_PUBKEY", "BADSIG", "EXPKEYSIG", "REVKEYSIG", "KEYEXPIRED", "is not signed", "Missing key",
    "Public key", "GPG check FAILED", "not correct for this package",
)  # fmt: skip
"""Words of apt (gpgv, sqv) and of dnf for a signature that they do not take."""
UNREACHABLE: Final = (
    "Failed to fetch", "does not have a Release file", "no longer has a Release file", "Could not resolve",
    "Failed to download metadata", "Cannot download", "Curl error", "Status code: [45]",
)  # fmt: skip
"""Words of apt and of dnf, as extended regular expressions, for a repository or a file of it that does not come."""
_NAMES: Final = {
    "debian": (
        r"s/^E: Unable to locate package ([^ ]+).*/\1/p",
        r"s/^E: Package '([^']+)' has no installation candidate.*/\1/p",
        r"s/^E: Couldn't find any package by [a-z]+ '([^']+)'.*/\1/p",
        r"s/^E: Version '([^']+)' for '([^']+)' was not found.*/\2=\1/p",
        # A mirror that has a package and not what it stands on.
        r"s/^.*Depends: ([^ ]+) .*but it is not installable.*/\1/p",
    ),
    "rhel": (
        r"s/^No match for argument: (.+)/\1/p",
        r"s/^.*Unable to find a match: (.+)/\1/p",
        r"s/^.*nothing provides ([^ ]+) .*needed by.*/\1/p",
    ),
}
"""By family: how the package manager says what none of its repositories has, for sed."""
_FURTHER: Final = {
    "debian": "on Debian contrib, non-free and non-free-firmware, on Ubuntu universe and restricted",
    "rhel": "crb or EPEL",
}
"""By family: what a fresh installation has not enabled."""


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


def tell_why(family: str) -> tuple[str, ...]:
    """Shell functions for an installation that may fail: ``try COMMAND…`` carries it out, ``refused WORDS`` ends the
    script with one line on stderr: a full disk, packages that no repository has, a repository that is not signed or
    does not come, each with its way out; else the words, or what the package manager said last.

    What ``apt-get update`` said is looked for in ``$lists``: it counts where packages are missing, and a repository of
    somebody else's that is out of order explains nothing else.
    """
    room = "|".join(f"*{shlex.quote(words)}*" for words in NO_ROOM)
    names = " ".join(f"-e {shlex.quote(each)}" for each in _NAMES[family])
    unsigned, unreachable = (shlex.quote("|".join(words)) for words in (UNSIGNED, UNREACHABLE))
    key = (
        "a repository is not signed with a key that this node trusts: $bad; compare the new key's fingerprint with what"
        " its owner publishes, then give it in the place of the old one"
    )
    enable = f"{ON_MIRROR}, or enable the repository that has them ({_FURTHER[family]})"
    lost = "a repository cannot be read: $gone; does this node reach it, and has it all that its index names?"
    return (
        "lists=",
        'try() { said=$("$@" 2>&1) && rc=0 || rc=$?; [ -n "$said" ] || return $rc',
        """  if [ $rc -eq 0 ]; then printf '%s\\n' "$said"; else printf '%s\\n' "$said" >&2; fi; return $rc; }""",
        "refused() {",
        f"  case $said in {room})"
        " echo 'a file system of this node is full, see above; make room and run again' >&2; exit 1;; esac",
        f"""  absent=$(printf '%s\\n' "$said" | sed -nE {names} | tr ' ' '\\n' | sort -u | tr '\\n' ' ')""",
        f"""  bad=$(printf '%s\\n' "$said" ${{absent:+"$lists"}} | grep -E {unsigned} | sed -n '1s/^[ -]*//p')""",
        f"""  gone=$(printf '%s\\n' "$said" ${{absent:+"$lists"}} | grep -E {unreachable} | sed -n '1s/^[ -]*//p')""",
        '  why=; [ -z "$absent" ] || why="in none of the repositories of this node: ${absent% }"',
        f'  if [ -n "$bad" ]; then echo "${{why:+$why; }}{key}"',
        f'  elif [ -n "$why" ]; then echo "$why${{gone:+ ($gone)}}; {enable}"',
        f'  elif [ -n "$gone" ]; then echo "{lost}"',
        '  elif [ -n "$1" ]; then echo "$1"; fi >&2',
        "  exit 1",
        "}",
    )
