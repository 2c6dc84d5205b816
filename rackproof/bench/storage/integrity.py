"""Integrity of a storage: every client writes a file with checksums, reads it back, and reads the file of another one.

Caches are dropped before every run, on clients and servers. What is read back is new: a stage writes its files without
checksums first, so a lost write leaves blocks that have none, also where an earlier test had left its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from rackproof.bench.step import BenchContext, Step, Writes, expected
from rackproof.bench.storage.client_runs import SETUP_S, SLOWEST, TYPICAL, StorageClients, fio_step
from rackproof.bench.storage.fio_launch import (
    CHECKED_BY_OTHER,
    CHECKED_BY_WRITER,
    CHECKED_WRITE,
    DAMAGE,
    VERIFY,
    VERIFY_READ,
)
from rackproof.core.architecture import Storage, WholeFile
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.fiojob import Layout, render_whole
from rackproof.core.wording import counted

_WRITE = {**VERIFY, "do_verify": "0", "verify_state_save": "0"}
"""Options of the write."""


def step(name: str, storage: Storage, job: WholeFile, layout: Layout, names: list[str]) -> Step:
    """The step of one storage."""
    id_ = f"storage/{name}/integrity"
    labels = {"storage": name, "block_bytes": str(job.block_bytes)}
    places = [expected(DAMAGE, Scope.NODE, [node], labels, id_) for node in names]
    places.append(expected(DAMAGE, Scope.RACK, names, labels, id_))

    def execute(context: BenchContext) -> Iterator[Measurement]:
        clients = StorageClients(context, name, storage, layout, names)
        clients.write_files()
        if not clients.lost:
            _write_and_read(clients, job)
        yield from clients.results(places)

    runs = 3 if storage.class_ != "local" and len(names) > 1 else 2
    seconds = runs * (SETUP_S + job.file_bytes / TYPICAL)
    title = f"{name}: files with checksums, written and read back by {counted(len(names), 'client', 'clients')}"
    written = partial(render_whole, f"{name}{CHECKED_WRITE}", job, rw="write", options=_WRITE)
    readers = (CHECKED_BY_WRITER, CHECKED_BY_OTHER)[: runs - 1]
    read_back = [partial(render_whole, f"{name}{end}", job, rw="read", options=VERIFY_READ) for end in readers]
    writes = Writes(job.file_bytes * len(names))
    return fio_step(storage, names, places, title, seconds, execute, written, *read_back, writes=writes)


def _write_and_read(clients: StorageClients, job: WholeFile) -> None:
    """All runs, up to the first one that loses a client."""
    limit, names = job.file_bytes / SLOWEST, clients.clients

    def run(end: str, rw: str, options: Mapping[str, str]) -> bool:
        job_file = partial(render_whole, f"{clients.name}{end}", job, rw=rw, options=options)
        return bool(clients.run(names, job_file, limit, again=False))

    clients.spend_files()  # before the write: also one that breaks off leaves checksums
    if not run(CHECKED_WRITE, "write", _WRITE) or not run(CHECKED_BY_WRITER, "read", VERIFY_READ):
        return
    if clients.storage.class_ != "local" and len(names) > 1:
        clients.owners = dict(zip(names, [*names[1:], names[0]], strict=True))
        run(CHECKED_BY_OTHER, "read", VERIFY_READ)
