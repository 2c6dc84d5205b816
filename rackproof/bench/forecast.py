"""Forecast of a profile on a rack, before it starts: durations of its steps, space for its files, and bytes that it
writes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rackproof.bench.ingest import shards_node
from rackproof.bench.ingest.datasets import folder_of, spec_of
from rackproof.bench.ingest.dlio import LEG as DLIO
from rackproof.bench.ingest.dlio import folder_of as dlio_folder_of
from rackproof.bench.ingest.steps import BESIDE, datasets_of
from rackproof.bench.ingest.tree_steps import most_bytes
from rackproof.bench.ingest.trees import LEG as TREE
from rackproof.bench.plan import plan_steps
from rackproof.bench.step import Step
from rackproof.bench.storage.commands import DROP
from rackproof.bench.storage.connections import layout_of_own
from rackproof.core.architecture import (
    Architecture,
    Criterion,
    DataSet,
    DlioRun,
    IngestProfile,
    Reduce,
    Storage,
    StorageProfile,
)
from rackproof.core.evidence import Scope
from rackproof.core.fiojob import layout_of
from rackproof.core.rack import Rack, fold
from rackproof.core.units import convert
from rackproof.core.wording import scaled

FIO, CONNECTIONS, GDS, SMALL, CONTAINER = "fio", "connections", "gds", "small", "container"
"""Kinds of files that clients have each for themselves. Those of ``SMALL`` are removed by the step that makes them."""
_KINDS: Final = {
    "connections": CONNECTIONS, "transports": CONNECTIONS, "mounts": CONNECTIONS, "gds": GDS,
    "small-files": SMALL, "metadata": SMALL, "join": "",
}  # fmt: skip
"""By the last part of a storage step's id; the files of all others are fio's. A join's are too small to count."""
_SHARDS: Final[Any] = shards_node
_RECORD: Final = ("dataset.record_length_bytes", "dataset.record_length")
"""DLIO's key for the mean size of a sample, and the key of older versions."""


class FileSet(NamedTuple):
    """Files that a storage holds once for all readers."""

    name: str
    bytes: int | None
    """As declared, at most for a tree; None: not known before the run."""
    nodes: tuple[str, ...]
    """Nodes on whose drives the files are; for a shared storage one node that sees them."""
    entries: str = ""
    """Folder with an entry for each complete shard; empty for files without one."""
    shards: int = 0
    folder: str = ""
    """Folder whose earlier files the run removes or overwrites."""

    @property
    def stays(self) -> bool:
        """Whether a later run finds them; trees are removed by their steps."""
        return bool(self.entries or self.folder)

    def left(self, complete: int) -> int:
        """Bytes to be written where so many shards are complete."""
        size = self.bytes or 0
        return size - size * min(complete, self.shards) // self.shards if self.shards else size


class Space(NamedTuple):
    """Files that the benchmarks write on one storage. Steps remove small ones and trees, the end of the stage those of
    clients (``leftovers.py``); data sets stay."""

    storage: str
    clients: tuple[str, ...]
    """Clients that have files of their own."""
    kinds: Mapping[str, int]
    """Bytes of one client, by kind. Writes that are measured overwrite the same files."""
    shared: bool
    """All files are on the same servers; otherwise on each client's own drives."""
    sets: tuple[FileSet, ...] = ()

    @property
    def bytes_each(self) -> int:
        """Bytes of one client's own files."""
        return sum(self.kinds.values())

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes that see all of the files."""
        return tuple(dict.fromkeys((*self.clients, *(node for files in self.sets for node in files.nodes))))

    @property
    def needed(self) -> int:
        """Bytes on the servers, or on the drives of the client that has most."""
        return max((self.needed_of(node) for node in self.nodes), default=0)

    def needed_of(self, node: str, complete: Mapping[str, int] = {}) -> int:
        """Bytes on the servers, or on this node's drives. ``complete``: number of complete shards by name of a set."""
        own = self.clients if self.shared else [name for name in self.clients if name == node]
        there = [files for files in self.sets if self.shared or node in files.nodes]
        return self.bytes_each * len(own) + sum(files.left(complete.get(files.name, 0)) for files in there)

    @property
    def first_written(self) -> int:
        """Bytes of the files that several steps or runs use, written once."""
        own = (self.bytes_each - self.kinds.get(SMALL, 0)) * len(self.clients)
        return own + sum((files.bytes or 0) * len(files.nodes) for files in self.sets if files.stays)


