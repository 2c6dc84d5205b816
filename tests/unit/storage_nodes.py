"""Storage clients in memory: mounts, files, counters, and a fio that does what its job files say."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from rackproof.bench.containers.reader import LAYOUT, job_of
from rackproof.bench.relay import socket_of
from rackproof.bench.storage.commands import (
    AFTER,
    BEFORE,
    FSID,
    RAMP,
    drop_and_state,
    is_server_in_ramp,
    server_state,
    state_after,
    state_of,
)
from rackproof.bench.storage.fio_clients import launch_command
from rackproof.bench.storage.fio_launch import launches
from rackproof.core.architecture import Architecture, FioJob, Storage
from rackproof.core.fiojob import layout_of, render, render_layout
from rackproof.remote.command import CommandResult
from tests.unit import transfer_answers
from tests.unit.fakes import reply

RATES = {"read": 60.0e6, "write": 50.0e6, "randread": 4.0e6}
"""B/s of every client."""
RAM = 1026392064
JOB = FioJob(rw="read", block_bytes=1048576, iodepth=4, file_bytes=33554432, runtime_s=5)

FILE_BYTES = 16777216


def with_long_runs(architecture: Architecture) -> Architecture:
    """Its ``lab`` with runs of 5 s on files of ``FILE_BYTES``, whatever the published profile has."""
    lab = architecture.profiles["lab"]
    assert lab.storage
    assert lab.containers
    size = {"file_bytes": FILE_BYTES}
    jobs = {name: job.model_copy(update={**size, "runtime_s": 5}) for name, job in lab.storage.jobs.items()}
    storage = lab.storage.model_copy(update={"jobs": jobs})
    containers = lab.containers.model_copy(update={"job": lab.containers.job.model_copy(update=size)})
    longer = lab.model_copy(update={"storage": storage, "containers": containers})
    return architecture.model_copy(update={"profiles": {**architecture.profiles, "lab": longer}})


START_MS = 1_795_314_000_000
_TIMES = count(1_795_314_000)
"""Seconds: no two runs print the same."""

Document = dict[str, Any]
Moved = dict[tuple[str, str], list[int]]
"""Bytes read and written, by node and mount point."""


@dataclass
class StorageNodes:
    """Answers of all nodes; ``change`` edits what fio prints, ``mounts`` what is mounted on a node instead."""

    architecture: Architecture
    rates: Mapping[str, float] = field(default_factory=lambda: dict(RATES))
    cached: int | None = 4096
    """Bytes of the files in the page cache; None: the node has no fincore."""
    cached_after: int | None = None
    """The same after a run; None: as before."""
    change: Callable[[Document], object] = lambda document: None
    before: str = ""
    """Text that fio prints before its document, or on standard error where it runs without a server."""
    rc: int = 0
    """Exit status of fio."""
    mountinfo: Callable[[str], str] = lambda text: text
    """Edits the mounts that a node shows."""
    mountinfo_after: Callable[[str], str] | None = None
    mountstats: Callable[[str], str] = lambda text: text
    allocated: float = 1.0
    """Share of a file that has blocks."""
    unsynced: int = 0
    """Writes at the end without their fsync."""
    synced: float = 1.0
    """Share of the writes that an fsync follows, where it is asked for."""
    counted: float = 1.0
    """Share of the bytes that the counters see."""
    transport: str | None = None
    """In use by a parallel file system; None: the architecture's."""
    transport_after: str | None = None
    ports: Mapping[str, float] = field(default_factory=lambda: {"kernel": 1.0, "rdma": 1.0, "wire": 1.1})
    """Share of the bytes that each kind of port counter sees; without an entry nothing counts."""
    nfs_ports: Callable[[str], str] = lambda text: text
    """Edits what the ports of a node with a mount of NFS count."""
    drives: float = 1.0
    """Share of the bytes that the servers' drives read; the rest is in their memory."""
    server: Callable[[str], str | None] = lambda text: text
    """Edits what a server tells of its drives and ports; None: it does not answer."""
    servers: int | None = None
    """Requests that the storage serves at once for each client; None: ``rates`` count."""
    service_s: float = 0.001
    """Time that each of them takes."""
    ramp_s: int = 1
    """Length of the ramps of all jobs that have one."""
    ramp_bytes: int = 10_000_000
    """Moved by each client in a ramp."""
    readings_ms: tuple[int, ...] = (-600, -100, 400)
    """When counters are read in a ramp, from its end."""
    timed: Callable[[str], str] = lambda text: text
    """Edits what a client tells of its counters in a ramp."""
    clients_rc: int = 0
    """Exit status of the clients' own tools."""
    files: dict[str, dict[str, int]] = field(default_factory=dict)
    """Sizes by node and path."""
    moved: Moved = field(default_factory=dict)
    """Bytes read and written, by node and mount point."""
    begun: Moved = field(default_factory=dict)
    """``moved`` before the last run."""
    told: dict[str, Storage] = field(default_factory=dict)
    """The storage whose state each client told last."""
    name: str = ""
    """The storage of all commands; empty: the one that a command names."""

    def answer(self, node: str, command: str) -> CommandResult | None:
        if (asked := state_of(command)) and asked[0] == RAMP:
            text = self.timed(self._in_ramp(lambda moved: self._counters(node, asked[1], moved)))
            return reply(node, command, declared(text, asked[1]))
        if is_server_in_ramp(command):
            text = self.server(self._in_ramp(lambda moved: self._server(moved).removesuffix("-- end\n")))
            return reply(node, command, rc=None, error="no answer") if text is None else reply(node, command, text)
        if asked:
            return reply(node, command, declared(self._state(node, command, *asked), asked[1]))
        if command in (server_state(BEFORE), server_state(AFTER)):
            text = self.server(self._server(self.moved))
            return reply(node, command, rc=None, error="no answer") if text is None else reply(node, command, text)
        if "fio --output-format=json --eta=never --name=" in command:
            job = job_of(command)
            writes = job["name"] == LAYOUT
            return reply(node, command, self._fio({"": node}, {node: job}), 0 if writes else self.rc)
        for launch in launches([CommandResult(node, command, 0)]):
            text = self._fio(launch.clients, launch.jobs)
            if all(job["name"].endswith("-layout") for job in launch.jobs.values()):
                return reply(node, command, text)
            if "" in launch.clients:  # without a server
                return reply(node, command, text, self.rc, self.before)
            return reply(node, command, f"{self.before}{text}", self.rc)
        return None

    def _storage(self, text: str) -> Storage:
        if self.name:
            return self.architecture.storage[self.name]
        return next(s for s in self.architecture.storage.values() if f"{s.mountpoints[0]}/rackproof-" in text)

    def _in_ramp(self, state: Callable[[Moved], str]) -> str:
        """Readings of a state around the end of a ramp, in which the clients move their bytes at an even rate."""
        text = ""
        for at_ms in self.readings_ms:
            share = max(0.0, 1 + at_ms / 1000 / self.ramp_s)
            ramp = int(self.ramp_bytes * share * self.counted)
            moved = {key: [count + ramp for count in counts] for key, counts in self.begun.items()}
            text += f"{state(moved)}-- time\n{START_MS + 1000 * self.ramp_s + at_ms}\n-- end\n"
        return text

    def _counters(self, node: str, addresses: tuple[str, ...], moved: Moved) -> str:
        """Counters of the client that began a run last."""
        storage = self.told[node]
        read, written = moved.get((node, storage.mountpoints[0]), [0, 0])
        if storage.class_ == "nfs":
            ports = "\n".join([*self._nfs_ports(storage, read, written), ""])
            return f"-- mountstats\n{mountstats(storage, addresses, read, written)}{ports}"
        if storage.class_ == "local":
            return f"-- block\n1 0 {read // 512} 0 1 0 {written // 512} 0 0 0 0\n"
        lines = self._transfer(storage, "echo -- ports", True, read, written)
        return "\n".join([*lines, ""])

    def _server(self, moved: Moved) -> str:
        """All that clients have read, from one server with a drive of its own and a boot drive."""
        read, written = (sum(counters[way] for counters in moved.values()) for way in (0, 1))
        drives = f"vda 9 0 800 0 1 0 8 0 0 0 0 0 0 0\nvdb 9 0 {int(read * self.drives) // 512} 0 1 0 8 0 0 0 0 0 0 0\n"
        ports = transfer_answers.ports((written, read), None, None)
        return f"-- drives\n{drives}-- ports\n{ports}status 0\n-- end\n"

    def _state(self, node: str, command: str, when: str, addresses: tuple[str, ...]) -> str:
        storage = self._storage(command)
        point = storage.mountpoints[0]
        read, written = self.moved.setdefault((node, point), [0, 0])
        if when == BEFORE:
            self.told[node], self.begun[node, point] = storage, [read, written]
        after = when == AFTER and node in self.files
        cached = self.cached_after if after and self.cached_after is not None else self.cached
        owners = [node] if storage.class_ == "local" else list(self.files)
        every = {path: size for owner in owners for path, size in self.files.get(owner, {}).items()}
        files = {path: size for path, size in every.items() if f"{path.rpartition('/')[0]} " in f"{command} "}
        edit = self.mountinfo_after if after and self.mountinfo_after else self.mountinfo
        lines = [f"ram_bytes {RAM}", f"page_cache_bytes {RAM // 2}"]
        lines += [] if cached is None else [f"cached_bytes {cached} {len(files)}"]
        lines += ["-- mountinfo", *edit(mountinfo(storage, addresses)).splitlines()]
        lines += ["-- mountstats"]
        if storage.class_ == "nfs":
            lines += self.mountstats(mountstats(storage, addresses, read, written)).splitlines()
            lines += self._nfs_ports(storage, read, written)
        if storage.class_ == "local":
            lines += ["-- device", "/dev/nvme0n1", "-- block"]
            lines += [f"1 0 {read // 512} 0 1 0 {written // 512} 0 0 0 0"]
        if storage.class_ == "parallel":
            lines += self._transfer(storage, command, after, read, written)
        lines += ["-- files"]
        lines += [f"{size} {int(size * self.allocated) // 512} 512 {path}" for path, size in files.items()]
        return "\n".join([*lines, "-- end", ""])

    def _nfs_ports(self, storage: Storage, read: int, written: int) -> list[str]:
        """Counters of the ports; RDMA is counted by its device alone."""
        kinds = {name: (int(read * share), int(written * share)) for name, share in self.ports.items()}
        rdma = storage.transport == "rdma" and kinds.get("rdma")
        text = transfer_answers.nfs_ports((0, 0) if rdma else kinds["kernel"], rdma or None)
        return ["-- ports", *self.nfs_ports(text).splitlines(), "status 2"]

    def _transfer(self, storage: Storage, command: str, after: bool, read: int, written: int) -> list[str]:
        """Counters and transports of a parallel file system's client."""
        used = self.transport if self.transport is not None else storage.transport or "tcp"
        if after and self.transport_after is not None:
            used = self.transport_after
        status = f"status {self.clients_rc}"
        lines = ["-- dfuse", *transfer_answers.dfuse(storage).split("\n")] if storage.fstype == "fuse.daos" else []
        lines += ["-- transport", *transfer_answers.transport(storage.fstype, used).splitlines(), status]
        if (text := transfer_answers.counters(storage.fstype, storage.source, read, written)) is not None:
            lines += ["-- counters", *text.splitlines(), status]
        kinds = {name: (int(read * share), int(written * share)) for name, share in self.ports.items()}
        text = transfer_answers.ports(kinds["kernel"], kinds.get("wire"), kinds.get("rdma"))
        return [*lines, "-- ports", *text.splitlines(), "status 1"] if "echo -- ports" in command else lines

    def _fio(self, clients: Mapping[str, str], jobs: Mapping[str, Mapping[str, str]]) -> str:
        entries = []
        for address, node in clients.items():
            job = jobs[node]
            point = self._storage(job["directory"]).mountpoints[0]
            block, numbers = int(job["bs"]), int(job["numjobs"])
            rate, p99 = self.rates[job["rw"]], None
            if self.servers is not None and job["rw"] == "randread":
                requests, p99 = served(self.servers, job, self.service_s)
                rate = requests * block
            if job.get("time_based") == "1":
                runtime = int(job["runtime"]) * 1000
                count = int(rate * runtime / 1000 / block)
            else:
                count = int(job["size"]) * numbers // block
                runtime = max(1, int(count * block / rate * 1000))
                limit = int(job.get("runtime", "0")) * 1000
                if limit and runtime > limit:
                    count, runtime = int(rate * limit / 1000 / block), limit
                folders = job["directory"].split(":")
                for number in range(numbers):
                    path = f"{folders[number % len(folders)]}/rackproof.{number}"
                    self.files.setdefault(node, {})[path] = int(job["size"])
            moved = count * block
            counters = self.moved.setdefault((node, point), [0, 0])
            ramp = self.ramp_bytes if "ramp_time" in job else 0
            start_ms = START_MS + (1000 * self.ramp_s if ramp else 0)
            requests = count - (int(job["iodepth"]) * numbers if ramp else 0)
            counters[job["rw"] == "write"] += int((moved + ramp) * self.counted)
            options = {key: value for key, value in job.items() if key != "name"}
            active, idle = direction(moved, requests, runtime, int(job["iodepth"]) * numbers), direction(0, 0, 0, 0)
            synced = {"sync": {"total_ios": int(count * self.synced) - self.unsynced}} if "fsync" in job else {}
            if p99 is not None:
                active["clat_ns"] = active["clat_ns"] | {"percentile": percentiles(p99)}
            entries.append(
                {"jobname": job["name"], "groupid": 0, "job_start": start_ms, "error": 0,
                     "job options": options, "hostname": address or socket_of(node),
                 "port": 8765, **synced, "read": idle if job["rw"] == "write" else active,
                 "write": active if job["rw"] == "write" else idle}
            )  # fmt: skip
        document: Document = {"fio version": "fio-3.39", "timestamp": next(_TIMES), "global options": {}}
        document["client_stats"] = entries
        if not (entries and entries[0]["jobname"].endswith("-layout")):
            self.change(document)
        if "" in clients:
            of_server = ("hostname", "port")
            alone = document.pop("client_stats")
            document["jobs"] = [{key: entry[key] for key in entry if key not in of_server} for entry in alone]
        return json.dumps(document) + "\n"


