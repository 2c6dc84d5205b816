"""How the clients of parallel file systems reach their servers, and how many bytes they moved.

What a client tells of its bytes, and what that proves:

* Lustre: osc and mdc count the bytes of requests to the servers; reads from the client's cache are not among them
  (A. Dilger, lustre-discuss, April 2018). DNE and Data-on-MDT are covered by mdc.
* Ceph: the kernel client counts requests to OSDs and MDSs, in debugfs (Linux ``fs/ceph/debugfs.c``, ``metrics/size``
  and ``metrics/latency`` since 5.17, ``metrics`` before). It speaks TCP only (``net/ceph/messenger.c``).
* GPFS: ``mmpmon fs_io_s`` counts bytes of applications, also those that came from the page pool.
* BeeGFS, WEKA, DAOS: no counter on the client. The node's ports must have carried the bytes: see ``PortBytes``.
* NFS: the mount counts; the node's ports must have carried as many bytes, where all of them count: ``nfs_ports_in``.

GPFS tells only whether RDMA has started, not which connection uses it, and DAOS what its servers offer. Where the
architecture asks for RDMA the ports' RDMA counters prove the rest.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rackproof.core.architecture import Storage
from rackproof.parse.answer import STATUS, Answer
from rackproof.parse.errors import ParseError
from rackproof.parse.mounted import fsid_of
from rackproof.parse.parallel_fs import (
    parse_beegfs_nodes,
    parse_daos_providers,
    parse_gpfs_verbs,
    parse_lustre_imports,
    parse_weka_networks,
)
from rackproof.parse.sysfs import GREP_DONE, files_in, files_of
from rackproof.parse.text import excerpt, integer, matched

LNET: Final = {"o2ib": "rdma", "kfi": "rdma", "tcp": "tcp"}
DAOS_RDMA: Final = ("verbs", "dc_x", "dc_mlx5", "rc_x", "rc_mlx5", "ud_x", "cxi")
_LIMIT: Final = "timeout -k 2 15"

_TRANSPORT: Final = {
    # by fstype: the tool, and the command
    "lustre": ("lctl", f"{_LIMIT} lctl get_param osc.{{name}}-'*'.import mdc.{{name}}-'*'.import"),
    "beegfs": ("beegfs", "cat /proc/fs/beegfs/*/meta_nodes /proc/fs/beegfs/*/storage_nodes"),
    "gpfs": ("mmfsadm", f"{_LIMIT} /usr/lpp/mmfs/bin/mmfsadm test verbs status"),
    "wekafs": (
        "weka",
        f'{_LIMIT} weka cluster processes --filter "hostname=$(uname -n),role=FRONTEND" --output network --no-header',
    ),
    "fuse.daos": ("daos_agent", f"{_LIMIT} daos_agent dump-attachinfo"),
    "ceph": ("mount", "true"),
}
_UNKNOWN: Final = ("mount", "(echo its client does not tell the transport; exit 1)")
_COUNTERS: Final = {
    "lustre": ("lctl", f"{_LIMIT} lctl get_param osc.{{name}}-'*'.stats mdc.{{name}}-'*'.stats"),
    "ceph": (
        "debugfs",
        "grep -sH '' -d skip /sys/kernel/debug/ceph/*/metrics /sys/kernel/debug/ceph/*/metrics/latency"
        " /sys/kernel/debug/ceph/*/metrics/size",
    ),
    "gpfs": ("mmpmon", f"echo fs_io_s | {_LIMIT} /usr/lpp/mmfs/bin/mmpmon -p"),
}
PORTS: Final = (
    "for p in /sys/class/net/*/device; do p=${p%/device}; grep -sH '' \"$p\"/statistics/[rt]x_bytes; n=${p##*/};"
    " ethtool -S \"$n\" 2>/dev/null | sed -n 's/^ *\\([rt]x_bytes_phy\\): /ethtool\\/'\"$n\"'\\/\\1:/p'; done;"
    " set -- /sys/class/infiniband/*/ports/*/counters;"
    f' for c; do grep -sH "" "$c/port_xmit_data" "$c/port_rcv_data"; done{STATUS}'
)
"""Bytes of all ports of hardware: as the kernel counts them, on the wire, and as RDMA."""


class Moved(NamedTuple):
    """Bytes since the client began."""

    read: int
    written: int
    reads: int | None = None
    """Number of requests that read, where the client counts them."""
    of_names: int | None = None
    """Number of requests to the servers of names, likewise."""


def transport_command(storage: Storage) -> str:
    """Command that tells the transport; it fails for a file system whose client does not."""
    return _command(_TRANSPORT.get(storage.fstype, _UNKNOWN)[1], storage)


def bytes_command(storage: Storage) -> str | None:
    """Command that reads the client's counters of bytes; None where it has none."""
    known = _COUNTERS.get(storage.fstype)
    return _command(known[1], storage) if known else None


