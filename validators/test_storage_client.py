"""Storage as clients have it mounted, in the kernel's own words.

Only ``mount.answers`` and ``mount.free`` touch a mount, both through one command with a limit: a dead server is
found out in seconds. Everything else is read from /proc, which answers whatever the server does. How well they are
tuned and how they fare is in ``test_storage_client_health.py``, what they run over in
``test_storage_client_transport.py``.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping

from testinfra.host import Host

from rackproof.core.architecture import Architecture, Storage
from rackproof.core.rack import Rack
from rackproof.parse import ParseError
from rackproof.parse.mounts import Mount, find_mount, parse_mountinfo
from rackproof.parse.parallel_fs import DFUSE, Dfuse, parse_dfuse
from rackproof.parse.statfs import parse_statfs
from rackproof.parse.systemctl import at_boot_command, parse_at_boot
from rackproof.parse.text import whole_lines
from rackproof.validation import Unmeasured, announce, check, expect, expect_all, read
from rackproof.validation.checks import shown
from rackproof.validation.mounts import (
    MOUNTINFO,
    about,
    addresses_of,
    answering,
    mounts_of,
    nfs_of,
    server_of,
    statfs,
)

OPPOSITE = {"rw": "ro", "hard": "soft", "noatime": "relatime", "sync": "async"}
BYTES_PER_GB = 1_000_000_000


@check(
    "mount.mounted",
    reads="storage.*.mountpoint",
    protects="A job that finds an empty folder instead of its data fills the root disk, or trains on nothing.",
    hint="systemctl status for the mount's unit; journalctl -u rackproof-mounts for network file systems.",
)
def test_mounted(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    seen = parse_mountinfo(read(host, MOUNTINFO))
    mounts = {mountpoint: find_mount(seen, mountpoint) for mountpoint in storage.mountpoints}
    expect_all(
        f"{mountpoint}: expected {storage.fstype}, actual {mount.fstype if mount else 'not mounted'}"
        for mountpoint, mount in mounts.items()
        if mount is None or mount.fstype != storage.fstype
    )


@check(
    "mount.at_boot",
    reads="storage.*.at_boot",
    protects="A mount that was made by hand is gone after the next reboot; the first job finds an empty folder.",
    hint="systemctl is-enabled rackproof-mounts.service, or a line in fstab; deploy the storage client again.",
)
def test_at_boot(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    missing = parse_at_boot(read(host, at_boot_command(storage.mountpoints)), storage.mountpoints)
    expect_all(f"{mountpoint}: expected a unit that mounts it at boot, actual none" for mountpoint in missing)


@check(
    "mount.source",
    reads="storage.*.source",
    protects="The right folder of the wrong server: everything works until somebody looks for the data.",
    hint="findmnt on the node, and of DAOS the arguments of dfuse; compare with the inventory and the architecture.",
)
def test_source(host: Host, arch: Architecture, rack: Rack, item: str) -> None:
    storage = arch.storage[item]
    by_label = f"readlink -f -- {shlex.quote(f'/dev/disk/by-label/{storage.source}')}"
    announce(host, MOUNTINFO, *([by_label] if storage.class_ == "local" else []))
    mounts = mounts_of(host, storage)
    if storage.class_ == "local":
        device = whole_lines("readlink", read(host, by_label))[0]
        if not device.startswith("/dev/"):
            raise ParseError("readlink", f"no device: {device}")
        expect(mounts[0].source, device, f"device labelled {storage.source}")
    elif storage.class_ == "nfs" and (storage.servers or (storage.server_role and len(mounts) > 1)):
        _one_of_several(storage, rack, mounts)
    elif storage.class_ == "nfs" and storage.server_role:
        server = next(iter(rack.group(storage.server_role)), None)
        address = server.fabric_address() if server else None
        if address is None:
            raise Unmeasured(f"no node of role {storage.server_role} has a fabric address in the inventory")
        expect(mounts[0].source, f"{address}:{storage.source}", "source")
    elif storage.fstype == "fuse.daos":
        announce(host, DFUSE)
        served = {daemon.mountpoint: daemon for daemon in parse_dfuse(read(host, DFUSE))}
        _containers(storage, mounts, served)
    else:
        expect_all(
            f"{about(storage, mount.mountpoint)}source: expected {storage.source}, actual {shown(_name_of(mount))}"
            for mount in mounts
            if _name_of(mount) != storage.source
        )


def _containers(storage: Storage, mounts: tuple[Mount, ...], served: Mapping[str, Dfuse]) -> None:
    """The kernel only says ``dfuse``; which container it is its daemon was told."""
    values = {}
    for mount in mounts:
        daemon = served.get(mount.mountpoint)
        if daemon is None or not daemon.pool or not daemon.container:
            raise Unmeasured(f"no dfuse says which container is on {mount.mountpoint}")
        values[mount.mountpoint] = f"{daemon.pool}/{daemon.container}"
    expect_all(
        f"{about(storage, mountpoint)}source: expected {storage.source}, actual {value}"
        for mountpoint, value in values.items()
        if value != storage.source
    )


def _one_of_several(storage: Storage, rack: Rack, mounts: tuple[Mount, ...]) -> None:
    addresses = addresses_of(storage, rack)
    if not addresses:
        raise Unmeasured(f"no node of role {storage.server_role} has a fabric address in the inventory")
    problems = []
    for mount in mounts:
        path = "/" + mount.source.partition(":/")[2]
        if path != storage.source or server_of(mount) not in addresses:
            expected = f"{storage.source} of {', '.join(addresses)}"
            problems.append(f"{mount.mountpoint}: expected {expected}, actual {path} of {server_of(mount)}")
    expect_all(problems)


def _name_of(mount: Mount) -> str | None:
    """The file system's own name, of which the source has more or less around it."""
    if mount.fstype == "ceph":
        # user@fsid.name=/path, or monitors:/path with the name among the options
        in_source = mount.source.partition("=")[0].rpartition(".")[2]
        return in_source if "@" in mount.source else mount.option("mds_namespace")
    if mount.fstype == "lustre":
        # 10.0.0.1@o2ib,10.0.0.2@o2ib:10.0.0.3@o2ib:/name/path
        return mount.source.rpartition(":/")[2].partition("/")[0]
    if mount.fstype == "wekafs":
        # server/name, or the name alone
        return mount.source.rpartition("/")[2]
    return mount.source