def served(servers: int, job: Mapping[str, str], service_s: float) -> tuple[float, float]:
    """Requests a second of one client, and its 99th percentile in seconds: it doubles at twice ``servers`` requests in
    flight, and for arrivals as 1 / (1 - utilisation)."""
    highest = servers / service_s
    if "rate_iops" in job:
        offered = int(job["rate_iops"]) * int(job["numjobs"])
        return min(offered, highest * 0.8), 3 * service_s / max(0.001, 1 - offered / highest)
    outstanding = int(job["iodepth"]) * int(job["numjobs"])
    return min(outstanding, servers) / service_s, 3 * service_s * max(1.0, outstanding / servers)


def percentiles(p99_s: float) -> dict[str, float]:
    """As fio prints them; those below the 99th are a third of it."""
    return {"50.000000": p99_s / 3 * 1e9, "95.000000": p99_s / 2 * 1e9, "99.000000": p99_s * 1e9,
            "99.900000": p99_s * 2e9}  # fmt: skip


def direction(moved: int, count: int, runtime_ms: int, outstanding: int) -> dict[str, Any]:
    """fio's figures of one direction; they obey Little's law."""
    iops = count * 1000 / runtime_ms if runtime_ms else 0.0
    mean = outstanding / iops * 1e9 if iops else 0.0
    latency = {"min": 1 if count else 0, "max": mean * 2, "mean": mean, "stddev": 0.1 if count else 0, "N": count}
    rate = moved * 1000 // runtime_ms if runtime_ms else 0
    return {
        "io_bytes": moved, "io_kbytes": moved // 1024, "bw_bytes": rate, "bw": rate // 1024, "iops": iops,
        "runtime": runtime_ms, "total_ios": count, "short_ios": 0, "drop_ios": 0,
        "slat_ns": latency, "clat_ns": latency, "lat_ns": latency,
    }  # fmt: skip


