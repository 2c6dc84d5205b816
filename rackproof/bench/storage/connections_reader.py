"""Ratio of reads over several connections to reads over one, over RDMA to over TCP, or over several mounts to over one,
from pairs of fio's runs on mounts of their own.

Each run has all proofs of fio's runs. In addition its mounts have the transport and as many connections as asked for,
all of which carried requests, and each mount has its own. No other mount of the client has them; where several mounts
are compared with one, another mount may have them, if it did nothing with them in the run: Linux gives mounts of one
address in NFS 3 the same connections.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rackproof.bench.reading import Reading
from rackproof.bench.storage.byte_counters import check_sent
from rackproof.bench.storage.commands import AFTER, BEFORE
from rackproof.bench.storage.conditions import conditions_of
from rackproof.bench.storage.proof import nfs_of
from rackproof.bench.storage.result import proven
from rackproof.bench.storage.runs import Run, State
from rackproof.bench.user import OWN_MOUNT
from rackproof.core.architecture import Architecture, Storage
from rackproof.core.evidence import Measurement
from rackproof.core.wording import counted
from rackproof.parse import ParseError
from rackproof.parse.mounted import NFS_PORTS
from rackproof.parse.mounts import Mount, NfsMount, Transport, find_mount

SPEEDUP: Final = "storage.connections_speedup"
RDMA_GAIN: Final = "storage.rdma_over_tcp"
MOUNTS_GAIN: Final = "storage.mounts_speedup"
OF_OWN_MOUNTS: Final = (SPEEDUP, RDMA_GAIN, MOUNTS_GAIN)
VERSIONS: Final = ("4.2", "4.1", "3")
"""Versions of NFS, in the order in which they are tried. Linux gives several connections to these."""
APART: Final = "3"
"""The version of NFS in which mounts of several addresses of one server have connections of their own: from 4.1 on
Linux sees that it is one server and makes one connection of them."""
_IDLE, _SENDS = 4, 5
"""Places of a connection's counters in ``xprt:`` (Linux, ``xs_tcp_print_stats`` and ``xprt_rdma_print_stats``)."""
_COUNT: Final = re.compile(r"-(\d{1,3})$", re.ASCII)
_LEAST_SHARE: Final = 0.1
"""Least requests of a connection over the mean of all: the kernel's client takes them in turn."""
_IDLE_SHARE: Final = 0.01
"""Most requests of another mount on the same connections over those of the run: someone may look at it (statfs)."""


@dataclass(frozen=True, slots=True)
class Leg:
    """One mount, or several, of the two that are compared."""

    job: str
    """Name of fio's job."""
    storage: Storage
    """The declared storage with the run's transport and port."""
    count: int
    """Number of connections of each mount."""
    companion: str
    mounts: int = 1
    """One mount for each server address."""
    apart: bool = False
    """Whether the mounts use NFS 3, where all mounts of one address share connections, also declared ones."""

    @property
    def text(self) -> str:
        connections, mounts = counted(self.count, "connection", "connections"), counted(self.mounts, "mount", "mounts")
        return f"{mounts if self.apart else connections} of {protocol_of(self.storage).upper()}"

    def own_mounts(self, version: str) -> Storage:
        """The storage as the benchmark's own mounts must show it."""
        return self.storage.model_copy(
            update={
                "mountpoint": OWN_MOUNT, "mounts_per_client": self.mounts,
                "fstype": "nfs" if version == "3" else "nfs4",
                "transport": protocol_of(self.storage), "connections": self.count, "local_cache": None,
                "options_required": ("rw", f"vers={version}"), "options_forbidden": (),
            }
        )  # fmt: skip


