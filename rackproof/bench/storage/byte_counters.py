"""Bytes in counters other than fio's during a run: of mounts, client, device and ports."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from rackproof.bench.storage.proof import mounts_of, nfs_of
from rackproof.bench.storage.runs import RECENT, Run, State
from rackproof.bench.storage.server_counters import Served
from rackproof.core.architecture import Storage
from rackproof.core.judging.bars import number_text
from rackproof.parse import FromMemory, ParseError
from rackproof.parse.client_state import with_counters
from rackproof.parse.client_transfer import Moved, bytes_in, nfs_ports_in, port_bytes_in
from rackproof.parse.mounts import NfsMount

UNTOLD = ("gpfs", "fuse.daos")
"""File systems whose clients show which transports are available, not which is used: ``parse.client_transfer``."""
COUNTED = 0.97
"""Minimum share of fio's bytes in a counter: read-ahead and other programs only add to it."""
LATE_S = 3.0
"""Seconds by which a port may tell its bytes later: adapters hand their counts over about once a second (bnxt_en, mlx5
that switches)."""
_SIZES = ((10**9, "GB"), (10**6, "MB"), (1, "B"))
_INTERFACES: Final = "the node's ports"


class Counted(NamedTuple):
    """Counted bytes, by counter."""

    exact: int | None
    """Count of the mount, client or device, without headers; None without such a counter."""
    others: Mapping[str, int]
    """Counts of all counters by name."""
    unread: str = ""
    """Why a counter could not be read."""
    writes: bool = False
    memory: str = "the client's memory"
    """Where bytes are that no counter has."""
    late: Mapping[str, int] = {}
    """Counts beside those of the mount, of counters that may tell them later."""

    def check(self, moved: int, tool: str = "fio", who: str = "", seconds: float = 0.0) -> None:
        """Raises FromMemory, whose reason begins with ``who``, if a counter has less than the bytes that ``tool``
        reports; ParseError for a counter that went back. ``seconds``: in which they moved evenly; without it the
        counters that may be late prove nothing."""
        told = {name: (count, told_by_then(seconds)) for name, count in self.late.items()}
        for counter, (count, share) in ({name: (count, 1.0) for name, count in self.others.items()} | told).items():
            if count < 0:
                raise ParseError(tool, f"{who}{counter} counted {-count} B less after the run than before")
            if count < moved * COUNTED * share:
                missing = f"{100 * (1 - count / moved):.0f} % of {size_text(moved)} that it"
                way = f"wrote stayed in {self.memory}" if self.writes else f"read came from {self.memory}"
                raise FromMemory(tool, f"{who}{missing} {way}: {counter} counted {size_text(count, moved)}")

    @staticmethod
    def together(counts: Collection[Counted]) -> Counted:
        """Sums over several clients, of the counters that all of them have."""
        exact = [one.exact for one in counts if one.exact is not None]
        return Counted(
            sum(exact) if len(exact) == len(counts) else None,
            _summed([one.others for one in counts]),
            next((one.unread for one in counts if one.unread), ""),
            any(one.writes for one in counts),
            next(one.memory for one in counts),
            _summed([one.late for one in counts]),
        )

    @property
    def text(self) -> str:
        """Sources of the counts, for the reader of a report."""
        counted = f"by {' and '.join([*self.others, *self.late])}" if self.others or self.late else ""
        not_proven = f"not proven: {self.unread or 'nothing counts them'}" if self.exact is None else ""
        return "; ".join(filter(None, (counted, not_proven)))