def declared(text: str, origin: tuple[str, ...]) -> str:
    """A client's answer, of the cluster that its command names."""
    fsids = [word.removeprefix(FSID) for word in origin if word.startswith(FSID)]
    return text.replace(transfer_answers.FSID, fsids[0]) if fsids else text


def _source(storage: Storage, addresses: tuple[str, ...]) -> str:
    if storage.class_ == "local":
        return "/dev/nvme0n1"
    if storage.class_ == "nfs":
        return f"{addresses[0]}:{storage.source}" if addresses else storage.source
    return transfer_answers.source_of(storage, addresses)


def mountinfo(storage: Storage, addresses: tuple[str, ...]) -> str:
    """Lines of /proc/self/mountinfo; the mounts have the options that the architecture requires."""
    options = ["rw", *(option for option in storage.options_required if option not in ("rw", "ro"))]
    options += [f"port={storage.port}"] if storage.port else []
    options += [f"mon_addr={addresses[0]}:3300"] if storage.fstype == "ceph" and addresses else []
    if storage.class_ == "nfs":  # the kernel lists them for every NFS mount
        present = {option.partition("=")[0] for option in options}
        options += [f"{size}=1048576" for size in ("rsize", "wsize") if size not in present]
    root = "1 0 254:1 / / rw - ext4 /dev/vda1 rw\n"
    device = "259:0" if storage.class_ == "local" else "0:47"
    return root + "".join(
        f"{number} 1 {device} / {point} rw - {storage.fstype} {_source(storage, addresses)} {','.join(options)}\n"
        for number, point in enumerate(storage.mountpoints, 2)
    )


