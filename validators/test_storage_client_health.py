"""Tuning and health of mounts: usage, latency, read-ahead, retransmissions, timeouts, local cache."""

from __future__ import annotations

from testinfra.host import Host

from rackproof.core.architecture import Architecture, Storage
from rackproof.core.rack import Rack
from rackproof.parse.block import parse_read_ahead, read_ahead_command
from rackproof.parse.fscache import CACHE_DAEMONS, FSCACHE, parse_cache_daemons, parse_fscache
from rackproof.parse.mounted import about
from rackproof.parse.mounts import NfsMount
from rackproof.parse.statfs import latency_command, parse_inodes, parse_latency_ms, parse_statfs
from rackproof.validation import Unmeasured, announce, check, expect, expect_all, read
from rackproof.validation.mounts import INODES_FORMAT, MOUNTINFO, answering, mounts_of, nfs_of, no_answer

NEEDED = frozenset({"READ", "WRITE", "COMMIT"})
"""Operations of NFS 3 and 4; statistics without them are incomplete."""


@check(
    "mount.used",
    reads="storage.*.max_used_pct",
    protects="Most file systems write slower long before they are full.",
    hint="df on the node; du for the largest folders. User quotas prevent a recurrence.",
)
def test_used(host: Host, arch: Architecture, rack: Rack, item: str) -> None:
    storage = arch.storage[item]
    for mountpoint, body in answering(host, storage, rack).items():
        size = parse_statfs(body)
        if size.total_bytes == 0:
            raise Unmeasured(f"{mountpoint} has no size; see mount.answers")
        used_pct = 100 * (1 - size.free_bytes / size.total_bytes)
        if not used_pct <= (storage.max_used_pct or 0):
            raise AssertionError(
                f"{about(storage, mountpoint)}expected at most {storage.max_used_pct:g} % used, actual {used_pct:.1f} %"
            )


@check(
    "mount.inodes",
    reads="storage.*.min_free_inodes",
    protects="A file system without inodes refuses new files while df shows terabytes free.",
    hint="df -i on the node; pack small files into archives, or add inodes on the server.",
)
def test_inodes(host: Host, arch: Architecture, rack: Rack, item: str) -> None:
    storage = arch.storage[item]
    for mountpoint, body in answering(host, storage, rack, INODES_FORMAT).items():
        total, free = parse_inodes(body)
        if total == 0:
            raise Unmeasured(f"{mountpoint} does not count inodes")
        if not free >= (storage.min_free_inodes or 0):
            raise AssertionError(
                f"{about(storage, mountpoint)}expected at least {storage.min_free_inodes} free inodes, actual {free}"
            )


@check(
    "mount.latency",
    reads="storage.*.stat_latency_ms",
    protects="Opening a million small files takes a million round trips: slow metadata starves the GPUs.",
    hint="Compare with ping to the server; check for a busy metadata server, a lossy port, or another job on the node.",
)
def test_latency(host: Host, arch: Architecture, rack: Rack, item: str) -> None:
    storage = arch.storage[item]
    commands = {point: latency_command(point, storage.stat_timeout_s) for point in storage.mountpoints}
    announce(host, MOUNTINFO, *commands.values())
    mounts_of(host, storage)
    problems = []
    for mountpoint, command in commands.items():
        latency_ms = parse_latency_ms(read(host, command))
        if latency_ms is None:
            raise Unmeasured(no_answer(host, storage, rack, mountpoint))
        if not latency_ms <= (storage.stat_latency_ms or 0):
            problems.append(
                f"{about(storage, mountpoint)}expected statfs within {storage.stat_latency_ms:g} ms, "
                f"actual {latency_ms:.1f} ms"
            )
    expect_all(problems)


