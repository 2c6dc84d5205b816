"""Ratio of reads over several connections to reads over one, from pairs of fio's runs on a mount of their own.

Each run has all proofs of fio's runs. In addition its mount has as many connections as asked for, none of which another
mount of the client has, and all of which carried requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rackproof.bench.reading import Reading
from rackproof.bench.storage.commands import AFTER, BEFORE
from rackproof.bench.storage.conditions import conditions_of
from rackproof.bench.storage.result import messages_of, proven
from rackproof.bench.storage.runs import Run, State
from rackproof.core.architecture import Storage
from rackproof.core.evidence import Measurement
from rackproof.parse import ParseError
from rackproof.parse.mounts import Mount, Transport, find_mount

SPEEDUP: Final = "storage.connections_speedup"
POINT: Final = "/run/rackproof-own-mount"
VERSIONS: Final = ("4.2", "4.1", "3")
"""Of NFS, in the order in which they are tried. Linux gives several connections to these."""
_MARK: Final = "-connections-"
_IDLE, _SENDS = 4, 5
"""Places of a TCP connection's counters in ``xprt:`` (Linux, ``xs_tcp_print_stats``)."""
_LEAST_SHARE: Final = 0.1
"""Least requests of a connection over the mean of all: the kernel's client takes them in turn."""


def job_name(storage: str, count: int) -> str:
    return f"{storage}{_MARK}{count}"


def version_of(mount: Mount) -> str:
    """Version of NFS of a mount."""
    version = mount.option("vers") or ""
    return "4.0" if version == "4" else version


def own_mount(storage: Storage, version: str, count: int) -> Storage:
    """The storage as the benchmark's own mount must show it."""
    return storage.model_copy(
        update={
            "mountpoint": POINT, "mounts_per_client": None, "fstype": "nfs" if version == "3" else "nfs4",
            "transport": storage.transport or "tcp", "connections": count, "local_cache": None,
            "options_required": ("rw", f"vers={version}"), "options_forbidden": (),
        }
    )  # fmt: skip


def read_connections(every: Sequence[Run], measurement: Measurement, storage: Storage) -> Reading:
    """One sample per pair of runs. Raises ParseError."""
    (node,), name = measurement.members, measurement.labels["storage"]
    runs = [run for run in every if node in run.launch.jobs]
    counts = [_count(run, node, name) for run in runs]
    several = max(counts, default=0)
    if several < 2 or counts != [1, several] * (len(counts) // 2):
        raise ParseError("fio", f"expected pairs of runs over one connection and over several, actual {counts}")
    rates, versions = [], set()
    for run, count in zip(runs, counts, strict=True):
        version = _version(run, node)
        versions.add(version)
        rates.append(_rate(run, node, measurement, own_mount(storage, version, count)))
    if len(versions) > 1:
        raise ParseError("mount", f"expected one version of NFS, actual {', '.join(sorted(versions))}")
    conditions = _conditions(runs, node, own_mount(storage, versions.pop(), several), several)
    samples = [after / before for before, after in zip(rates[::2], rates[1::2], strict=True)]
    companions = {"one_connection_mb_per_s": tuple(rates[::2]), "several_connections_mb_per_s": tuple(rates[1::2])}
    return Reading(tuple(samples), tuple(run.launch.answer for run in runs), conditions, companions)


def _count(run: Run, node: str, name: str) -> int:
    """Number of connections that a run is about. Raises ParseError for another run."""
    job = run.launch.jobs[node]["name"]
    count = job.removeprefix(f"{name}{_MARK}")
    if count == job or not count.isdecimal():
        raise ParseError("fio", f"expected a run of {name}{_MARK}…, actual {job}")
    return int(count)


def _version(run: Run, node: str) -> str:
    mount = find_mount(run.state(node, BEFORE).client.mounts, POINT)
    if mount is None:
        raise ParseError("mount", f"before the run: {POINT} is not mounted")
    return version_of(mount)


def _rate(run: Run, node: str, measurement: Measurement, storage: Storage) -> float:
    """MB/s of a run, proven."""
    if not run.launch.answer.ok:
        raise ParseError("fio", run.launch.answer.why)
    job = run.launch.jobs[node]
    asked = {"rw": "read", "bs": measurement.labels["block_bytes"], "time_based": "1"}
    if set(run.launch.jobs) != {node} or any(job.get(key) != value for key, value in asked.items()):
        raise ParseError("fio", f"expected {asked} on {node} alone, actual {job['name']}")
    _check_connections(run.state(node, BEFORE), run.state(node, AFTER))
    rate = proven(run, node, storage).moved.bandwidth_bytes_per_s / 1e6
    if not rate:
        raise ParseError("fio", "it read nothing")
    return rate


def _check_connections(before: State, after: State) -> None:
    """Every connection carried its share of the run, and no other mount has it. Raises ParseError.

    The kernel shows no number of a connection of NFS 4.1; the counters of one that two mounts share are the same.
    """
    old, new = (_connections(state, when) for state, when in ((before, BEFORE), (after, AFTER)))
    sent = [late.counters[_SENDS] - early.counters[_SENDS] for early, late in zip(old, new, strict=False)]
    if len(old) != len(new) or not sent or min(sent) < _LEAST_SHARE * sum(sent) / len(sent) or not min(sent):
        raise ParseError("mountstats", f"its connections carried {', '.join(map(str, sent)) or 'no'} requests")
    own = {_counters(transport) for transport in new}
    for mount in after.client.nfs:
        if mount.mountpoint != POINT and own & {_counters(transport) for transport in mount.transports}:
            raise ParseError("mountstats", f"{mount.mountpoint} shares its connections")


def _connections(state: State, when: str) -> tuple[Transport, ...]:
    mounts = [mount for mount in state.client.nfs if mount.mountpoint == POINT]
    if len(mounts) != 1 or any(len(transport.counters) <= _SENDS for transport in mounts[0].transports):
        raise ParseError("mountstats", f"{when} the run: expected the connections of {POINT}")
    return mounts[0].transports


def _counters(transport: Transport) -> tuple[int, ...]:
    """Without the time since the last use."""
    return (*transport.counters[:_IDLE], *transport.counters[_SENDS:])


def _conditions(runs: Sequence[Run], node: str, storage: Storage, several: int) -> dict[str, Any]:
    conditions = conditions_of(runs, [node], storage, 1)
    conditions["workload"] |= {"runs": len(runs) // 2, "count": several}
    conditions["connections"] = several
    if messages := messages_of(runs):
        conditions["fio_said"] = messages
    return conditions
