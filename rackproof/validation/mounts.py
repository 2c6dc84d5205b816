"""Readings of a storage's mounts, shared by the storage validators.

Only ``statfs`` accesses a mount, with a timeout: a dead server is detected in seconds. Everything else is read from
/proc and /sys, which do not depend on the server.
"""

from __future__ import annotations

import shlex

from testinfra.host import Host

from rackproof.core.architecture import Storage
from rackproof.core.rack import Rack
from rackproof.parse.answer import STATUS, Answer, parse_answer
from rackproof.parse.mounts import Mount, NfsMount, find_mount, parse_mountinfo, parse_mountstats
from rackproof.parse.statfs import END_OF_MOUNTS, parse_statfs_answers
from rackproof.remote.recording import Unmeasured
from rackproof.validation.checks import announce, read

MOUNTINFO = "cat /proc/self/mountinfo"
MOUNTSTATS = "cat /proc/self/mountstats"
STATFS_FORMAT = "%S %b %a"
INODES_FORMAT = "%c %d"


def mounts_of(host: Host, storage: Storage) -> tuple[Mount, ...]:
    """All mounts of the storage. Raises Unmeasured when one is not mounted."""
    seen = parse_mountinfo(read(host, MOUNTINFO))
    mounts = [(mountpoint, find_mount(seen, mountpoint)) for mountpoint in storage.mountpoints]
    missing = [mountpoint for mountpoint, mount in mounts if mount is None]
    if missing:
        raise Unmeasured(f"{missing[0]} is not mounted; see mount.mounted")
    return tuple(mount for _, mount in mounts if mount is not None)


def nfs_of(host: Host, storage: Storage) -> tuple[NfsMount, ...]:
    """NFS mounts of the storage, with the client's statistics. Raises Unmeasured when one is missing."""
    announce(host, MOUNTINFO, MOUNTSTATS)
    mounts_of(host, storage)
    # Where mounts are stacked, the last one is visible.
    by_point = {mount.mountpoint: mount for mount in parse_mountstats(read(host, MOUNTSTATS))}
    for mountpoint in storage.mountpoints:
        if mountpoint not in by_point:
            raise Unmeasured(f"{mountpoint} is not an NFS mount; see mount.mounted")
    return tuple(by_point[mountpoint] for mountpoint in storage.mountpoints)


def statfs(host: Host, storage: Storage, asked: str = STATFS_FORMAT) -> dict[str, Answer]:
    """Output of ``stat -f`` by mount point."""
    points = storage.mountpoints
    one = f"timeout -k 2 {storage.stat_timeout_s:g} stat -f -c '{asked}' --"
    if len(points) == 1:
        command = f"{one} {shlex.quote(points[0])} 2>&1{STATUS}"
    else:
        # In parallel: several dead servers cost one timeout. Each line is written atomically.
        words = " ".join(shlex.quote(point) for point in points)
        command = (
            f'for m in {words}; do {{ r=$({one} "$m" 2>&1); echo "$m status $? $r"; }} & done; wait;'
            f" echo {END_OF_MOUNTS}"
        )
    announce(host, MOUNTINFO, command)
    mounts_of(host, storage)
    output = read(host, command)
    answers = {points[0]: parse_answer("stat", output)} if len(points) == 1 else parse_statfs_answers(output, points)
    for answer in answers.values():
        if answer.not_run:
            raise Unmeasured(f"stat: {answer.body.strip() or 'not found'}")
    return answers


def answering(host: Host, storage: Storage, asked: str = STATFS_FORMAT) -> dict[str, str]:
    """``stat -f`` output of every mount. Raises Unmeasured when one does not respond."""
    answers = statfs(host, storage, asked)
    for mountpoint, answer in answers.items():
        if answer.status != 0:
            raise Unmeasured(f"{mountpoint} does not answer; see mount.answers")
    return {mountpoint: answer.body for mountpoint, answer in answers.items()}


def addresses_of(storage: Storage, rack: Rack) -> tuple[str, ...]:
    """Addresses that the storage may be mounted from; empty where neither architecture nor inventory names any."""
    return rack.storage_addresses(storage.servers, storage.server_role, storage.managed)
