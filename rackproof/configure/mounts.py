"""Storage as clients see it: systemd mount units, and what the kernel says is mounted.

Nothing here touches a mount point. A dead server blocks whoever looks below it; ``/proc/self/mounts`` answers always.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackproof.configure.files import PENDING, pending_command
from rackproof.core.architecture import Storage

CEPH_CLIENT = "rackproof"
CEPH_SECRET = "/etc/ceph/rackproof.secret"  # noqa: S105  (a path, not a secret)
CEPH_PORT = 3300

NETWORK_CLASSES = ("nfs", "parallel")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount as it shall be."""

    name: str
    what: str
    where: str
    type: str
    """For mount(8): nfs where the kernel says nfs4."""
    options: tuple[str, ...]
    fstype: str
    """As /proc/mounts names it."""
    required: tuple[str, ...]
    forbidden: tuple[str, ...]
    network: bool

    @property
    def unit(self) -> str:
        return f"{systemd_escape(self.where)}.mount"


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


def client_mount(name: str, storage: Storage, server: str | None, fsid: str | None) -> Mount:
    """The mount of one storage. ``server`` is the address of its first server on rail 0, ``fsid`` Ceph's.

    Raises ValueError for a storage that no client can mount.
    """
    extra: list[str] = []
    what, kind = storage.source, storage.fstype
    if storage.class_ == "local":
        what = f"/dev/disk/by-label/{storage.source}"
        extra = ["nofail"]
    elif storage.class_ == "nfs":
        what, kind = f"{_known(name, server)}:{storage.source}", "nfs"
        # retry=0: the retry service tries again; a mount that waits by itself only keeps a boot waiting.
        extra = ["nofail", "_netdev", "retry=0"]
        if storage.transport:
            extra.append(f"proto={storage.transport}")
        if storage.port:
            extra.append(f"port={storage.port}")
        if storage.connections and storage.transport == "tcp":
            extra.append(f"nconnect={storage.connections}")
    elif storage.class_ == "parallel" and storage.fstype == "ceph":
        if fsid is None:
            raise ValueError(f"{name}: a Ceph file system needs the architecture's section ceph")
        what = f"{CEPH_CLIENT}@{fsid}.{storage.source}=/"
        extra = [
            "nofail",
            "_netdev",
            f"mon_addr={_known(name, server)}:{storage.port or CEPH_PORT}",
            f"secretfile={CEPH_SECRET}",
            # Messenger 2 with checksums, the cluster's own default; the kernel's is still messenger 1.
            "ms_mode=prefer-crc",
            # A client that was away for too long is evicted; without this its mount stays broken for ever.
            "recover_session=clean",
            "mount_timeout=20",
        ]
    else:
        raise ValueError(f"{name}: no rule to mount storage of class {storage.class_} as {storage.fstype}")
    return Mount(
        name=name,
        what=what,
        where=storage.mountpoint,
        type=kind,
        options=_merged(storage.options, extra),
        fstype=storage.fstype,
        required=storage.options_required,
        forbidden=storage.options_forbidden,
        network=storage.class_ in NETWORK_CLASSES,
    )


def _known(name: str, server: str | None) -> str:
    if server is None:
        raise ValueError(f"{name}: no node of its server role has a fabric address")
    return server


def _merged(options: Sequence[str], extra: Sequence[str]) -> tuple[str, ...]:
    """The architecture's options, then those of ours that it does not set itself."""
    keys = {option.split("=")[0] for option in options}
    return (*options, *(option for option in extra if option.split("=")[0] not in keys))


def shared_transport(mounts: Sequence[Mount]) -> str | None:
    """Why two of these mounts would silently be one connection, or None.

    An NFS 4.1 or newer client recognises a server that it already knows by any other address or transport, and keeps
    to the first connection: the second mount then says proto=tcp although proto=rdma was asked for. It does not when
    the two speak different minor versions.
    """
    seen: dict[tuple[str, str], Mount] = {}
    for mount in mounts:
        if mount.type != "nfs":
            continue
        key = mount.what.split(":")[0], _option(mount, "vers")
        other = seen.setdefault(key, mount)
        if _option(other, "proto") != _option(mount, "proto"):
            return (
                f"{other.name} and {mount.name}: NFS {key[1]} from one server over two transports is one connection,"
                " the one that was made first; give one of them another minor version"
            )
    return None


