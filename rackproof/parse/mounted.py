"""Differences between the mounts of a storage and the architecture: type, source, options, transport, connections.

Validators and the storage benchmark compare by the same rules. Every function returns lines ``expected … actual …``,
none where all is as expected, and raises ParseError where the readings do not say.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from rackproof.core.architecture import Storage
from rackproof.parse.errors import ParseError
from rackproof.parse.mounts import Mount, NfsMount, find_mount
from rackproof.parse.parallel_fs import Dfuse

OPPOSITE: Final = {"rw": "ro", "hard": "soft", "noatime": "relatime", "sync": "async"}
SUBVOLUMES: Final = ("btrfs",)
"""File systems whose mounts have a root of their own without being bind mounts."""
SMALLEST_TRANSFER: Final = 65536
"""Bytes of an NFS read or write; the smallest default maximum of common servers (ONTAP's tcp-max-xfer-size)."""
NFS_PORTS: Final = {"tcp": 2049, "rdma": 20049}
"""Ports of NFS that the kernel does not show."""


_OVER_IPV6: Final = ("proto=tcp6", "proto=rdma6", "proto=udp6")
"""The kernel shows the transport of NFS together with the family of the server's address."""


def about(storage: Storage, mountpoint: str) -> str:
    """Message prefix that names the mount point; empty for a single mount."""
    return f"{mountpoint}: " if len(storage.mountpoints) > 1 else ""


def server_of(mount: Mount) -> str:
    """The server address that an NFS mount uses."""
    return mount.option("addr") or _typed(mount)


def _typed(mount: Mount) -> str:
    """The server's name or address as an NFS mount was given it."""
    return mount.source.partition(":/")[0].strip("[]")


def is_from(mount: Mount, server: str) -> bool:
    """Whether an NFS mount is from a declared server: from its address in any spelling, or by its name."""
    address = ip_of(server)
    return _typed(mount) == server if address is None else ip_of(server_of(mount)) == address


def export_of(server: str, path: str) -> str:
    """Source of an NFS mount, as mount(8) takes it."""
    return f"[{server}]:{path}" if ":" in server else f"{server}:{path}"


def mounts_in(mounts: Iterable[Mount], storage: Storage) -> tuple[Mount | None, ...]:
    """The visible mount of each mount point."""
    every = tuple(mounts)
    return tuple(find_mount(every, mountpoint) for mountpoint in storage.mountpoints)


def type_faults(storage: Storage, mounts: Iterable[Mount]) -> list[str]:
    """Mount points that are not mounted, or with another file system."""
    every = tuple(mounts)
    return [
        f"{mountpoint}: expected {storage.fstype}, actual {mount.fstype if mount else absent(every, mountpoint)}"
        for mountpoint, mount in zip(storage.mountpoints, mounts_in(every, storage), strict=True)
        if mount is None or mount.fstype != storage.fstype
    ]


def absent(mounts: Iterable[Mount], mountpoint: str) -> str:
    """Why no mount is visible at a mount point."""
    above = next((mount.hidden_by for mount in mounts if mount.mountpoint == mountpoint and mount.hidden_by), "")
    return f"hidden by a later mount on {above}" if above else "not mounted"


def bind_faults(mounts: Iterable[Mount]) -> list[str]:
    """Mounts that show a directory of a file system instead of the whole: bind mounts."""
    return [
        f"{mount.mountpoint}: expected the whole file system, actual a bind mount of {mount.root} of {mount.source}"
        for mount in mounts
        if mount.root != "/" and mount.fstype not in SUBVOLUMES
    ]


def source_faults(
    storage: Storage,
    mounts: Sequence[Mount],
    addresses: Sequence[str] = (),
    device: str | None = None,
    daemons: Iterable[Dfuse] = (),
    fsids: Collection[str] = (),
    seen: Collection[str] = (),
) -> list[str]:
    """Mounts of another device, server, export or file system.

    ``addresses`` are those that it may be mounted from, ``device`` is the one that carries the label of a local
    storage, ``daemons`` are the dfuse processes of DAOS. ``fsids`` are those of Ceph's cluster where they are known,
    ``seen`` those of the clusters whose file systems the kernel's client has mounted.
    """
    if storage.class_ == "local":
        return _device_faults(storage, mounts, device)
    if storage.class_ == "nfs" and (storage.servers or storage.server_role):
        return _export_faults(storage, mounts, addresses)
    if storage.fstype == "fuse.daos":
        return _container_faults(storage, mounts, daemons)
    for mount in mounts:
        if mount.fstype == "ceph" and name_of(mount) is None:
            raise ParseError(
                "mount", f"{mount.mountpoint} does not name its file system: mount it with fs={storage.file_system}"
            )
    faults = [
        f"{about(storage, mount.mountpoint)}source: expected {storage.source}, actual {name_of(mount) or 'none'}"
        for mount in mounts
        if name_of(mount) != storage.source
    ]
    faults = faults or _cluster_faults(storage, mounts, addresses)
    return faults or _fsid_faults(storage, mounts, fsids, seen)


def _fsid_faults(storage: Storage, mounts: Iterable[Mount], fsids: Collection[str], seen: Collection[str]) -> list[str]:
    """Mounts of another cluster of Ceph. A mount that names none is of one of those that the kernel has mounted; where
    these are not known either, it is not judged."""
    known, there = ({fsid.lower() for fsid in some} for some in (fsids, seen))
    return [
        f"{about(storage, mount.mountpoint)}source: expected cluster {' or '.join(fsids)}, actual {', '.join(actual)}"
        for mount in mounts
        for actual in [sorted({fsid_of(mount.source).lower()} - {""} or there)]
        if known and actual and not known & set(actual)
    ]


def fsid_of(source: str) -> str:
    """FSID in ``user@fsid.name=/path``; empty for ``monitors:/path``, which names no cluster."""
    return source.partition("@")[2].partition(".")[0]


def _cluster_faults(storage: Storage, mounts: Sequence[Mount], addresses: Sequence[str]) -> list[str]:
    """Mounts of a parallel file system of the right name from other servers. Names of servers are not resolved: only
    addresses are compared, and only where all declared servers are addresses."""
    declared = {ip_of(address) for address in addresses}
    if not declared or None in declared:
        return []
    faults = []
    for mount in mounts:
        servers = cluster_of(mount)
        if not servers and mount.fstype == "ceph":
            raise ParseError("mount", f"{mount.mountpoint} does not show the monitors of its cluster")
        strange = [server for server in servers if (address := ip_of(server)) and address not in declared]
        if strange:
            expected = f"a server among {', '.join(addresses)}"
            faults.append(f"{about(storage, mount.mountpoint)}source: expected {expected}, actual {strange[0]}")
    return faults


def ip_of(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a text is; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _device_faults(storage: Storage, mounts: Sequence[Mount], device: str | None) -> list[str]:
    if device is None or not device.startswith("/dev/"):
        raise ParseError("readlink", f"no device: {device}" if device else f"no device has the label {storage.source}")
    return [
        f"device labelled {storage.source}: expected {device}, actual {mount.source or 'none'}"
        for mount in mounts
        if mount.source != device
    ]


def _export_faults(storage: Storage, mounts: Sequence[Mount], addresses: Sequence[str]) -> list[str]:
    if not addresses:
        raise ParseError("mount", f"no node of role {storage.server_role} has a fabric address in the inventory")
    if not storage.servers and len(mounts) == 1:
        expected, actual = export_of(addresses[0], storage.source), mounts[0].source
        return [] if actual == expected else [f"source: expected {expected}, actual {actual or 'none'}"]
    wanted = f"{storage.source} of {', '.join(addresses)}"
    return [
        f"{mount.mountpoint}: expected {wanted}, actual {path} of {server_of(mount)}"
        for mount in mounts
        for path in ["/" + mount.source.partition(":/")[2]]
        if path != storage.source or not any(is_from(mount, server) for server in addresses)
    ]


def _container_faults(storage: Storage, mounts: Sequence[Mount], daemons: Iterable[Dfuse]) -> list[str]:
    """The kernel reports ``dfuse`` only; the daemon's arguments name pool and container."""
    served = {daemon.mountpoint: daemon for daemon in daemons}
    values = {}
    for mount in mounts:
        daemon = served.get(mount.mountpoint)
        if daemon is None or not daemon.pool or not daemon.container:
            raise ParseError("mount", f"no dfuse process names the container on {mount.mountpoint}")
        values[mount.mountpoint] = f"{daemon.pool}/{daemon.container}"
    return [
        f"{about(storage, mountpoint)}source: expected {storage.source}, actual {value}"
        for mountpoint, value in values.items()
        if value != storage.source
    ]


_HOST: Final = re.compile(r"(?:\[([^\]]+)\]|([^:]+))(?::\d+)?")
"""Host and port of a monitor."""


def cluster_of(mount: Mount) -> list[str]:
    """Servers that the mount of a parallel file system names: monitors of Ceph, management servers of Lustre, backends
    of WEKA. Empty where it names none."""
    if mount.fstype == "ceph":
        old = "" if "@" in mount.source else mount.source.rpartition(":/")[0]
        monitors = re.split("[/,]", mount.option("mon_addr") or old)
        return [match[1] or match[2] for monitor in monitors if (match := _HOST.fullmatch(monitor))]
    if mount.fstype == "lustre":
        return [nid.partition("@")[0] for nid in re.split("[,:]", mount.source.partition(":/")[0])]
    if mount.fstype == "wekafs":
        return list(filter(None, mount.source.rpartition("/")[0].split(",")))
    return []


def name_of(mount: Mount) -> str | None:
    """Name of the file system, extracted from the source of the mount; with the path of a folder below its root."""
    if mount.fstype == "ceph":
        # user@fsid.name=/path, or monitors:/path with the name among the options
        if "@" not in mount.source:
            name = mount.option("mds_namespace")
            return name and f"{name}/{mount.source.rpartition(':/')[2]}".rstrip("/")
        name, _, path = mount.source.partition("@")[2].partition(".")[2].partition("=")
        return f"{name}{path}".rstrip("/")
    if mount.fstype == "lustre":
        # 10.0.0.1@o2ib,10.0.0.2@o2ib:10.0.0.3@o2ib:/name/path
        return mount.source.partition(":/")[2].rstrip("/")
    if mount.fstype == "wekafs":
        # server/name, or the name alone
        return mount.source.rpartition("/")[2]
    return mount.source


def option_faults(storage: Storage, mounts: Iterable[Mount]) -> list[str]:
    """Required options that are not in force, and forbidden ones that are."""
    return [
        f"{about(storage, mount.mountpoint)}{problem}" for mount in mounts for problem in _wrong_options(storage, mount)
    ]


def _wrong_options(storage: Storage, mount: Mount) -> list[str]:
    in_force = {*mount.options, *mount.super_options} - {"rw", "ro"} | {"ro" if mount.read_only else "rw"}
    in_force |= {option[:-1] for option in in_force if option in _OVER_IPV6}
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
    if storage.class_ == "nfs":
        problems += _small_transfers(storage, mount)
    return problems


def _small_transfers(storage: Storage, mount: Mount) -> list[str]:
    """Sizes of reads and writes below every server's default, where the architecture asks for none."""
    asked = {option.partition("=")[0] for option in (*storage.options, *storage.options_required)}
    sizes = {key: mount.option(key) for key in ("rsize", "wsize") if key not in asked}
    return [
        f"{key}: expected at least {SMALLEST_TRANSFER}, actual {size or 'not in force'}"
        for key, size in sizes.items()
        if not (size and size.isdecimal() and int(size) >= SMALLEST_TRANSFER)
    ]


def transport_faults(storage: Storage, mounts: Iterable[NfsMount]) -> list[str]:
    """NFS mounts whose connections use another protocol."""
    return [
        f"{about(storage, mount.mountpoint)}transport in use: expected {storage.transport}, "
        f"actual {', '.join(sorted(used))}"
        for mount in mounts
        for used in [{transport.protocol for transport in mount.transports}]
        if storage.transport is not None and used != {storage.transport}
    ]


def port_faults(storage: Storage, mounts: Iterable[Mount]) -> list[str]:
    """NFS mounts of another port of the server."""
    if storage.class_ != "nfs" or storage.port is None:
        return []
    default = NFS_PORTS.get(storage.transport or "tcp", 2049)
    return [
        f"{about(storage, mount.mountpoint)}port: expected {storage.port}, actual {actual}"
        for mount in mounts
        for actual in [mount.option("port") or str(default)]
        if actual != str(storage.port)
    ]


def connection_faults(storage: Storage, mounts: Iterable[NfsMount]) -> list[str]:
    """NFS mounts with another number of connections; none where the architecture gives none."""
    return [
        f"{about(storage, mount.mountpoint)}connections in use: expected {storage.connections}, "
        f"actual {mount.connections}"
        for mount in mounts
        if storage.connections is not None and mount.connections != storage.connections
    ]
