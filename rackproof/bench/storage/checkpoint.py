"""A checkpoint: every rank of every client writes its part at once, then reads it back.

The slowest rank decides, fsync included. The parts replace files of the same size; caches are dropped before every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rackproof.bench.step import BenchContext, Step, Writes, expected
from rackproof.bench.storage.checkpoint_reader import CHECKPOINT, READ, WRITE, job_name
from rackproof.bench.storage.client_runs import SETUP_S, SLOWEST, TYPICAL, StorageClients, fio_step
from rackproof.core.architecture import CheckpointProfile, Storage
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.fiojob import Layout, render_whole
from rackproof.core.wording import counted


def step(name: str, storage: Storage, profile: CheckpointProfile, layout: Layout, names: list[str]) -> Step:
    """The step of one storage."""
    id_ = f"storage/{name}/checkpoint"
    labels = {"storage": name, "model": profile.model}
    places = [expected(metric, Scope.RACK, names, labels, id_) for metric in CHECKPOINT]
    job_files = [
        partial(render_whole, job_name(name, profile.model, way), profile, rw=way, options={}) for way in (WRITE, READ)
    ]
    part = profile.file_bytes * profile.ranks

    def execute(context: BenchContext) -> Iterator[Measurement]:
        clients = StorageClients(context, name, storage, layout, names)
        clients.write_files()
        for job_file in job_files * profile.runs:
            if not clients.lost:
                clients.run(names, job_file, part / SLOWEST, again=False)
        yield from clients.results(places)

    seconds = 2 * profile.runs * (SETUP_S + part / TYPICAL)
    who = counted(len(names) * profile.ranks, "rank", "ranks")
    title = f"{name}: checkpoint of {profile.model}, written and read back by {who}"
    writes = Writes(profile.runs * part * len(names))
    return fio_step(storage, names, places, title, seconds, execute, *job_files, writes=writes)
