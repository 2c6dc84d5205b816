"""Observed conditions of a storage measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from rackproof.bench.storage.byte_counters import COUNTED, counted_bytes, counted_in_run, size_text
from rackproof.bench.storage.commands import AFTER, BEFORE
from rackproof.bench.storage.fio_launch import workload
from rackproof.bench.storage.proof import mounts_of, nfs_of
from rackproof.bench.storage.runs import Run, State
from rackproof.bench.storage.server_counters import Served
from rackproof.core.architecture import Storage
from rackproof.parse import ParseError, fio
from rackproof.parse.answer import Answer
from rackproof.parse.client_transfer import transports_in

OWN_CACHE = ("gpfs", "fuse.daos")
"""File systems whose clients have their own cache besides the page cache: GPFS's pagepool, dfuse."""
SERVER_CACHE = ("ceph",)
"""File systems whose servers have their own cache besides the page cache, which the kit drops: BlueStore."""
_SHOWN = 20
"""Maximum number of runs whose bytes are listed, as a search for the knee has a hundred, and of fio's messages that a
normal run does not have."""
COLD = 0.01
_BYPASSED = 0.10
"""Shares of the files in the page cache below which it was empty, and below which it was bypassed."""


def conditions_of(runs: Sequence[Run], nodes: Sequence[str], storage: Storage, asked: int) -> dict[str, Any]:
    """Conditions of all runs of these clients; the worst one counts."""
    launch = runs[-1].launch
    job = launch.jobs[nodes[0]]
    pairs = [(run.state(node, BEFORE), run.state(node, AFTER)) for run in runs for node in nodes]
    dataset = int(job["size"]) * int(job["numjobs"])
    start = worst([start_share(before, dataset) for before, _ in pairs])
    bypassed = _bypassed(pairs, dataset)
    conditions: dict[str, Any] = {
        "io": "buffered" if job.get("direct") != "1" or bypassed is False else "O_DIRECT",
        **cache_conditions(storage, start, _DURING[bypassed], [run.servers_dropped for run in runs]),
        "clients": len(launch.clients),
        "clients_asked": asked,
        "fio": launch.result.version,
        "mount": mounts_text(storage, [before for before, _ in pairs]),
        "files": "written completely before, fallocate=none",
        "layout": _layout(runs, nodes),
        "workload": workload(job, len(runs)),
    }
    if runs[0].in_ramp:
        of_nodes = [(run, node) for run in runs for node in nodes]
        counts = [counted_in_run(*one, storage, *pair) for one, pair in zip(of_nodes, pairs, strict=True)]
        conditions["bytes"] = "; ".join(dict.fromkeys(counted.text for counted in counts))
    elif pairs[0][0].client.ports is not None or pairs[0][0].client.counters is not None:
        texts = [counted_bytes(storage, *pair, writes=job["rw"] == "write").text for pair in pairs]
        conditions["bytes"] = "; ".join(dict.fromkeys(texts))
    lines = [line for run in runs for line in fio.complaints(run.launch.words)]
    if messages := dict.fromkeys(f"{line.host}: {line.text}" if line.host else line.text for line in lines):
        conditions["fio_said"] = list(messages)[:_SHOWN]
    served = [] if job["rw"] == "write" else [(run.served, run.read_bytes) for run in runs]
    return conditions | server_conditions(served)


def server_conditions(runs: Sequence[tuple[Served | str | None, int | None]]) -> dict[str, Any]:
    """Bytes of the servers' drives and ports in each run, which serves all clients; empty where none was asked.
    ``runs``: each with the bytes that all of its clients read, None where that is not known."""
    known = [(served, read) for served, read in runs if isinstance(served, Served)]
    if why := next((served for served, _ in runs if isinstance(served, str)), ""):
        return {"server_memory": f"unknown: {why}"}
    if not known or len(known) < len(runs):
        return {}
    by_run = {
        "server_drives_read_bytes": [one.drives for one, _ in known],
        "server_ports_sent_bytes": [one.ports for one, _ in known],
    }
    named = {"server_fairness": fairness_of([one.of_servers for one, _ in known])}
    several = named if len(known[0][0].of_servers) > 1 else {}
    return {"server_memory": _memory_text(known)} | several | (by_run if len(runs) <= _SHOWN else {})