def spaces(
    architecture: Architecture, profile_name: str, rack: Rack, steps: Iterable[Step] | None = None
) -> Iterator[Space]:
    """One entry per storage that these steps write files to; None: all steps of the profile.

    Raises ArchitectureError for an unknown profile.
    """
    planned = plan_steps(architecture, profile_name, rack) if steps is None else list(steps)
    profile = architecture.profiles[profile_name]
    kinds: dict[str, dict[str, int]] = {}
    for step in planned:
        match step.id.split("/"):
            case ["storage", name, leg] if profile.storage and (kind := _KINDS.get(leg, FIO)):
                kinds.setdefault(name, {})[kind] = _size(architecture, profile.storage, kind)
            case ["container", name, _] if profile.containers:
                kinds.setdefault(name, {})[CONTAINER] = layout_of([profile.containers.job]).bytes
    sets: dict[str, dict[FileSet, None]] = {}
    if profile.ingest:
        nodes = tuple(node.name for node in rack.group(profile.ingest.members))
        for name, files in _sets(architecture, profile.ingest, planned, nodes):
            sets.setdefault(name, {})[files] = None
    for name in (known for known in architecture.storage if known in kinds or known in sets):
        storage = architecture.storage[name]
        clients = tuple(storage.clients(rack)) if kinds.get(name) else ()
        space = Space(name, clients, kinds.get(name, {}), storage.class_ != "local", tuple(sets.get(name, ())))
        if space.nodes and (space.needed or space.sets):
            yield space


def _size(architecture: Architecture, profile: StorageProfile, kind: str) -> int:
    """Bytes of one client."""
    if kind == CONNECTIONS:
        layout = layout_of_own(profile)
        return layout.bytes if layout else 0
    if kind == GDS:
        gpus = architecture.gpu.count if architecture.gpu else 1
        return profile.gds.threads * profile.gds.file_bytes * gpus if profile.gds else 0
    return profile.tree_bytes if kind == SMALL else layout_of(profile.every_job).bytes


def _sets(
    architecture: Architecture, profile: IngestProfile, steps: Iterable[Step], nodes: tuple[str, ...]
) -> Iterator[tuple[str, FileSet]]:
    """Storages and what ingest steps write there; several steps may name the same. Of the trees only the largest is
    there at a time."""
    trees: dict[str, int] = {}
    for step in steps:
        match step.id.split("/"):
            case ["ingest", storage, name, leg] if leg == TREE:
                trees[storage] = max(trees.get(storage, 0), most_bytes(profile.trees[name]))
            case ["ingest", storage, name, leg] if leg == DLIO:
                folder = dlio_folder_of(architecture.storage[storage], name)
                yield storage, FileSet(f"DLIO's {name}", dlio_bytes(profile.dlio[name]), nodes[:1], folder=folder)
            case ["ingest", _, name, leg]:
                other = profile.jobs[name].beside if leg == BESIDE else None
                for own, dataset in datasets_of(profile, filter(None, (name, other))).items():
                    yield dataset.storage, _of_dataset(architecture.storage[dataset.storage], own, dataset, nodes)
    for storage, size in trees.items():
        yield storage, FileSet("trees", size, nodes[:1])


def _of_dataset(storage: Storage, name: str, dataset: DataSet, nodes: tuple[str, ...]) -> FileSet:
    spec, owners = spec_of(storage, name, dataset), nodes if storage.class_ == "local" else nodes[:1]
    size, shards = _SHARDS.bytes_of(spec), _SHARDS.shards_of(spec)[1]
    return FileSet(f"data set {name}", size, owners, f"{folder_of(storage, name, dataset)}/index", shards)


def dlio_bytes(run: DlioRun) -> int | None:
    """Bytes of DLIO's data set; None unless the profile has the size of a sample: DLIO's configuration is on nodes."""
    try:
        mean = next(float(run.options[key]) for key in _RECORD if key in run.options)
        return int(run.files * int(run.options.get("dataset.num_samples_per_file", "1")) * mean)
    except (StopIteration, ValueError, OverflowError):
        return None


