"""Mounts: compares the declared ones with the kernel's mount table and plans what to mount and unmount.

Nothing here accesses a mount point: a dead server blocks every process that does. /proc always answers. The mounts of
a storage are declared in ``rackproof.configure.storage_client``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rackproof import shell
from rackproof.configure.files import PENDING
from rackproof.parse.mounts import Mount, parse_proc_mounts, parse_transports, visible_mounts
from rackproof.parse.sections import sections_of
from rackproof.parse.text import text_from

CEPH_CLIENT = "rackproof"
CEPH_SECRET = "/etc/ceph/rackproof.secret"  # noqa: S105  (a path, not a secret)

MANAGED = "rackproof-mounts.service starts it"
"""In the first line of the kit's units of network mounts, also in its earlier wording; the kit recognises its units by
it."""
STOP_LIMIT_S = 90


@dataclass(frozen=True, slots=True)
class DesiredMount:
    """Desired state of one mount."""

    name: str
    what: str
    where: str
    type: str
    """Type for mount(8), e.g. ``nfs`` where /proc/mounts has ``nfs4``."""
    options: tuple[str, ...]
    fstype: str
    """Type in /proc/mounts."""
    required: tuple[str, ...]
    forbidden: tuple[str, ...]
    network: bool
    requires: tuple[str, ...] = ()
    """Services that must run first."""
    timeout_s: int | None = None
    """Time limit of mounting in seconds; None for the default."""
    source_pattern: str | None = None
    """Regular expression for the source in /proc/mounts, when it is not ``what``."""
    transport: str | None = None
    """NFS: required transport of its connections, ``tcp`` or ``rdma``."""
    service: str | None = None
    """Service that mounts it when mount(8) cannot; ``content`` is its unit file."""
    content: str | None = None
    read_ahead_kib: int | None = None

    @property
    def unit(self) -> str:
        return self.service or f"{systemd_escape(self.where)}.mount"


def systemd_escape(path: str) -> str:
    """``systemd-escape --path``: the unit name of an absolute path, without its suffix."""
    trimmed = "/".join(part for part in path.split("/") if part)
    if not trimmed:
        return "-"
    return "".join(
        "-" if c == "/" else c if re.match(r"[A-Za-z0-9:_.]", c) and not (c == "." and i == 0) else _hex(c)
        for i, c in enumerate(trimmed)
    )


def _hex(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode())


@dataclass(frozen=True, slots=True)
class Table:
    """Mount table of a node, the kit's mount units and pending marks."""

    mounted: Mapping[str, Mount] = field(default_factory=dict)
    pending: frozenset[str] = frozenset()
    """Marks of changed units."""
    units: Mapping[str, str] = field(default_factory=dict)
    """The kit's units of network mounts, with their mount points."""
    transports: Mapping[str, frozenset[str]] = field(default_factory=dict)


def table_command() -> str:
    return shell.script(__name__, "mount_table", pending=PENDING, managed=MANAGED)


def parse_table(lines: Sequence[str]) -> Table:
    """Answer of ``table_command``. Raises ValueError on anything else."""
    mounted, pending, units, stats = sections_of(lines, 4)
    return Table(
        visible_mounts(parse_proc_mounts(text_from(mounted))),
        frozenset(pending),
        dict(line.split(" ", 1) for line in units),
        parse_transports(text_from(stats)),
    )


def mount_differences(
    mount: DesiredMount, actual: Mount | None, transports: Mapping[str, frozenset[str]] | None = None
) -> tuple[str, ...]:
    """Differences between a declared mount and the kernel's mount table; empty when there are none."""
    if actual is None:
        return ("not mounted",)
    wrong = []
    if actual.fstype != mount.fstype:
        wrong.append(f"type: expected {mount.fstype}, actual {actual.fstype}")
    if mount.network and not re.fullmatch(mount.source_pattern or re.escape(mount.what), actual.source):
        wrong.append(f"source: expected {mount.what}, actual {actual.source}")
    wrong += [f"option {option} is not in force" for option in mount.required if option not in actual.options]
    wrong += [f"option {option} is in force" for option in mount.forbidden if option in actual.options]
    used = (transports or {}).get(mount.where)
    if mount.transport and used and used != {mount.transport}:
        wrong.append(f"transport: expected {mount.transport}, actual {', '.join(sorted(used))}")
    return tuple(wrong)


@dataclass(frozen=True, slots=True)
class MountPlan:
    changes: tuple[tuple[DesiredMount, tuple[str, ...]], ...] = ()
    """Mounts to make or remake, with the reasons."""
    reread: bool = False
    """Unit files changed since systemd read them."""
    gone: Mapping[str, str] = field(default_factory=dict)
    """Units of mounts that are no longer declared, with their mount points."""

    def __bool__(self) -> bool:
        return bool(self.changes or self.gone)


def plan_mounts(mounts: Sequence[DesiredMount], table: Table, complete: bool = False) -> MountPlan:
    """Mounts that are missing, differ from their declaration, or whose unit changed since they were made.

    ``complete``: these are all network mounts of the node; other mount units of the kit are removed.
    """
    changes = []
    for mount in mounts:
        reasons = mount_differences(mount, table.mounted.get(mount.where), table.transports)
        if not reasons and f"restart:{mount.unit}" in table.pending:
            reasons = ("its unit changed",)
        if reasons:
            changes.append((mount, reasons))
    wanted = {mount.unit for mount in mounts}
    gone = {unit: where for unit, where in table.units.items() if unit not in wanted} if complete else {}
    return MountPlan(tuple(changes), "daemon-reload" in table.pending, gone)


def apply_script(plan: MountPlan) -> str:
    """Shell script that unmounts what is no longer declared or differs, then mounts everything in one command.

    A mount that is in use is not unmounted; the script then fails and names the processes.
    """
    lines = ["set -u", "failed=0"]
    # Unmount before daemon-reload: systemd must still know the old unit.
    different = [mount for mount, reasons in plan.changes if reasons != ("not mounted",)]
    if plan.gone or different:
        lines.append(shell.script(__name__, "let_go", stop_limit_s=STOP_LIMIT_S))
    for unit, where in plan.gone.items():
        lines.append(f"let_go {shlex.quote(unit)} {shlex.quote(where)} && {_forget(unit)} || failed=1")
    lines += [f"let_go {shlex.quote(mount.unit)} {shlex.quote(mount.where)} || failed=1" for mount in different]
    if plan.reread or plan.gone:
        lines += ["systemctl daemon-reload || exit 1", f"rm -f -- {PENDING}/daemon-reload"]
    units = [mount.unit for mount, _ in plan.changes]
    if units:
        lines.append(shell.script(__name__, "why_not"))
        limit = 2 * max(mount.timeout_s or 60 for mount, _ in plan.changes)
        listed = " ".join(shlex.quote(unit) for unit in units)
        lines += [
            f"systemctl reset-failed -- {listed} 2>/dev/null",
            f"timeout -k 5 {limit} systemctl restart -- {listed} || failed=1",
        ]
    for unit in units:
        name, mark = shlex.quote(unit), shlex.quote(f"{PENDING}/restart:{unit}")
        lines.append(
            f"if systemctl is-active --quiet -- {name}; then rm -f -- {mark}; else failed=1; why_not {name} >&2; fi"
        )
    return "\n".join([*lines, "exit $failed"])


def _forget(unit: str) -> str:
    path, mark = f"/etc/systemd/system/{unit}", f"{PENDING}/restart:{unit}"
    return f"rm -f -- {shlex.quote(path)} {shlex.quote(mark)}"
