"""NFS: several addresses of a server, options of versions 3 and 4, local cache, slots.

The k-th mount of a client uses the k-th address, starting at a different address on every node, as in Dell's DGX-1
system with Isilon: every node uses all addresses, and load is even.
"""

from __future__ import annotations

from collections.abc import Sequence

from rackproof.configure.files import Entry, RemoteDirectory, RemoteFile
from rackproof.configure.mounts import DesiredMount
from rackproof.configure.storage_client.client import Client, ClientNode, NamedStorage, in_turn, mount_of
from rackproof.configure.storage_client.inputs import Cache, Nfs
from rackproof.configure.storage_client.steps import Step
from rackproof.configure.units import Unit
from rackproof.core.architecture import Storage
from rackproof.errors import DeclarationError
from rackproof.parse.mounted import export_of

CACHE_UNIT = "cachefilesd.service"
CACHE_CONF = "/etc/cachefilesd.conf"
RDMA_PORT = 20049


def mounts(named: NamedStorage, node: ClientNode) -> tuple[DesiredMount, ...]:
    """Raises DeclarationError when no server is known, or several mounts would share one connection."""
    storage, inputs = named.storage, node.inputs.nfs
    servers = named.first_servers("NFS is mounted from a server")
    count = storage.mounts_per_client or 1
    if count > 1 and inputs.driver == "kernel" and len(set(servers)) > 1 and _trunks(storage):
        raise DeclarationError(
            f"{named.name}: {count} mounts over {len(set(servers))} addresses with NFS {_version(storage)}: "
            "the kernel's client recognises one server behind them and uses only the first address; use vers=3, or "
            "a multipath client"
        )
    chosen = in_turn(servers, node.index, count) if storage.servers or count > 1 else servers[:1]
    return tuple(
        _mount(named, node, where, server, servers)
        for where, server in zip(storage.mountpoints, chosen, strict=True)
    )  # fmt: skip


def _mount(named: NamedStorage, node: ClientNode, where: str, server: str, servers: Sequence[str]) -> DesiredMount:
    storage, inputs = named.storage, node.inputs.nfs
    # retry=0: the retry service repeats the mount; retries of mount.nfs itself would delay the boot.
    extra = ["nofail", "_netdev", "retry=0"]
    if storage.transport:
        extra.append(f"proto={storage.transport}")
    port = storage.port or (RDMA_PORT if storage.transport == "rdma" else None)
    if port:
        extra.append(f"port={port}")
    if storage.connections and (storage.transport == "tcp" or inputs.driver != "kernel"):
        extra.append(f"nconnect={storage.connections}")
    if _version(storage) == "3":
        extra.append("mountproto=tcp")
    if inputs.driver != "kernel":
        extra += _multipath(inputs, storage, servers)
    required = list(storage.options_required)
    if storage.local_cache:
        extra.append("fsc")
        required.append("fsc")
    return mount_of(
        named,
        what=export_of(server, storage.source),
        where=where,
        type="nfs",
        options=extra,
        required=tuple(dict.fromkeys(required)),
        requires=(CACHE_UNIT,) if storage.local_cache else (),
        transport=storage.transport,
        read_ahead_kib=storage.read_ahead_kib,
    )


def _multipath(inputs: Nfs, storage: Storage, servers: Sequence[str]) -> list[str]:
    options = []
    if (storage.mounts_per_client or 1) == 1 and len(servers) > 1:
        if inputs.remoteports == "dns":
            options.append("remoteports=dns")
        elif inputs.remoteports:
            options.append(f"remoteports={'~'.join(servers)}")
    if inputs.local_ports:
        options.append(f"localports={'~'.join(inputs.local_ports)}")
    if inputs.driver == "vastnfs":
        options += [name for name in ("spread_reads", "spread_writes") if getattr(inputs, name)]
    return options


def _option(options: Sequence[str], key: str) -> str:
    """Value of an option; of a repeated option the last, as in mount(8)."""
    values = [option.partition("=")[2] for option in options if option.split("=")[0] == key]
    return values[-1] if values else ""


def _version(mount: Storage | DesiredMount) -> str:
    return _option(mount.options, "vers") or _option(mount.options, "nfsvers")


def _trunks(storage: Storage) -> bool:
    """Whether the kernel's client recognises two addresses of one server (trunking), from NFS 4.1 on."""
    version = _version(storage)
    return version in ("4.1", "4.2") or (not version and storage.fstype == "nfs4")


def shared_transport(mounts: Sequence[DesiredMount]) -> str | None:
    """Why two of these mounts would silently share one connection, or None.

    A client of NFS 4.1 or newer recognises a known server at another address or transport and uses the first
    connection: the second mount then has proto=tcp although proto=rdma was requested. Mounts with different minor
    versions have different connections; so have mounts of NFS 3 over two transports (seen with kernel 6.12).
    """
    seen: dict[tuple[str, str], DesiredMount] = {}
    for mount in mounts:
        if mount.type != "nfs" or _version(mount) == "3":
            continue
        key = mount.what.rpartition(":")[0], _version(mount)
        other = seen.setdefault(key, mount)
        if _option(other.options, "proto") != _option(mount.options, "proto"):
            return (
                f"{other.name} and {mount.name}: NFS {key[1]} from one server over two transports would share the"
                " first connection; give one of them another minor version"
            )
    return None


