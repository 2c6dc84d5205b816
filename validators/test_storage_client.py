"""Storage as clients have it mounted, in the kernel's own words.

Only ``mount.answers`` and ``mount.free`` touch a mount, both through one command with a limit: a dead server is
found out in seconds. Everything else is read from /proc, which answers whatever the server does.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable

from testinfra.host import Host

from rackproof.core.architecture import Architecture, Storage
from rackproof.core.rack import Node, Rack
from rackproof.parse import ParseError
from rackproof.parse.mounts import Mount, NfsMount, find_mount, parse_mountinfo, parse_mountstats
from rackproof.parse.text import whole_lines
from rackproof.validation import Unmeasured, announce, check, expect, expect_all, read
from rackproof.validation.answers import STATUS, Answer, answer_of, statfs_of

MOUNTINFO = "cat /proc/self/mountinfo"
MOUNTSTATS = "cat /proc/self/mountstats"
STATFS_FORMAT = "%S %b %a"
OPPOSITE = {"rw": "ro", "hard": "soft", "noatime": "relatime", "sync": "async"}
BYTES_PER_GB = 1_000_000_000

Items = Callable[[Architecture, Node, Rack], Iterable[str]]


def clients(of: Callable[[Storage], bool] = lambda storage: True) -> Items:
    """Names of the storage that a node mounts and that ``of`` holds for."""

    def names(arch: Architecture, node: Node, rack: Rack) -> Iterable[str]:
        return [
            name
            for name, storage in arch.storage.items()
            if set(storage.client_roles) & set(node.groups) and of(storage)
        ]

    return names


def mount_of(host: Host, storage: Storage) -> Mount:
    """The storage's mount, for questions about it that only make sense when it is there."""
    mount = find_mount(parse_mountinfo(read(host, MOUNTINFO)), storage.mountpoint)
    if mount is None:
        raise Unmeasured(f"{storage.mountpoint} is not mounted; see mount.mounted")
    return mount


def nfs_of(host: Host, storage: Storage) -> NfsMount:
    announce(host, MOUNTINFO, MOUNTSTATS)
    mount_of(host, storage)
    # Of several mounts on top of each other the last one is seen.
    found = [m for m in parse_mountstats(read(host, MOUNTSTATS)) if m.mountpoint == storage.mountpoint]
    if not found:
        raise Unmeasured(f"{storage.mountpoint} is no NFS mount; see mount.mounted")
    return found[-1]


def statfs(host: Host, storage: Storage) -> Answer:
    """Whether the file system answers, and how large it is."""
    where = shlex.quote(storage.mountpoint)
    command = f"timeout -k 2 {storage.stat_timeout_s:g} stat -f -c '{STATFS_FORMAT}' -- {where} 2>&1{STATUS}"
    announce(host, MOUNTINFO, command)
    mount_of(host, storage)
    answer = answer_of("stat", read(host, command))
    if answer.not_run:
        raise Unmeasured(f"stat: {answer.body.strip() or 'not found'}")
    return answer