class Writing(NamedTuple):
    """The first writing of a storage's files."""

    storage: str
    bytes: int
    seconds: float | None
    """None: no entry requires an absolute rate of its writes."""
    rate: str = ""
    """That rate, and the entry that requires it."""

    @property
    def line(self) -> str:
        """The line of a dry run."""
        size = f"{self.storage}: writes its files, {scaled(self.bytes, 'B')}, before it measures"
        if self.seconds is None:
            return f"{size}: how long that takes is not known"
        return f"{size}: about {max(1.0, self.seconds):,.0f} s at {self.rate}"


def writings(
    architecture: Architecture, profile_name: str, rack: Rack, steps: Sequence[Step] | None = None
) -> Iterator[Writing]:
    """One entry per storage whose files these steps write first; None: all steps of the profile. Raises
    ArchitectureError."""
    for space in spaces(architecture, profile_name, rack, steps):
        if not space.first_written:
            continue
        entries = (entry for entry in architecture.criteria if isinstance(entry, Criterion))
        rates = ((entry.id, _written_rate(architecture, entry, space)) for entry in entries)
        id_, rate = next(((id_, rate) for id_, rate in rates if rate is not None), ("", None))
        if rate is None:
            yield Writing(space.storage, space.first_written, None)
        else:
            words = f"{scaled(rate, 'B/s')}, as {id_} asks"
            yield Writing(space.storage, space.first_written, space.first_written / rate, words)


def _written_rate(architecture: Architecture, entry: Criterion, space: Space) -> float | None:
    """B/s of all clients together that an entry requires; None: it requires something else."""
    bar = entry.pass_
    value = bar.levels.get(architecture.level or "") if bar.levels else bar.value
    if entry.metric != "storage.write_bandwidth" or bar.op != "ge" or bar.of is not None or not value:
        return None
    if entry.reduce is not Reduce.EACH:
        return None
    together = {"storage": space.storage, "clients": str(len(space.nodes))}
    if not any(all(labels.get(key, own) == own for key, own in together.items()) for _, labels in entry.variants()):
        return None
    rate = convert(value, bar.unit, "B/s")
    return rate if entry.scope is Scope.RACK else rate * len(space.nodes) if entry.scope is Scope.NODE else None


def total_s(steps: Sequence[Step], writings: Sequence[Writing]) -> float:
    """Estimated seconds of all steps, and of the files' first writing as far as it is known."""
    return sum(step.estimate_s for step in steps) + sum(writing.seconds or 0.0 for writing in writings)


def unknown_bytes(writings: Sequence[Writing]) -> int:
    """Bytes of files whose first writing takes an unknown time."""
    return sum(writing.bytes for writing in writings if writing.seconds is None)


def storage_lines(architecture: Architecture, profile_name: str, rack: Rack, steps: Sequence[Step]) -> Iterator[str]:
    """Lines about each storage: the space that its files need, and the bytes that the steps write there."""
    for space in spaces(architecture, profile_name, rack, steps):
        yield from _of_space(space)
        servers = (node.name for node in architecture.storage[space.storage].server_nodes(rack))
        yield f"{space.storage}: {fold(sorted({*space.nodes, *servers}))} drop their caches before each run: {DROP}"
        parts = ["storage", space.storage], ["ingest", space.storage]
        of_storage = [step.writes for step in steps if step.id.split("/")[:2] in parts]
        known = space.first_written + sum(writes.bytes for writes in of_storage)
        timed_s = sum(writes.timed_s for writes in of_storage)
        line = f"{space.storage}: writes {scaled(known, 'B')}: files once, and jobs that write a known number of bytes"
        if timed_s:
            line = (
                f"{space.storage}: writes at least {scaled(known, 'B')}; its timed writes have no known bound:"
                f" {timed_s:,.0f} s of all clients together, {timed_s:,.0f} GB at 1 GB/s of each"
            )
        yield line


def _of_space(space: Space) -> Iterator[str]:
    parts = [f"{fold(space.clients)} write {scaled(space.bytes_each, 'B')} each"] if space.clients else []
    parts += [f"{files.name} {scaled(files.bytes, 'B')}" for files in space.sets if files.bytes is not None]
    if parts:
        where = "on its servers" if space.shared else "on the drives of each"
        yield f"{space.storage}: {', '.join(parts)}: {scaled(space.needed, 'B')} needed {where}"
    for files in space.sets:
        if files.bytes is None:
            yield f"{space.storage}: the size of {files.name} is unknown: its options have no {_RECORD[0]}; not counted"