def legs(architecture: Architecture, name: str, metric: str, count: int) -> tuple[Leg, Leg]:
    """The mounts of one pair of runs: the one that the other is compared with, then the other. ``count``: of
    connections, or of several mounts."""
    storage = architecture.storage[name]
    if metric == MOUNTS_GAIN:
        return (
            Leg(f"{name}-mounts-1", storage, 1, "one_mount_mb_per_s", apart=True),
            Leg(f"{name}-mounts-{count}", storage, 1, "several_mounts_mb_per_s", mounts=count, apart=True),
        )
    if metric == SPEEDUP:
        return (
            Leg(f"{name}-connections-1", storage, 1, "one_connection_mb_per_s"),
            Leg(f"{name}-connections-{count}", storage, count, "several_connections_mb_per_s"),
        )
    tcp = storage.model_copy(update={"transport": "tcp", "port": tcp_port(architecture, storage)})
    rdma = storage.model_copy(update={"port": storage.port or NFS_PORTS["rdma"]})
    return (
        Leg(f"{name}-over-tcp-{count}", tcp, count, "tcp_mb_per_s"),
        Leg(f"{name}-over-rdma-1", rdma, 1, "rdma_mb_per_s"),
    )


def tcp_port(architecture: Architecture, storage: Storage) -> int:
    """Port of the same server and export over TCP, as another storage declares it, otherwise NFS's own."""
    place = (storage.class_, storage.source, storage.server_role, storage.servers)
    others = (
        other.port
        for other in architecture.storage.values()
        if (other.class_, other.source, other.server_role, other.servers) == place and not other.over_rdma
    )
    return next((port for port in others if port is not None), NFS_PORTS["tcp"])


def version_of(mount: Mount) -> str:
    """Version of NFS of a mount."""
    version = mount.option("vers") or ""
    return "4.0" if version == "4" else version


def protocol_of(storage: Storage) -> str:
    """Transport of NFS, as its option ``proto`` names it."""
    return storage.transport or "tcp"