@check(
    "mount.options",
    reads="storage.*.options_required",
    protects="A soft or read-only mount gives a checkpoint up in the middle; a wrong version loses features quietly.",
    hint="findmnt -o OPTIONS on the node; NFS mounts of one server share options with the first: unmount all, remount.",
)
def test_options(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    expect_all(
        f"{about(storage, mount.mountpoint)}{problem}"
        for mount in mounts_of(host, storage)
        for problem in _wrong_options(storage, mount)
    )


def _wrong_options(storage: Storage, mount: Mount) -> list[str]:
    in_force = {*mount.options, *mount.super_options} - {"rw", "ro"} | {"ro" if mount.read_only else "rw"}
    problems = []
    for option in storage.options_required:
        if option not in in_force:
            key = option.partition("=")[0]
            actual = sorted(o for o in in_force if o.partition("=")[0] in (key, OPPOSITE.get(key))) or ["not in force"]
            problems.append(f"{option}: expected in force, actual {', '.join(actual)}")
    problems += [
        f"{option}: expected not in force, actual in force"
        for option in storage.options_forbidden
        if option in in_force
    ]
    return problems


@check(
    "mount.connections",
    reads="storage.*.connections",
    protects="One TCP connection is one core and one path: a fast link stays half empty.",
    hint="grep xprt /proc/self/mountstats; nconnect counts for the first mount of a server only: unmount all, remount.",
)
def test_connections(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    expect_all(
        f"{about(storage, mount.mountpoint)}connections in use: expected {storage.connections}, "
        f"actual {mount.connections}"
        for mount in nfs_of(host, storage)
        if mount.connections != storage.connections
    )


@check(
    "mount.answers",
    reads="storage.*.stat_timeout_s",
    protects="A mount whose server is gone blocks every process that looks at it, and cannot be killed off.",
    hint="Is the server up, and its address pingable over the fabric? dmesg shows 'server not responding'.",
)
def test_answers(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    problems = []
    for mountpoint, answer in statfs(host, storage).items():
        if answer.timed_out:
            problems.append(f"expected an answer of {mountpoint} within {storage.stat_timeout_s:g} s, actual none")
        elif answer.status != 0:
            problems.append(f"expected an answer of {mountpoint}, actual {answer.body.strip() or answer.status}")
        elif parse_statfs(answer.body).total_bytes == 0:
            problems.append(f"expected a file system with a size on {mountpoint}, actual 0 bytes")
    expect_all(problems)


@check(
    "mount.free",
    reads="storage.*.min_free_gb",
    protects="A full file system ends every job at its next checkpoint.",
    hint="df and du on the node; deleted files that are still open show in lsof +L1.",
)
def test_free(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    for mountpoint, body in answering(host, storage).items():
        free_gb = parse_statfs(body).free_bytes / BYTES_PER_GB
        if not free_gb >= storage.min_free_gb:
            raise AssertionError(
                f"{about(storage, mountpoint)}expected at least {storage.min_free_gb:g} GB free, "
                f"actual {free_gb:.2f} GB"
            )


@check(
    "mount.count",
    reads="storage.*.mounts_per_client",
    protects="Each mount is a path of its own to the server; with fewer of them some of its ports stay idle.",
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
    protects="Mounts that share one server address share its port: the rack reads at the speed of that one.",
    hint="findmnt -o TARGET,SOURCE -t nfs,nfs4; spread the numbered mounts over the server's addresses in turn.",
)
def test_balance(host: Host, arch: Architecture, rack: Rack, item: str) -> None:
    storage = arch.storage[item]
    addresses = addresses_of(storage, rack)
    if not addresses:
        raise Unmeasured("neither the inventory nor storage.servers says the server's addresses")
    mounts = Counter(server_of(mount) for mount in mounts_of(host, storage))
    counts = {address: mounts[address] for address in (*addresses, *sorted(set(mounts) - set(addresses)))}
    apart = max(counts.values()) - min(counts.values())
    if not apart <= (storage.mounts_balance or 0):
        listed = ", ".join(f"{count} from {address}" for address, count in counts.items())
        raise AssertionError(f"expected at most {storage.mounts_balance} apart, actual {apart}: {listed}")