def _command(text: str, storage: Storage) -> str:
    return f"{text.replace('{name}', shlex.quote(storage.file_system))} 2>&1{STATUS}"


def transports_in(storage: Storage, answer: Answer) -> set[str]:
    """Transports in use, ``rdma`` or ``tcp``, from an answer to ``transport_command``; empty before the first request.

    WEKA has more of them: ``dpdk``, ``udp``. Raises ParseError.
    """
    tool, _ = _TRANSPORT.get(storage.fstype, _UNKNOWN)
    if answer.status != 0:
        raise ParseError(tool, answer.failure)
    if storage.fstype == "lustre":
        return {LNET.get(i.network, i.network) for i in parse_lustre_imports(answer.body) if i.network}
    if storage.fstype == "beegfs":
        nodes = parse_beegfs_nodes(answer.body)
        return {name.lower() for node in nodes for name, count in node.connections.items() if count}
    if storage.fstype == "gpfs":
        return {"rdma" if parse_gpfs_verbs(answer.body) else "tcp"}
    if storage.fstype == "wekafs":
        return {"rdma" if name.endswith("RDMA") else name.lower() for name in parse_weka_networks(answer.body)}
    if storage.fstype == "ceph":
        return {"tcp"}
    providers = parse_daos_providers(answer.body)
    return {"rdma" if any(word in name for word in DAOS_RDMA) else "tcp" for name in providers}


def transport_faults(storage: Storage, used: set[str], idle: bool = False) -> list[str]:
    """Line on other transports than the architecture's; ``idle``: there may be none before the first request."""
    if used == {storage.transport} or (idle and not used):
        return []
    actual = ", ".join(sorted(used)) or "no connection to a server"
    return [f"transport in use: expected {storage.transport}, actual {actual}"]


def bytes_in(storage: Storage, answer: Answer, source: str = "") -> Moved:
    """Bytes of this file system, from an answer to ``bytes_command``. ``source`` is that of its mount.

    Raises ParseError.
    """
    tool, _ = _COUNTERS[storage.fstype]
    if storage.fstype == "ceph":
        return _ceph(tool, answer, source)
    if answer.status != 0:
        raise ParseError(tool, answer.failure)
    return _lustre(tool, answer.lines) if storage.fstype == "lustre" else _gpfs(tool, answer.lines, storage.source)


_TARGET: Final = re.compile(r"(?:osc|mdc)\.\S+\.stats=")
_COUNTER: Final = re.compile(r"(\w+) +(\d+) samples \[\w+\](?: (\d+) (\d+) (\d+)(?: \d+)?)?")
_TIME: Final = re.compile(r"(?:snapshot|start|elapsed)_time\s.*")


def _lustre(tool: str, lines: Iterable[str]) -> Moved:
    """A counter that no request has used is not printed."""
    targets, moved = 0, {"read_bytes": 0, "write_bytes": 0}
    for line in lines:
        if _TARGET.fullmatch(line):
            targets += 1
        elif match := _COUNTER.fullmatch(line.strip()):
            if match[1] in moved:
                if match[5] is None:
                    raise ParseError(tool, f"expected a sum of bytes, got {excerpt(line)}")
                moved[match[1]] += int(match[5])
        elif line.strip() and not _TIME.fullmatch(line):
            raise ParseError(tool, f"expected a counter, got {excerpt(line)}")
    if not targets:
        raise ParseError(tool, "lists no target")
    return Moved(moved["read_bytes"], moved["write_bytes"])