def _option(mount: Mount, key: str) -> str:
    """Of a repeated option the last, as mount(8) has it."""
    values = [option.partition("=")[2] for option in mount.options if option.split("=")[0] == key]
    return values[-1] if values else ""


@dataclass(frozen=True, slots=True)
class Mounted:
    """One line of /proc/self/mounts."""

    what: str
    where: str
    fstype: str
    options: tuple[str, ...]


def parse_mounts(lines: Sequence[str]) -> dict[str, Mounted]:
    """Mount point to what is mounted there; of several on top of each other the last, which is the visible one.

    Raises ValueError on a line that is not of /proc/self/mounts.
    """
    found: dict[str, Mounted] = {}
    for line in lines:
        fields = line.split(" ")
        if len(fields) != 6:
            raise ValueError(f"not a line of /proc/self/mounts: {line!r}")
        what, where, fstype, options = (_unescape(field) for field in fields[:4])
        found[where] = Mounted(what, where, fstype, tuple(options.split(",")))
    return found


def _unescape(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def mount_differences(mount: Mount, actual: Mounted | None) -> tuple[str, ...]:
    """What is wrong with a mount in the kernel's view; empty when nothing is."""
    if actual is None:
        return ("not mounted",)
    wrong = []
    if actual.fstype != mount.fstype:
        wrong.append(f"type: expected {mount.fstype}, actual {actual.fstype}")
    if mount.network and actual.what != mount.what:
        wrong.append(f"source: expected {mount.what}, actual {actual.what}")
    wrong += [f"option {option} is not in force" for option in mount.required if option not in actual.options]
    wrong += [f"option {option} is in force" for option in mount.forbidden if option in actual.options]
    return tuple(wrong)


def mounts_command() -> str:
    return f"cat /proc/self/mounts && echo -- && {pending_command()}"


@dataclass(frozen=True, slots=True)
class MountPlan:
    changes: tuple[tuple[Mount, tuple[str, ...]], ...] = ()
    """Each mount with the reasons why it is (re)made."""
    reread: bool = False
    """Unit files changed since systemd read them."""

    def __bool__(self) -> bool:
        return bool(self.changes)


def plan_mounts(mounts: Sequence[Mount], actual: Mapping[str, Mounted], pending: frozenset[str]) -> MountPlan:
    """Mounts that are missing, differ from their declaration, or whose unit changed since they were made."""
    changes = []
    for mount in mounts:
        reasons = mount_differences(mount, actual.get(mount.where))
        if not reasons and f"restart:{mount.unit}" in pending:
            reasons = ("its unit changed",)
        if reasons:
            changes.append((mount, reasons))
    return MountPlan(tuple(changes), "daemon-reload" in pending)


def apply_script(plan: MountPlan) -> str:
    """Shell script that makes every mount of the plan, all at once.

    What is mounted differently goes first; that fails, and says so, while someone uses it.
    """
    units = [mount.unit for mount, _ in plan.changes]
    listed = " ".join(shlex.quote(unit) for unit in units)
    lines = ["set -u", "failed=0"]
    if plan.reread:
        lines += ["systemctl daemon-reload || exit 1", f"rm -f -- {PENDING}/daemon-reload"]
    lines += [f"systemctl reset-failed -- {listed} 2>/dev/null", f"systemctl restart -- {listed} || failed=1"]
    for unit in units:
        name, mark = shlex.quote(unit), shlex.quote(f"{PENDING}/restart:{unit}")
        lines.append(
            f"if systemctl is-active --quiet -- {name}; then rm -f -- {mark}; "
            f"else failed=1; systemctl --no-pager --lines=8 status -- {name} >&2; fi"
        )
    return "\n".join([*lines, "exit $failed"])
