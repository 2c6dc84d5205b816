"""What a profile will do on a rack, before it starts: durations of its steps, and space for its files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from rackproof.bench.step import Step
from rackproof.core.architecture import Architecture, Storage
from rackproof.core.fiojob import layout_of
from rackproof.core.metrics import BESIDE_LOSSES
from rackproof.core.rack import Rack

_WRITTEN: Final = ("storage.", "container.", "checkpoint.", *BESIDE_LOSSES)
"""Beginnings of the metrics whose steps write files."""


class Space(NamedTuple):
    """Files that the storage benchmarks write on one storage and leave until the next run."""

    storage: str
    clients: tuple[str, ...]
    bytes_each: int
    """Of one client. Writes that are measured overwrite the same files."""
    shared: bool
    """All clients' files are on the same servers; otherwise on each client's own drives."""

    @property
    def needed(self) -> int:
        """Bytes on the servers, or on the drives of one client."""
        return self.bytes_each * (len(self.clients) if self.shared else 1)


def spaces(architecture: Architecture, profile_name: str, rack: Rack) -> Iterator[Space]:
    """One entry per storage that files are written to. Raises KeyError for an unknown profile."""
    profile = architecture.profiles[profile_name]
    sizes: dict[str, int] = {}
    if profile.storage:
        jobs = profile.storage.every_job
        size = (layout_of(jobs).bytes if jobs else 0) + profile.storage.tree_bytes
        sizes |= dict.fromkeys(profile.storage.storages or tuple(architecture.storage), size)
        for name in sizes:
            storage = architecture.storage[name]
            of_own_mounts = [
                profile.storage.connections if storage.takes_connections else None,
                profile.storage.transports if storage.over_rdma else None,
            ]
            sizes[name] += sum(layout_of([job]).bytes for job in of_own_mounts if job is not None)
        if profile.storage.gds:
            gpus = architecture.gpu.count if architecture.gpu else 1
            for name in filter(profile.storage.gds.reads, sizes):
                sizes[name] += profile.storage.gds.threads * profile.storage.gds.file_bytes * gpus
    if profile.containers:
        bridged = architecture.containers.bridge if architecture.containers else ()
        size = layout_of([profile.containers.job]).bytes
        for name in profile.containers.storages or bridged:
            sizes[name] = sizes.get(name, 0) + size
    for name, size in sizes.items():
        storage = architecture.storage[name]
        if size and (clients := _clients(storage, rack)):
            yield Space(name, clients, size, storage.class_ != "local")


def spaces_of(steps: Iterable[Step], spaces: Iterable[Space]) -> list[Space]:
    """Those of ``spaces`` that these steps write to; other steps name a storage that they only reach."""
    places = [place for step in steps for place in step.expects]
    names = {place.labels["storage"] for place in places if place.metric.startswith(_WRITTEN)}
    return [space for space in spaces if space.storage in names]


def _clients(storage: Storage, rack: Rack) -> tuple[str, ...]:
    return tuple(node.name for role in storage.client_roles for node in rack.group(role))


def total_s(steps: Sequence[Step]) -> float:
    """Estimated seconds of all steps, without the files' first writing."""
    return sum(step.estimate_s for step in steps)