def read_connections(every: Sequence[Run], measurement: Measurement, architecture: Architecture) -> Reading:
    """One sample per pair of runs. Raises ParseError."""
    (node,), name, metric = measurement.members, measurement.labels["storage"], measurement.metric
    runs = [run for run in every if node in run.launch.jobs]
    jobs = [run.launch.jobs[node]["name"] for run in runs]
    count = max((int(match[1]) for job in jobs if (match := _COUNT.search(job))), default=0)
    pair = legs(architecture, name, metric, count)
    first, second = pair
    if not runs or first.job == second.job or jobs != [leg.job for leg in pair] * (len(runs) // 2):
        raise ParseError("fio", f"expected pairs of {first.job} and {second.job}, actual {', '.join(jobs) or 'none'}")
    rates: dict[str, list[float]] = {leg.companion: [] for leg in pair}
    versions = set()
    for run, leg in zip(runs, pair * (len(runs) // 2), strict=True):
        version = _version(run, node, OWN_MOUNT if leg.mounts == 1 else f"{OWN_MOUNT}1")
        versions.add(version)
        rates[leg.companion].append(_rate(run, node, measurement, leg.own_mounts(version)))
    if len(versions) > 1:
        raise ParseError("mount", f"expected one version of NFS, actual {', '.join(sorted(versions))}")
    own = second.own_mounts(versions.pop())
    conditions = _conditions(runs, node, own, count)
    conditions["connections"] = count if metric != MOUNTS_GAIN else second.count
    if metric == RDMA_GAIN:
        conditions["tcp_port"] = first.storage.port
    if metric == MOUNTS_GAIN:
        conditions |= {"mounts": second.mounts, "mounts_read_bytes": _bytes_by_mount(runs[1::2], node, own)}
    samples = [after / before for before, after in zip(*rates.values(), strict=True)]
    companions = {companion: tuple(values) for companion, values in rates.items()}
    return Reading(tuple(samples), tuple(run.launch.answer for run in runs), conditions, companions)


def _version(run: Run, node: str, point: str) -> str:
    mount = find_mount(run.state(node, BEFORE).client.mounts, point)
    if mount is None:
        raise ParseError("mount", f"before the run: {point} is not mounted")
    return version_of(mount)


def _rate(run: Run, node: str, measurement: Measurement, storage: Storage) -> float:
    """MB/s of a run, proven."""
    if not run.launch.answer.ok:
        raise ParseError("fio", run.launch.answer.why)
    job = run.launch.jobs[node]
    asked = {"rw": "read", "bs": measurement.labels["block_bytes"], "time_based": "1"}
    if set(run.launch.jobs) != {node} or any(job.get(key) != value for key, value in asked.items()):
        raise ParseError("fio", f"expected {asked} on {node} alone, actual {job['name']}")
    alone = measurement.metric != MOUNTS_GAIN
    _check_connections(run.state(node, BEFORE), run.state(node, AFTER), storage, alone=alone)
    rate = proven(run, node, storage).moved.bandwidth_bytes_per_s / 1e6
    check_sent(run, storage)
    if not rate:
        raise ParseError("fio", "it read nothing")
    return rate


def _check_connections(before: State, after: State, storage: Storage, *, alone: bool) -> None:
    """Every connection carried its share of the run, and each mount of the step has its own. No other mount has one of
    them, or, unless they must be ``alone``, none did anything with it in the run. Raises ParseError.

    The kernel shows no number of a connection of NFS 4.1; the counters of one that two mounts share are the same.
    """
    sent: list[int] = []
    own: set[tuple[int, ...]] = set()
    for point in storage.mountpoints:
        old, new = (_connections(state, when, point) for state, when in ((before, BEFORE), (after, AFTER)))
        if len(old) != len(new):
            raise ParseError("mountstats", f"{point} had {len(old)} connections before the run, {len(new)} after it")
        sent += [late.counters[_SENDS] - early.counters[_SENDS] for early, late in zip(old, new, strict=True)]
        counters = {_counters(transport) for transport in new}
        if own & counters:
            raise ParseError("mountstats", f"{point} has a connection of another mount of the step")
        own |= counters
    if not sent or min(sent) < _LEAST_SHARE * sum(sent) / len(sent) or not min(sent):
        raise ParseError("mountstats", f"its connections carried {', '.join(map(str, sent)) or 'no'} requests")
    for mount in after.client.nfs:
        if mount.mountpoint in storage.mountpoints or not own & {_counters(one) for one in mount.transports}:
            continue
        if alone:
            raise ParseError("mountstats", f"{mount.mountpoint} shares its connections")
        earlier = next((one for one in before.client.nfs if one.mountpoint == mount.mountpoint), None)
        if earlier is None or _calls(mount) - _calls(earlier) > _IDLE_SHARE * sum(sent):
            raise ParseError("mountstats", f"{mount.mountpoint} used its connections during the run, too")


def _calls(mount: NfsMount) -> int:
    return sum(operation.calls for operation in mount.operations.values())


def _connections(state: State, when: str, point: str) -> tuple[Transport, ...]:
    mounts = [mount for mount in state.client.nfs if mount.mountpoint == point]
    if len(mounts) != 1 or any(len(transport.counters) <= _SENDS for transport in mounts[0].transports):
        raise ParseError("mountstats", f"{when} the run: expected the connections of {point}")
    return mounts[0].transports


def _bytes_by_mount(runs: Sequence[Run], node: str, storage: Storage) -> dict[str, list[int]]:
    """Bytes that each mount got from the server, a number per run."""
    read: dict[str, list[int]] = {}
    for run in runs:
        pair = (nfs_of(storage, run.state(node, when)) for when in (BEFORE, AFTER))
        for old, new in zip(*pair, strict=True):
            growth = (new.server_read_bytes or 0) - (old.server_read_bytes or 0)
            read.setdefault(new.mountpoint, []).append(growth)
    return read


def _counters(transport: Transport) -> tuple[int, ...]:
    """Without the time since the last use."""
    return (*transport.counters[:_IDLE], *transport.counters[_SENDS:])


def _conditions(runs: Sequence[Run], node: str, storage: Storage, count: int) -> dict[str, Any]:
    conditions = conditions_of(runs, [node], storage, 1)
    conditions["workload"] |= {"runs": len(runs) // 2, "count": count}
    return conditions