def _summed(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    names = set.intersection(*map(set, counts))
    return {name: sum(one[name] for one in counts) for name in sorted(names)}


def told_by_then(seconds: float) -> float:
    """Share of the bytes which moved evenly in so many seconds that a port has told at their end."""
    return max(0.0, 1 - LATE_S / seconds) if seconds else 0.0


_OLD_FIO: Final = "fio before 3.36 does not tell: install 3.36 or newer, or measure without a ramp (ramp_s: 0)"


def size_text(count: int, of: int | None = None) -> str:
    """``1.2 GB``, in the unit of ``of``, with enough digits to differ from it."""
    whole = count if of is None else of
    unit, name = next((unit, name) for unit, name in _SIZES if whole >= unit)
    return f"{number_text(count / unit, None if of is None else of / unit)} {name}"


def check_sent(run: Run, storage: Storage) -> None:
    """The servers' ports sent at least what the clients read after a ramp, where the servers were asked; their adapters
    may tell it late, too.

    Raises FromMemory. DPDK, which WEKA uses, passes by the counters of the kernel and of RDMA devices.
    """
    check_ports(run.served, run.fio_bytes, storage, "fio", told_by_then(run.read_s))


def check_ports(served: Served | str | None, read: int, storage: Storage, tool: str, told: float) -> None:
    """As ``check_sent``; all clients read so many bytes, by ``tool``. ``told``: see ``told_by_then``."""
    if not isinstance(served, Served) or storage.fstype == "wekafs" or served.ports >= COUNTED * told * read:
        return
    if may_use_rdma(storage) and not served.rdma:  # the interfaces do not see it, and nothing else counts it
        return
    share = f"{100 * (1 - served.ports / read):.0f} % of {size_text(read)} that the clients read"
    sent = f"the servers' ports sent {size_text(served.ports, read)}"
    raise FromMemory(tool, f"{share} came from their memory: {sent}")


def may_use_rdma(storage: Storage) -> bool:
    """Whether the architecture demands RDMA, or leaves open whether a file system uses it that can."""
    left_open = storage.transport is None and storage.class_ == "parallel" and storage.fstype != "ceph"
    return left_open or storage.transport == "rdma"


def counted_in_run(run: Run, node: str, storage: Storage, before: State, after: State) -> Counted:
    """Counts in the time that fio counts; from the start of a ramp where nothing tells those at its end.

    A reading that is earlier than the ramp's end only adds bytes. Raises ParseError for unreadable ones.
    """
    writes = run.launch.jobs[node]["rw"] == "write"
    if not run.in_ramp:
        counted = counted_bytes(storage, before, after, writes=writes)
        return counted if "ramp_time" not in run.launch.jobs[node] else counted._replace(exact=None)
    reading = run.at_ramp_end(node)
    if reading is None:
        counted = counted_bytes(storage, before, after, writes=writes)
        why = "whose end has no reading" if run.tells_start(node) else f"whose end {_OLD_FIO}"
        return counted._replace(exact=None, unread=f"they include the ramp, {why}")
    old = replace(before, client=with_counters(before.client, reading[0].stdout))
    if len(nfs_of(storage, old)) < len(nfs_of(storage, before)):
        raise ParseError("mountstats", f"in the ramp: no statistics of {storage.mountpoint}")
    counted = counted_bytes(storage, old, after, writes=writes)
    if reading[1] > RECENT:
        share = f"{100 * reading[1]:.0f} %"
        return counted._replace(exact=None, unread=f"they include the end of the ramp, {share} of the counted time")
    return counted


def counted_bytes(storage: Storage, before: State, after: State, *, writes: bool) -> Counted:
    """Counts between two states of a client."""
    counted = _counted(storage, before, after, writes)
    caches = "the client's memory or its cache on drives" if storage.local_cache else counted.memory
    return counted._replace(writes=writes, memory=caches)


def _counted(storage: Storage, before: State, after: State, writes: bool) -> Counted:
    if storage.class_ == "local":
        pair = [s.client.device_written_bytes if writes else s.client.device_read_bytes for s in (before, after)]
        return _exactly("the device", None if pair[0] is None or pair[1] is None else pair[1] - pair[0])
    if storage.class_ == "nfs":
        counted = _exactly("the mount", _by_mounts(storage, before, after, writes))
        used = {transport.protocol for mount in nfs_of(storage, after) for transport in mount.transports}
        unasked = "rdma" in used and storage.transport != "rdma"  # its devices
        late = {} if writes or unasked else _by_nfs_ports(before, after)  # a write that is held back ends in a burst
        return counted._replace(late=late)
    exact, unread = None, ""
    try:
        exact = _by_client(storage, before, after, writes)
    except ParseError as error:
        unread = str(error)
    ports = carried_bytes(storage, before, after, writes, alone=exact is None)
    if exact is None:
        return Counted(None, ports, unread)
    if storage.transport == "rdma":  # not every adapter counts it (bnxt_re, irdma), and the interfaces do not see it
        ports.pop(_INTERFACES, None)
    return Counted(exact, {"the client": exact} | ports)


def _exactly(counter: str, count: int | None) -> Counted:
    return Counted(count, {} if count is None else {counter: count})


def _by_mounts(storage: Storage, before: State, after: State, writes: bool) -> int:
    """Count of the mounts; those that share a superblock share its counters. Raises ParseError without it."""
    superblocks = {mount.mountpoint: mount.device for mount in mounts_of(storage, before) if mount is not None}
    total, counted = 0, set()
    for old, new in zip(nfs_of(storage, before), nfs_of(storage, after), strict=True):
        if superblocks.get(old.mountpoint) in counted:
            continue
        counted.add(superblocks.get(old.mountpoint))
        pair = [m.server_written_bytes if writes else m.server_read_bytes for m in (old, new)]
        if pair[0] is None or pair[1] is None:
            raise ParseError("mountstats", f"{old.mountpoint} has no count of bytes")
        total += pair[1] - pair[0]
    return total


def _by_nfs_ports(before: State, after: State) -> dict[str, int]:
    """Bytes that all ports of the node received, with headers and those of others; empty where not all of them tell."""
    answers = (before.client.ports, after.client.ports)
    old, new = (nfs_ports_in(answer) if answer is not None else None for answer in answers)
    if old is None or new is None or old.keys() != new.keys():
        return {}
    growths = [_growth(old[port], new[port], writes=False) for port in old]
    return {_INTERFACES: sum(growths)} if min(growths) >= 0 else {}  # a port that began again tells nothing


def _by_client(storage: Storage, before: State, after: State, writes: bool) -> int | None:
    """Count of a parallel file system's client; None without counters. Raises ParseError for useless ones.

    CephFS of Linux 6.12 (Debian 13) counts buffered reads as requests of 0 B, so that the ports alone tell their bytes.
    """
    old, new = before.client.counters, after.client.counters
    if old is None or new is None:
        return None
    source = next((mount.source for mount in mounts_of(storage, before) if mount is not None), "")
    first, last = (bytes_in(storage, answer, source) for answer in (old, new))
    requests = (last.reads or 0) - (first.reads or 0)
    if not writes and requests > 0 and last.read == first.read:
        raise ParseError(storage.fstype, f"the client counted {requests} reads as 0 B")
    return _growth(first, last, writes)


def counted_requests(storage: Storage, before: State, after: State, operations: Sequence[str]) -> int | None:
    """Requests of these NFS operations, or all requests to Ceph's metadata servers; None where nothing counts them.

    A mount with pNFS does not count the reads that go to data servers. Raises ParseError.
    """
    if storage.class_ == "nfs":
        if "READ" in operations and any(_calls(mount, "LAYOUTGET") for mount in nfs_of(storage, after)):
            return None
        pairs = zip(nfs_of(storage, before), nfs_of(storage, after), strict=True)
        superblocks = {mount.mountpoint: mount.device for mount in mounts_of(storage, before) if mount is not None}
        growth = {
            superblocks.get(old.mountpoint): sum(_calls(new, name) - _calls(old, name) for name in operations)
            for old, new in pairs
        }
        return sum(growth.values())
    old_answer, new_answer = before.client.counters, after.client.counters
    if storage.fstype != "ceph" or old_answer is None or new_answer is None:
        return None
    source = next((mount.source for mount in mounts_of(storage, before) if mount is not None), "")
    first, last = (bytes_in(storage, answer, source).of_names for answer in (old_answer, new_answer))
    return None if first is None or last is None else last - first


def _calls(mount: NfsMount, operation: str) -> int:
    counted = mount.operations.get(operation)
    return counted.calls if counted else 0


def carried_bytes(storage: Storage, before: State, after: State, writes: bool, *, alone: bool) -> dict[str, int]:
    """Traffic of the node's ports by counter, with headers and other traffic; empty without a usable counter.

    ``alone``: nothing else counts, so that a port which appears in the run leaves no number.
    Only RDMA devices count RDMA; only adapters with counters of the wire count DPDK, which WEKA uses. Raises
    ParseError, also where these counters are the only proof of a required RDMA, and there are none.
    """
    answers = (before.client.ports, after.client.ports)
    of_ports = storage.transport == "rdma" and storage.fstype in UNTOLD
    if answers[0] is None or answers[1] is None:
        if of_ports:
            raise _no_proof(storage, "the node's ports carry a server's bytes, too")
        return {}
    old, new = (port_bytes_in(answer) for answer in answers if answer is not None)
    try:
        new.check_since(old)
    except ParseError:
        if alone or of_ports:
            raise
        return {}
    kernel = _grown(_INTERFACES, old.kernel, new.kernel, writes)
    if storage.fstype == "wekafs":
        return _grown("the node's adapters", old.wire, new.wire, writes)
    rdma = _grown("the node's RDMA devices", old.rdma, new.rdma, writes)
    if of_ports and not rdma:
        raise _no_proof(storage, "no RDMA device counts bytes")
    if storage.transport is None:
        return max(kernel, rdma, key=lambda counts: sum(counts.values()))
    return rdma or kernel if storage.transport == "rdma" else kernel


def _no_proof(storage: Storage, why: str) -> ParseError:
    return ParseError(
        "port counters", f"the client of {storage.fstype} does not report which transport it uses, and {why}"
    )


def _grown(counter: str, old: Moved | None, new: Moved | None, writes: bool) -> dict[str, int]:
    return {} if old is None or new is None else {counter: _growth(old, new, writes)}


def _growth(old: Moved, new: Moved, writes: bool) -> int:
    return new.written - old.written if writes else new.read - old.read