@check(
    "mount.read_ahead",
    reads="storage.*.read_ahead_kib",
    protects="NFS reads 128 KiB ahead by default: a single sequential reader sees a fraction of the link.",
    hint="cat /sys/class/bdi/DEVICE/read_ahead_kb; a udev rule of the subsystem bdi, or nfsrahead, sets it at mount.",
)
def test_read_ahead(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    commands = {}
    for mount in mounts_of(host, storage):
        if mount.device is None:
            raise Unmeasured(f"{mount.mountpoint} has no device number")
        commands[mount.mountpoint] = read_ahead_command(mount.device)
    announce(host, *commands.values())
    for mountpoint, command in commands.items():
        read_ahead_kib = parse_read_ahead(read(host, command))
        if read_ahead_kib is None:
            raise Unmeasured(f"the kernel reports no read-ahead for {mountpoint}")
        expect(read_ahead_kib, storage.read_ahead_kib, f"{about(storage, mountpoint)}read-ahead (KiB)")


def counted(host: Host, storage: Storage) -> tuple[NfsMount, ...]:
    """NFS mounts. Raises Unmeasured when their statistics are incomplete or without calls."""
    mounts = nfs_of(host, storage)
    for mount in mounts:
        if NEEDED - mount.operations.keys():
            raise Unmeasured(f"statistics of {mount.mountpoint} are incomplete")
        if not sum(operation.calls for operation in mount.operations.values()):
            raise Unmeasured(f"{mount.mountpoint} has had no NFS calls yet")
    return mounts


@check(
    "mount.retransmissions",
    reads="storage.*.max_retransmit_pct",
    protects="A lost call is retransmitted after a minute: one lossy cable stalls a job now and then.",
    hint="nfsstat -rc and mountstats; ethtool -S for drops and PFC pauses on the path; counters start at mount time.",
)
def test_retransmissions(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    problems = []
    for mount in counted(host, storage):
        calls = sum(operation.calls for operation in mount.operations.values())
        again = sum(max(0, operation.transmissions - operation.calls) for operation in mount.operations.values())
        if not 100 * again / calls <= (storage.max_retransmit_pct or 0):
            problems.append(
                f"{about(storage, mount.mountpoint)}expected at most {storage.max_retransmit_pct:g} % of calls sent "
                f"again, actual {100 * again / calls:.3g} % ({again} of {calls})"
            )
    expect_all(problems)


@check(
    "mount.timeouts",
    reads="storage.*.max_timeouts",
    protects="A timed-out call blocks a process for minutes, and fails it on a soft mount.",
    hint="dmesg shows 'server not responding' with a timestamp; check server and fabric at that time.",
)
def test_timeouts(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    problems = []
    for mount in counted(host, storage):
        late = {name: o.timeouts for name, o in mount.operations.items() if o.timeouts}
        if sum(late.values()) > (storage.max_timeouts or 0):
            listed = ", ".join(f"{name} {count}" for name, count in late.items())
            problems.append(
                f"{about(storage, mount.mountpoint)}expected at most {storage.max_timeouts} timeouts, "
                f"actual {sum(late.values())} ({listed})"
            )
    expect_all(problems)


def cache_states(host: Host) -> tuple[str, ...]:
    """States of the node's caches; kernels before 5.17 have no table of them."""
    table = host.run(FSCACHE)
    if table.rc == 1 and "No such file" in table.stderr:
        return parse_cache_daemons(read(host, CACHE_DAEMONS))
    return parse_fscache(read(host, FSCACHE))


@check(
    "mount.cache",
    reads="storage.*.local_cache",
    protects="Without its local cache every epoch reads the whole data set over the network again.",
    hint="systemctl status cachefilesd; the option fsc must be in force, and the cache's drive mounted with room.",
)
def test_cache(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    announce(host, MOUNTINFO, FSCACHE)
    without = [mount.mountpoint for mount in mounts_of(host, storage) if mount.option("fsc") is None]
    expect_all(f"{mountpoint}: expected fsc in force, actual not in force" for mountpoint in without)
    states = cache_states(host)
    if "active" not in states:
        raise AssertionError(f"expected an active cache, actual {', '.join(states) or 'none'}")
