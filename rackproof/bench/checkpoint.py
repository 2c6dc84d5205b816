"""A checkpoint: every rank of every client writes its part at once, then reads it back.

The slowest rank decides, fsync included. The parts replace files of the same size; caches are dropped before every run.
"""

from __future__ import annotations

from collections.abc import Iterator

from rackproof.bench.checkpoint_reader import CHECKPOINT, READ, WRITE, job_name
from rackproof.bench.client_runs import SETUP_S, StorageClients
from rackproof.bench.step import BenchContext, Step, expected
from rackproof.bench.storage_commands import folders_of
from rackproof.bench.whole_files import SLOWEST, TYPICAL, results
from rackproof.core.architecture import CheckpointProfile, Storage
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.fiojob import Layout, command_line, render_whole
from rackproof.core.wording import counted


def step(name: str, storage: Storage, profile: CheckpointProfile, layout: Layout, names: list[str]) -> Step:
    """The step of one storage."""
    id_ = f"storage/{name}/checkpoint"
    labels = {"storage": name, "model": profile.model}
    places = [expected(metric, Scope.RACK, names, labels, id_) for metric in CHECKPOINT]
    part = profile.file_bytes * profile.ranks

    def execute(context: BenchContext) -> Iterator[Measurement]:
        clients = StorageClients(context, name, storage, layout, names)
        clients.write_files()

        def run(way: str) -> None:
            text = job_name(name, profile.model, way)
            clients.run(
                names, lambda _, folders: render_whole(text, profile, folders, way, {}), part / SLOWEST, again=False
            )

        for way in (WRITE, READ) * profile.runs:
            if not clients.lost:
                run(way)
        yield from results(clients, places)

    seconds = 2 * profile.runs * (SETUP_S + part / TYPICAL)
    who = counted(len(names) * profile.ranks, "rank", "ranks")
    title = f"{name}: checkpoint of {profile.model}, written and read back by {who}"
    folders = ":".join(folders_of(storage, names[0])) if names else ""
    texts = [render_whole(job_name(name, profile.model, way), profile, folders, way, {}) for way in (WRITE, READ)]
    return Step(id_, title, seconds, tuple(places), execute, commands=tuple(map(command_line, texts)))
