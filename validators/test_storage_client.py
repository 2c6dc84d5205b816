"""Mounts of storage clients, as the kernel reports them.

Only ``mount.answers`` and ``mount.free`` access a mount, with a time limit, so that a dead server is detected in
seconds. All other checks read /proc, which does not depend on the server. Tuning and health are in
``test_storage_client_health.py``, transports in ``test_storage_client_transport.py``.
"""

from __future__ import annotations

import shlex
from collections import Counter

from testinfra.host import Host

from rackproof.configure.storage_client.cephfs import declared_fsid
from rackproof.core.architecture import Architecture
from rackproof.core.rack import Node, Rack
from rackproof.parse.mounted import (
    about,
    bind_faults,
    connection_faults,
    ip_of,
    option_faults,
    server_of,
    source_faults,
    type_faults,
)
from rackproof.parse.mounts import find_mount, parse_mountinfo
from rackproof.parse.parallel_fs import DFUSE, parse_dfuse
from rackproof.parse.statfs import parse_statfs
from rackproof.parse.systemctl import at_boot_command, parse_at_boot
from rackproof.parse.text import whole_lines
from rackproof.validation import Blames, Unmeasured, announce, check, expect_all, read
from rackproof.validation.mounts import MOUNTINFO, answering, mounts_of, nfs_of, servers_of, statfs

BYTES_PER_GB = 1_000_000_000


@check(
    "mount.mounted",
    reads="storage.*.mountpoint",
    protects="Without the mount a job finds an empty folder: it fills the root disk or has no data.",
    hint="systemctl status for the mount's unit; journalctl -u rackproof-mounts for network file systems.",
)
def test_mounted(host: Host, arch: Architecture, item: str) -> None:
    expect_all(type_faults(arch.storage[item], parse_mountinfo(read(host, MOUNTINFO))))