def mountstats(storage: Storage, addresses: tuple[str, ...], read: int, written: int) -> str:
    proto = storage.transport or "tcp"
    numbers = "700 0 1 0 0 100 100 0 120 0 2 3 4"
    return "".join(
        f"device {_source(storage, addresses)} mounted on {point} with fstype {storage.fstype} statvers=1.1\n"
        f"\topts:\trw,proto={proto}\n\tage:\t4711\n\tbytes:\t0 0 {read} {written} {read} {written} 0 0\n"
        "\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)\n"
        + f"\txprt:\t{proto} {numbers}\n" * (storage.connections or 1)
        + "\tper-op statistics\n\t        NULL: 1 1 0 44 24 0 0 0 0\n\n"
        for point in storage.mountpoints
    )


def recorded_run(nodes: StorageNodes, name: str, job: FioJob, clients: Mapping[str, str]) -> list[CommandResult]:
    """Answers of one measured run with all of its proof. ``clients`` are addresses by node."""
    storage = nodes.architecture.storage[name]
    folders = {node: (f"{storage.mountpoint}/rackproof-bench/{node}",) for node in clients}
    layout = layout_of([job])

    def launch(text: Callable[[str], str]) -> tuple[str, str]:
        return next(iter(clients)), launch_command({node: text(node) for node in clients})

    commands = [
        launch(lambda node: render_layout(f"{name}-layout", layout, folders[node][0])),
        *((node, drop_and_state(storage, folders[node], ["10.0.0.9"])) for node in clients),
        launch(lambda node: render(f"{name}-{job.rw}", job, folders[node][0])),
        *((node, state_after(storage, folders[node], ["10.0.0.9"])) for node in clients),
    ]
    answers = [nodes.answer(node, command) for node, command in commands]
    return [answer for answer in answers if answer is not None]