def _ceph(tool: str, answer: Answer, source: str) -> Moved:
    """Bytes of all clients of the cluster: mounts of its other file systems or folders have a client each, and nothing
    tells which is whose. ``source``: ``user@fsid.name=/``, or ``host:/`` of an old mount."""
    if answer.status not in GREP_DONE:
        raise ParseError(tool, answer.failure)
    clients = _clients_of_ceph(tool, answer)
    fsid = fsid_of(source)
    own = {name: lines for name, lines in clients.items() if not fsid or name.partition(".")[0] == fsid}
    if (clusters := len({name.partition(".")[0] for name in own})) != 1:
        raise ParseError(tool, f"expected the counters of one cluster, actual {clusters}")
    moved = [_ceph_client(tool, lines) for lines in own.values()]
    of_names = [one.of_names for one in moved if one.of_names is not None]
    return Moved(
        sum(one.read for one in moved),
        sum(one.written for one in moved),
        sum(one.reads or 0 for one in moved),
        sum(of_names) if len(of_names) == len(moved) else None,
    )


def _ceph_client(tool: str, lines: Sequence[str]) -> Moved:
    heads = [at for at, line in enumerate(lines) if line.startswith("item ") and line.endswith("total_sz(bytes)")]
    rows = [line.split() for line in lines[heads[0] + 2 :]] if heads else []
    by_name = {row[0]: row for row in rows if len(row) == 6}
    if not {"read", "write"} <= by_name.keys():
        raise ParseError(tool, "expected bytes that were read and written")
    read, written = (integer(tool, "bytes", by_name[name][5]) for name in ("read", "write"))
    of_names = [row.split()[1] for row in lines[: heads[0]] if row.startswith("metadata ")]
    return Moved(
        read,
        written,
        integer(tool, "requests", by_name["read"][1]),
        integer(tool, "requests of names", of_names[0]) if len(of_names) == 1 else None,
    )


def _clients_of_ceph(tool: str, answer: Answer) -> dict[str, tuple[str, ...]]:
    """Lines of each client of the kernel by its name, ``fsid.client4711``."""
    clients: dict[str, tuple[str, ...]] = {}
    files = files_of(answer.body) if answer.body else {}
    for path, lines in files.items():
        match = matched(tool, r"/sys/kernel/debug/ceph/([^/]+)/metrics(?:/size|/latency)?", path, "counters of Ceph")
        clients[match[1]] = clients.get(match[1], ()) + tuple(lines)
    return clients


def fsids_in(storage: Storage, answer: Answer | None) -> frozenset[str]:
    """FSIDs of the clusters of Ceph whose file systems are mounted, from an answer to ``bytes_command``; empty where it
    does not tell. Raises ParseError."""
    if storage.fstype != "ceph" or answer is None or answer.status not in GREP_DONE:
        return frozenset()
    return frozenset(name.partition(".")[0] for name in _clients_of_ceph(_COUNTERS["ceph"][0], answer))


def _gpfs(tool: str, lines: Iterable[str], name: str) -> Moved:
    counters = []
    for line in lines:
        words = line.split()
        values = dict(zip(words[1::2], words[2::2], strict=False))
        if words[:1] == ["_fs_io_s_"] and values.get("_fs_") == name and values.get("_rc_") == "0":
            counters.append([integer(tool, "bytes", values.get(key, "")) for key in ("_br_", "_bw_")])
    if len(counters) != 1:
        raise ParseError(tool, f"expected the counters of {name} once, actual {len(counters)} times")
    return Moved(*counters[0])


