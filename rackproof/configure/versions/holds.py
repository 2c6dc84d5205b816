"""Holding what is installed, and reading back that it is held."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rackproof.configure.package_manager import wait_for_lock
from rackproof.configure.versions.state import PackageState, is_held, is_installed
from rackproof.core.versions import LockedPackage


def to_hold(
    packages: Sequence[LockedPackage], state: PackageState, family: str, all_there: bool = False
) -> tuple[LockedPackage, ...]:
    """Those that are there as locked and not held. What is not there is the installation's business.

    ``all_there``: as if everything were installed as locked, as it will be at the end of a run.
    """
    return tuple(
        each
        for each in packages
        if (all_there or is_installed(each, state, family)) and not is_held(each, state, family)
    )


def hold_script(packages: Sequence[LockedPackage], family: str, lock_wait_s: int = 300) -> str:
    """Hold, read the holds again, and fail with the names of those that are not there: a hold that was written and is
    not listed has let fabric managers drift from their drivers."""
    names = " ".join(shlex.quote(each.name) for each in packages)
    lines = ["set -eu", "export LC_ALL=C.UTF-8", *wait_for_lock(family, lock_wait_s)]
    if family == "debian":
        lines += [
            f"apt-mark hold -- {names} >/dev/null",
            "held=$(apt-mark showhold)",
            f'wrong=; for p in {names}; do printf "%s\\n" "$held" | sed "s/:.*//" | grep -qxF -- "$p" ||'
            ' wrong="$wrong $p"; done',
        ]
    else:
        lines += [
            "dnf -q versionlock list >/dev/null 2>&1 || {"
            ' echo "dnf has no versionlock; install python3-dnf-plugin-versionlock" >&2; exit 1; }',
            "wrong=",
            f"for p in {names}; do",
            # A lock on another version of the same package would win.
            '  dnf -q versionlock delete -- "$p" >/dev/null 2>&1 || :',
            "  e=$(rpm -q --qf '%{NAME}-%{EPOCHNUM}:%{VERSION}-%{RELEASE}.*\\n' -- \"$p\") || {"
            ' wrong="$wrong $p"; continue; }',
            '  for v in $e; do dnf -q versionlock add --raw "$v" >/dev/null; done',
            "done",
            "held=$(dnf -q versionlock list)",
            f"for p in {names}; do for v in $(rpm -q --qf '%{{NAME}}-%{{EPOCHNUM}}:%{{VERSION}}-%{{RELEASE}}.*\\n'"
            ' -- "$p" 2>/dev/null || :); do printf "%s\\n" "$held" | grep -qxF -- "$v" || wrong="$wrong $p";'
            " done; done",
        ]
    lines.append(
        '[ -z "$wrong" ] || { echo "held, and not in the list of holds afterwards:$wrong" >&2; exit 1; }'
    )  # fmt: skip
    return "\n".join(lines)
