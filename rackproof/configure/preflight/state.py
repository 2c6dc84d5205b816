"""Facts of preflight that no other operation reads, in one command that must not hang.

It accesses no file system but ``/``, ``/var`` and ``/boot``. Processes that use a mount are found through /proc, so
that a dead server does not block the command.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackproof import shell
from rackproof.configure.package_transaction.lock import LOCKS, lock_functions
from rackproof.configure.run_lock import Holder, held_command, parse_held
from rackproof.parse.free_space import parse_free_mib
from rackproof.parse.mounts import Mount, parse_proc_mounts, visible_mounts
from rackproof.parse.sections import sections_of
from rackproof.parse.text import text_from

BUSY_SHOWN = 5
"""Maximum number of processes that are listed for a mount."""


@dataclass(frozen=True, slots=True)
class NodeState:
    name: str
    """Host name (``uname -n``)."""
    clock_s: int
    """Seconds since 1970."""
    free_mib: Mapping[str, int | None]
    """By path; None when df gave no answer."""
    lock_holder: str
    """``1234 (apt-get upgrade)``; empty when the package manager is free."""
    manager: str
    """``dpkg`` or ``rpm``; empty when there is neither."""
    broken: tuple[str, ...]
    """Complaints of the package manager."""
    system: str
    """State of systemd: ``running``, ``degraded``, ``stopping`` …"""
    shutdown: str
    """Kind of a scheduled shutdown; empty without one."""
    mounted: Mapping[str, Mount]
    users: Mapping[str, tuple[str, ...]]
    """Processes that use a mount, ``1234(python)``, by mount point."""
    held: Holder | None = None
    """The run that holds the node."""


def state_command(paths: Sequence[str], mountpoints: Sequence[str]) -> str:
    """Shell text that prints everything in ``NodeState``, for these paths and mount points."""
    sections = (
        f"uname -n\ndate +%s\n{held_command()}",
        f"space {shlex.join(paths)}",
        f"rp_lock_holder {shlex.join((*LOCKS['debian'], *LOCKS['rhel']))}",
        "broken_packages",
        "system_state",
        "cat /proc/self/mounts",
        f"mount_users {shlex.join(mountpoints)}",
    )
    functions = shell.script(__name__, "state", busy_shown=BUSY_SHOWN)
    return "\n".join(("export LC_ALL=C", functions, lock_functions(), "\necho --\n".join(sections)))


def parse_state(lines: Sequence[str]) -> NodeState:
    """Answer of ``state_command``. Raises ValueError on anything that is not such an answer."""
    node, space, lock, packages, system, mounted, users = sections_of(lines, 7)
    if len(node) < 2 or not node[0] or not system or not system[0] or not mounted:
        raise ValueError("no name, clock, system state or mount table in the answer")
    used = {}
    for line in users:
        where, *processes = line.split()
        used[where] = tuple(processes)
    return NodeState(
        name=node[0],
        clock_s=int(node[1]),
        free_mib=parse_free_mib(space),
        lock_holder=" ".join(" ".join(lock).split()),
        manager=packages[0] if packages else "",
        broken=tuple(packages[1:]),
        system=system[0].strip(),
        shutdown=_scheduled(system[1] if len(system) > 1 else ""),
        mounted=visible_mounts(parse_proc_mounts(text_from(mounted))),
        users=used,
        held=parse_held(node[2:]),
    )


def _scheduled(line: str) -> str:
    """Mode of a scheduled shutdown, from ``MODE=reboot USEC=1732…``."""
    values = dict(word.split("=", 1) for word in line.split() if "=" in word)
    return values.get("MODE", "shutdown") if values else ""