@check(
    "mount.at_boot",
    reads="storage.*.at_boot",
    protects="A manual mount is lost at the next reboot; the first job finds an empty folder.",
    hint="systemctl is-enabled rackproof-mounts.service, or a line in fstab; run `rackproof deploy` again.",
)
def test_at_boot(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    missing = parse_at_boot(read(host, at_boot_command(storage.mountpoints)), storage.mountpoints)
    expect_all(f"{mountpoint}: expected a unit that mounts it at boot, actual none" for mountpoint in missing)


@check(
    "mount.source",
    reads="storage.*.source",
    protects="A mount of the wrong server works, but has other data.",
    hint="findmnt on the node (for DAOS the arguments of dfuse); compare with inventory and architecture.",
)
def test_source(host: Host, arch: Architecture, node: Node, rack: Rack, item: str) -> None:
    storage = arch.storage[item]
    by_label = f"readlink -f -- {shlex.quote(f'/dev/disk/by-label/{storage.source}')}"
    announce(host, MOUNTINFO, *([by_label] if storage.class_ == "local" else []))
    mounts = mounts_of(host, storage)
    device = whole_lines("readlink", read(host, by_label))[0] if storage.class_ == "local" else None
    if storage.fstype == "fuse.daos":
        announce(host, DFUSE)
    daemons = parse_dfuse(read(host, DFUSE)) if storage.fstype == "fuse.daos" else ()
    fsids = filter(None, [declared_fsid(arch, rack, node, storage)])
    faults = source_faults(storage, mounts, storage.addresses(rack), device, daemons, tuple(fsids))
    expect_all([*bind_faults(mounts), *faults])


@check(
    "mount.options",
    reads="storage.*.options_required",
    protects="A soft or read-only mount fails checkpoints; a wrong NFS version silently lacks features.",
    hint="findmnt -o OPTIONS on the node; NFS mounts of one server share options with the first: unmount all, remount.",
)
def test_options(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    expect_all(option_faults(storage, mounts_of(host, storage)))


@check(
    "mount.connections",
    reads="storage.*.connections",
    protects="One TCP connection uses one core and one path: a fast link stays half idle.",
    hint="grep xprt /proc/self/mountstats; nconnect applies to the first mount of a server only: unmount all, remount.",
)
def test_connections(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    expect_all(connection_faults(storage, nfs_of(host, storage)))


@check(
    "mount.answers",
    reads="storage.*.stat_timeout_s",
    protects="A mount whose server is gone blocks every process that accesses it, unkillably.",
    hint="Check that the server is up and its address answers pings over the fabric; dmesg: 'server not responding'.",
)
def test_answers(host: Host, arch: Architecture, rack: Rack, item: str) -> None:
    storage = arch.storage[item]
    problems = []
    answers = statfs(host, storage)
    silent = [mountpoint for mountpoint, answer in answers.items() if answer.timed_out]
    for mountpoint, answer in answers.items():
        if mountpoint in silent:
            problems.append(f"expected an answer of {mountpoint} within {storage.stat_timeout_s:g} s, actual none")
        elif answer.status != 0:
            problems.append(f"expected an answer of {mountpoint}, actual {answer.body.strip() or answer.status}")
        elif parse_statfs(answer.body).total_bytes == 0:
            problems.append(f"expected a file system with a size on {mountpoint}, actual 0 bytes")
    names = servers_of(host, storage, rack) if silent else {}
    servers = {names.get(mountpoint) for mountpoint in silent}
    server = servers.pop() if len(servers) == 1 and len(problems) == len(silent) else None
    if server:
        raise Blames(f"{server} does not answer: {'; '.join(problems)}", server)
    expect_all(problems)


@check(
    "mount.free",
    reads="storage.*.min_free_gb",
    protects="On a full file system every job fails at its next checkpoint.",
    hint="df and du on the node; lsof +L1 lists deleted files that are still open.",
)
def test_free(host: Host, arch: Architecture, rack: Rack, item: str) -> None:
    storage = arch.storage[item]
    for mountpoint, body in answering(host, storage, rack).items():
        free_gb = parse_statfs(body).free_bytes / BYTES_PER_GB
        if not free_gb >= storage.min_free_gb:
            raise AssertionError(
                f"{about(storage, mountpoint)}expected at least {storage.min_free_gb:g} GB free, "
                f"actual {free_gb:.2f} GB"
            )


@check(
    "mount.count",
    reads="storage.*.mounts_per_client",
    protects="Each mount is a separate path to the server; with fewer mounts some server ports stay idle.",
    hint="findmnt -t nfs,nfs4 on the node; every numbered mount point needs its own line and its own server address.",
)
def test_count(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    seen = parse_mountinfo(read(host, MOUNTINFO))
    missing = [mountpoint for mountpoint in storage.mountpoints if find_mount(seen, mountpoint) is None]
    if missing:
        count = len(storage.mountpoints)
        raise AssertionError(
            f"expected {count} mounts, actual {count - len(missing)}; not mounted: {', '.join(missing)}"
        )


@check(
    "mount.balance",
    reads="storage.*.mounts_balance",
    protects="Mounts of one server address share its port: the rack reads at the speed of one port.",
    hint="findmnt -o TARGET,SOURCE -t nfs,nfs4; spread the numbered mounts over the server's addresses in turn.",
)
def test_balance(host: Host, arch: Architecture, rack: Rack, item: str) -> None:
    storage = arch.storage[item]
    addresses = storage.addresses(rack)
    if not addresses:
        raise Unmeasured("neither the inventory nor storage.servers has the server's addresses")
    if names := [server for server in addresses if ip_of(server) is None]:
        raise Unmeasured(f"storage.servers has names, whose addresses are unknown: {', '.join(names)}")
    servers = [str(ip_of(address)) for address in addresses]  # IPv6 has several spellings
    mounts = Counter(str(ip_of(server) or server) for server in map(server_of, mounts_of(host, storage)))
    counts = {server: mounts[server] for server in (*servers, *sorted(set(mounts) - set(servers)))}
    apart = max(counts.values()) - min(counts.values())
    # Two mounts of four addresses cannot be closer; the nodes take the addresses in turn.
    wanted = storage.mounts_per_client or len(storage.mountpoints)
    most = max(storage.mounts_balance or 0, min(1, wanted % len(servers)))
    if not apart <= most:
        listed = ", ".join(f"{count} from {address}" for address, count in counts.items())
        raise AssertionError(f"expected at most {most} apart, actual {apart}: {listed}")