class PortBytes(NamedTuple):
    """Sums over all ports of a node. None where none of them counts it."""

    kernel: Moved
    """By the network interfaces; adapters that do RDMA or DPDK do not count that here."""
    wire: Moved | None
    """By the adapters (mlx5's ``_phy``): everything."""
    rdma: Moved | None
    """By the RDMA devices; software RDMA counts nothing."""
    counters: frozenset[str] = frozenset()
    """Paths of all counters."""

    def check_since(self, earlier: PortBytes) -> None:
        """Raises ParseError for a counter that an earlier reading lacks: a port that comes back from a container brings
        all that it has moved there."""
        if new := sorted(self.counters - earlier.counters):
            raise ParseError("port counters", f"{new[0]} was not there before the run")


_WORD: Final = 4
"""Bytes in which ``port_xmit_data`` and ``port_rcv_data`` count."""


def port_bytes_in(answer: Answer) -> PortBytes:
    """Answer to ``PORTS``. Raises ParseError."""
    tool = "port counters"
    sums: dict[str, int] = {}
    counters = set()
    for path, lines in files_of(answer.body).items():
        name = path.rpartition("/")[2]
        if lines[0].strip().isdecimal():  # not the N/A of a port without this counter
            sums[name] = sums.get(name, 0) + int(lines[0])
            counters.add(path)
    if "rx_bytes" not in sums or "tx_bytes" not in sums:
        raise ParseError(tool, "the node shows no port of hardware")

    def moved(received: str, sent: str, unit: int = 1) -> Moved | None:
        return Moved(sums[received] * unit, sums[sent] * unit) if {received, sent} <= sums.keys() else None

    return PortBytes(
        Moved(sums["rx_bytes"], sums["tx_bytes"]),
        moved("rx_bytes_phy", "tx_bytes_phy"),
        moved("port_rcv_data", "port_xmit_data", _WORD),
        frozenset(counters),
    )


_INTERFACES: Final = "/sys/class/net/lo/statistics/[rt]x_bytes /sys/class/net/*/device/net/*/statistics/[rt]x_bytes"
_BONDS: Final = "/sys/class/net/bonding_masters"
_OF_PORT: Final = "/sys/class/infiniband/*/device/infiniband/*/ports/*"
_OF_RDMA: Final = f"{_BONDS} {_OF_PORT}/link_layer {_OF_PORT}/counters/port_rcv_data {_OF_PORT}/counters/port_xmit_data"
_NFS_PORT: Final = re.compile(
    r"/sys/class/.+?/(lo|device/net/[^/]+|device/infiniband/[^/]+/ports/\d+)/(?:statistics/|counters/)?(\w+)"
)


def nfs_ports_command(storage: Storage) -> str:
    """Command that reads the bytes of every port which could carry those of an NFS mount: one process, as readings in a
    ramp follow each other closely.

    The route to the server names one interface only, and answers may come in by another one (several routes, rules,
    two ports in one network). A server on this node uses ``lo``. RDMA in software goes through the interfaces.
    """
    return f"grep -sH '' {_INTERFACES}{f' {_OF_RDMA}' if storage.transport == 'rdma' else ''}{STATUS}"


def nfs_ports_in(answer: Answer) -> dict[str, Moved] | None:
    """Bytes by port, from an answer to ``nfs_ports_command``; None where some of them are not known.

    That is so without a port of hardware (in a container), with an RDMA device that does not count, and with RDMA
    beside a bond, whose device may count those of one port only. Raises ParseError.
    """
    counts: dict[str, dict[str, int]] = {}
    files = files_in(answer)
    for path, lines in files.items():
        if path != _BONDS:
            match = matched("port counters", _NFS_PORT, path, "a counter of a port")
            own = counts.setdefault(match[1], {})
            own |= {match[2]: int(lines[0])} if lines[0].strip().isdecimal() else {}
    moved = {port: _moved_by(own) for port, own in counts.items()}
    known = {port: one for port, one in moved.items() if one is not None}
    return known if _BONDS not in files and len(known) == len(moved) and known.keys() - {"lo"} else None


def _moved_by(counts: dict[str, int]) -> Moved | None:
    for received, sent, unit in (("rx_bytes", "tx_bytes", 1), ("port_rcv_data", "port_xmit_data", _WORD)):
        if {received, sent} <= counts.keys():
            return Moved(counts[received] * unit, counts[sent] * unit)
    return None