def fairness_of(runs: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The slowest of several members over the mean of all, by their medians over the runs; each run has one number of
    each member."""
    medians = {name: median(run[name] for run in runs) for name in runs[0]}
    slowest = min(medians, key=medians.__getitem__)
    share = medians[slowest] / fmean(medians.values()) if any(medians.values()) else 0.0
    return {"slowest": slowest, "slowest_over_mean": round(share, 4)}


def _memory_text(runs: Sequence[tuple[Served, int | None]]) -> str:
    """Share that the servers' memory answered, of the run where it is largest. ``runs``: each with the bytes that its
    clients read, None where fio has not counted all of them. Drives that hold compressed data read fewer bytes, too."""
    shares = [
        (1 - served.drives / whole, served.drives, whole, f"the {'ports sent' if read is None else 'clients read'}")
        for served, read in runs
        if (whole := served.ports if read is None else read)
    ]
    if not shares:
        return "nothing was read"
    share, drives, whole, what = max(shares)
    if share <= 1 - COUNTED:
        return f"none: the drives read {size_text(drives)}, {what} {size_text(whole)}"
    return f"{100 * share:.0f} % of {size_text(whole)} that {what}: the drives read {size_text(drives, whole)}"


def start_share(before: State, dataset: int) -> float | None:
    """Share of the files in the page cache at the start, at most the whole page cache; None if unknown."""
    cached, page_cache = before.client.cached_bytes, before.client.page_cache_bytes
    if cached is not None:
        return cached / dataset
    if page_cache is not None and page_cache < COLD * dataset:
        return page_cache / dataset
    return None


def cached_at_start(before: State, dataset: int) -> float | None:
    """Bytes of the files in the page cache at the start, or a proven upper bound; None if unknown."""
    share = start_share(before, dataset)
    return None if share is None else share * dataset


def worst(shares: Sequence[float | None]) -> float | None:
    return None if None in shares else max((share for share in shares if share is not None), default=None)


def _bypassed(pairs: Sequence[tuple[State, State]], dataset: int) -> bool | None:
    """Whether O_DIRECT had its effect: the files are not in the page cache afterwards. None if unknown."""
    answers = [_passed_by(before, after, dataset) for before, after in pairs]
    return False if False in answers else None if None in answers else True


def _passed_by(before: State, after: State, dataset: int) -> bool | None:
    if after.client.cached_bytes is not None:
        return after.client.cached_bytes < _BYPASSED * dataset
    old, new = before.client.page_cache_bytes, after.client.page_cache_bytes
    if old is None or new is None:
        return None
    # The node's whole page cache: other programs use it as well, so growth proves nothing.
    return True if new - old < _BYPASSED * dataset else None


_DURING = {True: "bypassed", False: "used although O_DIRECT was asked for", None: "its use not observed"}


def cache_conditions(
    storage: Storage, start: float | None, during: str, servers_dropped: Sequence[bool | None]
) -> dict[str, str]:
    """``start``: largest share of a client's files in its cache; ``during``: how the run used it."""
    servers, own = _servers(all(servers_dropped), storage), storage.fstype in OWN_CACHE
    return {
        "cache": _cache(storage, None if own else start, servers),
        "client_cache": f"unknown: {storage.fstype} has a cache of its own" if own else _client(start, during),
        "server_cache": servers,
    }


def _client(start: float | None, during: str) -> str:
    if start is None:
        at_start = "not observed at the start"
    elif start < COLD:
        at_start = "empty at the start"
    else:
        at_start = f"{100 * start:.0f} % of the files cached at the start"
    return f"dropped before, {at_start}, {during}"


def _servers(dropped: bool, storage: Storage) -> str:
    if storage.class_ == "local":
        return "none"
    if not dropped:
        return "unknown"
    return "page cache dropped before, own cache unknown" if storage.fstype in SERVER_CACHE else "dropped before"


def _cache(storage: Storage, start: float | None, servers: str) -> str:
    """``cold`` only if the clients' caches were observed to be empty and the servers' were dropped."""
    if start is None or start >= COLD:
        return "unknown on clients" if start is None else "warm on clients"
    return "cold" if servers in ("none", "dropped before") else "cold on clients, unknown on servers"


def mounts_text(storage: Storage, states: Sequence[State]) -> str:
    """Source and type of the mounts, and transport and connections of NFS."""
    texts = []
    for state in states:
        nfs = {mount.mountpoint: mount for mount in nfs_of(storage, state)}
        for mount in mounts_of(storage, state):
            if mount is None:
                continue
            text = f"{mount.source} on {mount.mountpoint}, {mount.fstype}"
            if (own := nfs.get(mount.mountpoint)) is not None:
                text += f", {own.protocol or 'several transports'}, {own.connections} connections"
            elif state.client.transport is not None:
                text += f", {_transport(storage, state.client.transport)}"
            texts.append(text)
    return "; ".join(dict.fromkeys(texts))


def _transport(storage: Storage, answer: Answer) -> str:
    try:
        return ", ".join(sorted(transports_in(storage, answer))) or "transport not proven: no connection to a server"
    except ParseError as error:
        return f"transport not proven: {error}"


def _layout(runs: Sequence[Run], nodes: Sequence[str]) -> Mapping[str, Any]:
    """Bytes of each client's files, and seconds that the slowest client took to write them."""
    layouts = [layout for node in nodes if (layout := runs[-1].layout(node)) is not None]
    entries = [launch.entries[owner] for owner, launch in layouts]
    writes = [entry.write for entry in entries if entry.write is not None]
    return {
        "bytes": max((write.io_bytes for write in writes), default=0),
        "seconds": round(max((write.runtime_ms for write in writes), default=0) / 1000, 1),
    }
