"""Readings of a storage's mounts, shared by the storage validators.

Only ``statfs`` accesses a mount, with a timeout: a dead server is detected in seconds. Other values are read from
/proc and /sys, independently of the server.
"""

from __future__ import annotations

import shlex

from testinfra.host import Host

from rackproof.core.architecture import Storage
from rackproof.core.rack import Rack
from rackproof.parse.answer import STATUS, Answer, parse_answer
from rackproof.parse.mounted import server_of
from rackproof.parse.mounts import Mount, NfsMount, find_mount, parse_mountinfo, parse_mountstats
from rackproof.parse.statfs import END_OF_MOUNTS, parse_statfs_answers
from rackproof.remote.recording import Unmeasured
from rackproof.validation.checks import announce, read

MOUNTINFO = "cat /proc/self/mountinfo"
MOUNTSTATS = "cat /proc/self/mountstats"
STATFS_FORMAT = "%S %b %a"
INODES_FORMAT = "%c %d"


def mounts_of(host: Host, storage: Storage) -> tuple[Mount, ...]:
    """All mounts of the storage. Raises Unmeasured if one is not mounted."""
    table = parse_mountinfo(read(host, MOUNTINFO))
    mounts = [(mountpoint, find_mount(table, mountpoint)) for mountpoint in storage.mountpoints]
    missing = [mountpoint for mountpoint, mount in mounts if mount is None]
    if missing:
        raise Unmeasured(f"{missing[0]} is not mounted; see mount.mounted")
    return tuple(mount for _, mount in mounts if mount is not None)


def nfs_of(host: Host, storage: Storage) -> tuple[NfsMount, ...]:
    """NFS mounts of the storage with the client's statistics. Raises Unmeasured if one is missing."""
    announce(host, MOUNTINFO, MOUNTSTATS)
    mounts_of(host, storage)
    # Of stacked mounts the last one is visible.
    by_point = {mount.mountpoint: mount for mount in parse_mountstats(read(host, MOUNTSTATS))}
    for mountpoint in storage.mountpoints:
        if mountpoint not in by_point:
            raise Unmeasured(f"{mountpoint} is not an NFS mount; see mount.mounted")
    return tuple(by_point[mountpoint] for mountpoint in storage.mountpoints)


def statfs(host: Host, storage: Storage, fields: str = STATFS_FORMAT) -> dict[str, Answer]:
    """Output of ``stat -f`` by mount point."""
    points = storage.mountpoints
    stat = f"timeout -k 2 {storage.stat_timeout_s:g} stat -f -c '{fields}' --"
    if len(points) == 1:
        command = f"{stat} {shlex.quote(points[0])} 2>&1{STATUS}"
    else:
        # In parallel: several dead servers cost one timeout. Each line is written atomically.
        words = " ".join(shlex.quote(point) for point in points)
        command = (
            f'for m in {words}; do {{ r=$({stat} "$m" 2>&1); echo "$m status $? $r"; }} & done; wait;'
            f" echo {END_OF_MOUNTS}"
        )
    announce(host, MOUNTINFO, command)
    mounts_of(host, storage)
    output = read(host, command)
    answers = {points[0]: parse_answer("stat", output)} if len(points) == 1 else parse_statfs_answers(output, points)
    for answer in answers.values():
        if answer.not_run:
            raise Unmeasured(answer.failure)
    return answers


def answering(host: Host, storage: Storage, rack: Rack, fields: str = STATFS_FORMAT) -> dict[str, str]:
    """``stat -f`` output of all mounts. Raises Unmeasured if one does not respond."""
    answers = statfs(host, storage, fields)
    for mountpoint, answer in answers.items():
        if answer.status != 0:
            raise Unmeasured(no_answer(host, storage, rack, mountpoint))
    return {mountpoint: answer.body for mountpoint, answer in answers.items()}


def no_answer(host: Host, storage: Storage, rack: Rack, mountpoint: str) -> str:
    """Message about a mount that does not answer, with its server."""
    server = servers_of(host, storage, rack).get(mountpoint, "")
    return f"{server and f'{server}: '}{mountpoint} does not answer; see mount.answers"


def servers_of(host: Host, storage: Storage, rack: Rack) -> dict[str, str]:
    """``storage-01 (10.77.0.11)`` by mount point, for NFS, whose mounts have one server."""
    mounts = mounts_of(host, storage) if storage.class_ == "nfs" else ()
    return {mount.mountpoint: rack.at(server_of(mount)) for mount in mounts}