def client(named: Sequence[NamedStorage], node: ClientNode) -> Client:
    """Files, modules and services for all NFS mounts of a node."""
    inputs = node.inputs.nfs
    storages = [member.storage for member in named]
    entries: list[Entry] = []
    units = [Unit("nfs-client.target")]
    ready: list[Step] = []
    modules = ["rpcrdma" if s.transport == "rdma" else "nfsv3" if _version(s) == "3" else "nfsv4" for s in storages]
    locks = [s for s in storages if _version(s) == "3" and not {"nolock", "local_lock=all"} & set(s.options)]
    if locks:
        # Locks of NFSv3 need a daemon on the client.
        units += [Unit("rpcbind.socket"), Unit("rpc-statd.service", enabled=None)]
    if inputs.statd_port or inputs.lockd_port:
        entries.append(
            RemoteFile("/etc/nfs.conf.d/rackproof-client.conf", _ports(inputs), restart=("rpc-statd.service",))
        )
    if any(s.local_cache for s in storages):
        entries += _cache_files(inputs.cache)
        units.append(Unit(CACHE_UNIT, proof=CACHE_ACTIVE))
        modules.append("cachefiles")
    options = _slots(inputs)
    if options:
        entries.append(RemoteFile("/etc/modprobe.d/rackproof-sunrpc.conf", _modprobe(inputs)))
        ready += [_slot_step(path, value) for path, value in options.items()]
    return Client(files=tuple(entries), modules=tuple(dict.fromkeys(modules)), units=tuple(units), ready=tuple(ready))


CACHE_ACTIVE = (
    "if [ -e /proc/fs/fscache/caches ]; then"
    " awk 'NR > 2 && $6 == \"A\" {found = 1} END {exit !found}' /proc/fs/fscache/caches;"
    " else find /proc/[0-9]*/fd -lname /dev/cachefiles -print -quit 2>/dev/null | grep -q .; fi"
)
"""Shell test: the kernel has an active cache. The table of caches came with Linux 5.17 (fs/fscache/proc.c); before, the
daemon keeps /dev/cachefiles open as long as its cache is bound, and ends when it cannot be (cachefilesd(8))."""


_CACHE_SERVICE = """\
# Managed by rackproof. Without its mount the cache would fill the root disk.
[Unit]
Description=Local cache of network file systems
RequiresMountsFor={}

[Service]
Type=exec
ExecStartPre=-/sbin/modprobe -q cachefiles
ExecStart=/usr/sbin/cachefilesd -n -f /etc/cachefilesd.conf
Restart=on-failure
RestartSec=5

[Install]
WantedBy=multi-user.target
"""


def _cache_files(cache: Cache) -> list[Entry]:
    limits = "".join(
        f"{name} {getattr(cache, name)}%\n" for name in ("brun", "bcull", "bstop", "frun", "fcull", "fstop")
    )
    return [
        RemoteDirectory(cache.directory, mode="700"),
        RemoteFile(
            CACHE_CONF,
            f"# Managed by rackproof.\ndir {cache.directory}\ntag {cache.tag}\n{limits}",
            restart=(CACHE_UNIT,),
        ),
        # Debian's package has only a SysV script.
        RemoteFile(f"/etc/systemd/system/{CACHE_UNIT}", _CACHE_SERVICE.format(cache.directory), restart=(CACHE_UNIT,)),
    ]


def _ports(inputs: Nfs) -> str:
    lines = ["# Managed by rackproof."]
    if inputs.statd_port:
        lines += ["[statd]", f"port={inputs.statd_port}"]
    if inputs.lockd_port:
        lines += ["[lockd]", f"port={inputs.lockd_port}", f"udp-port={inputs.lockd_port}"]
    return "\n".join(lines) + "\n"


def _slots(inputs: Nfs) -> dict[str, int]:
    values = {}
    if inputs.slot_table_entries:
        values["/proc/sys/sunrpc/tcp_max_slot_table_entries"] = inputs.slot_table_entries
    if inputs.rdma_slot_table_entries:
        values["/proc/sys/sunrpc/rdma_slot_table_entries"] = inputs.rdma_slot_table_entries
    return values


def _modprobe(inputs: Nfs) -> str:
    """modprobe.d file that sets the RPC slot tables: sysctl.d is applied before the modules are loaded."""
    lines = ["# Managed by rackproof."]
    if inputs.slot_table_entries:
        lines.append(f"options sunrpc tcp_max_slot_table_entries={inputs.slot_table_entries}")
    if inputs.rdma_slot_table_entries:
        # Not a module parameter: set after the module is loaded.
        value = inputs.rdma_slot_table_entries
        lines.append(
            "install rpcrdma /sbin/modprobe --ignore-install rpcrdma $CMDLINE_OPTS &&"
            f" echo {value} >/proc/sys/sunrpc/rdma_slot_table_entries"
        )
    return "\n".join(lines) + "\n"


def _slot_step(path: str, value: int) -> Step:
    module = "rpcrdma" if "rdma" in path else "sunrpc"
    return Step(
        name=path.rpartition("/")[2],
        holds=f'[ "$(cat {path})" = {value} ]',
        script=f"modprobe {module}\necho {value} >{path}",
        otherwise=f"{path} does not accept {value}; existing connections keep their slots until unmounted",
    )