@check(
    "mount.mounted",
    reads="storage.*.mountpoint",
    each=clients(),
    protects="A job that finds an empty folder instead of its data fills the root disk, or trains on nothing.",
    hint="systemctl status for the mount's unit; journalctl -u rackproof-mounts for network file systems.",
)
def test_mounted(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    mount = find_mount(parse_mountinfo(read(host, MOUNTINFO)), storage.mountpoint)
    expect(mount.fstype if mount else "not mounted", storage.fstype, storage.mountpoint)


@check(
    "mount.source",
    reads="storage.*.source",
    each=clients(),
    protects="The right folder of the wrong server: everything works until somebody looks for the data.",
    hint="findmnt on the node; compare the server's address and path with the inventory and the architecture.",
)
def test_source(host: Host, arch: Architecture, rack: Rack, item: str) -> None:
    storage = arch.storage[item]
    by_label = f"readlink -f -- {shlex.quote(f'/dev/disk/by-label/{storage.source}')}"
    announce(host, MOUNTINFO, *([by_label] if storage.class_ == "local" else []))
    mount = mount_of(host, storage)
    if storage.class_ == "local":
        device = whole_lines("readlink", read(host, by_label))[0]
        if not device.startswith("/dev/"):
            raise ParseError("readlink", f"no device: {device}")
        expect(mount.source, device, f"device labelled {storage.source}")
    elif storage.fstype == "ceph":
        # user@fsid.name=/path, or monitors:/path with the name among the options
        by_name = (
            mount.source.partition("=")[0].rpartition(".")[2] if "@" in mount.source else mount.option("mds_namespace")
        )
        expect(by_name, storage.source, "file system")
    elif storage.server_role:
        server = next(iter(rack.group(storage.server_role)), None)
        address = server.fabric_address() if server else None
        if address is None:
            raise Unmeasured(f"no node of role {storage.server_role} has a fabric address in the inventory")
        expect(mount.source, f"{address}:{storage.source}", "source")
    else:
        expect(mount.source, storage.source, "source")


@check(
    "mount.options",
    reads="storage.*.options_required",
    each=clients(),
    protects="A soft or read-only mount gives a checkpoint up in the middle; a wrong version loses features quietly.",
    hint="findmnt -o OPTIONS on the node; NFS mounts of one server share options with the first: unmount all, remount.",
)
def test_options(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    mount = mount_of(host, storage)
    in_force = {*mount.options, *mount.super_options} - {"rw", "ro"} | {"ro" if mount.read_only else "rw"}
    problems = []
    for option in storage.options_required:
        if option not in in_force:
            key = option.partition("=")[0]
            found = sorted(o for o in in_force if o.partition("=")[0] in (key, OPPOSITE.get(key))) or ["not in force"]
            problems.append(f"{option}: expected in force, actual {', '.join(found)}")
    problems += [
        f"{option}: expected not in force, actual in force"
        for option in storage.options_forbidden
        if option in in_force
    ]
    expect_all(problems)


@check(
    "mount.transport",
    reads="storage.*.transport",
    each=clients(lambda storage: storage.class_ == "nfs" and storage.transport is not None),
    protects="An RDMA mount that runs over TCP looks the same and reads at a fraction of the speed.",
    hint="grep xprt /proc/self/mountstats; NFS reuses a transport to the same server: unmount all its mounts first.",
)
def test_transport(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    found = sorted({transport.protocol for transport in nfs_of(host, storage).transports})
    expect(found, [storage.transport], "transport in use")


@check(
    "mount.connections",
    reads="storage.*.connections",
    each=clients(lambda storage: storage.class_ == "nfs" and (storage.connections or 0) > 1),
    protects="One TCP connection is one core and one path: a fast link stays half empty.",
    hint="grep xprt /proc/self/mountstats; nconnect counts for the first mount of a server only: unmount all, remount.",
)
def test_connections(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    expect(nfs_of(host, storage).connections, storage.connections, "connections in use")


@check(
    "mount.answers",
    reads="storage.*.stat_timeout_s",
    each=clients(),
    protects="A mount whose server is gone blocks every process that looks at it, and cannot be killed off.",
    hint="Is the server up, and its address pingable over the fabric? dmesg shows 'server not responding'.",
)
def test_answers(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    answer = statfs(host, storage)
    if answer.timed_out:
        raise AssertionError(
            f"expected an answer of {storage.mountpoint} within {storage.stat_timeout_s:g} s, actual none"
        )
    if answer.status != 0:
        raise AssertionError(
            f"expected an answer of {storage.mountpoint}, actual {answer.body.strip() or answer.status}"
        )
    if statfs_of(answer.body).total_bytes == 0:
        raise AssertionError(f"expected a file system with a size on {storage.mountpoint}, actual 0 bytes")


@check(
    "mount.free",
    reads="storage.*.min_free_gb",
    each=clients(lambda storage: storage.min_free_gb > 0),
    protects="A full file system ends every job at its next checkpoint.",
    hint="df and du on the node; deleted files that are still open show in lsof +L1.",
)
def test_free(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    answer = statfs(host, storage)
    if answer.status != 0:
        raise Unmeasured(f"{storage.mountpoint} does not answer; see mount.answers")
    free_gb = statfs_of(answer.body).free_bytes / BYTES_PER_GB
    if not free_gb >= storage.min_free_gb:
        raise AssertionError(f"expected at least {storage.min_free_gb:g} GB free, actual {free_gb:.2f} GB")
