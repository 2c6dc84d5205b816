"""Readers by name: they turn a benchmark's raw outputs into samples, companions and conditions.

Benchmarks and ``rackproof judge`` use the same readers, so that a number that contradicts its raw output is found. If a
reader's rules change its numbers, the format of the evidence changes.
"""

from __future__ import annotations

from typing import Final

from rackproof.bench.collectives import group_reader, guest_reader
from rackproof.bench.collectives import reader as collective_reader
from rackproof.bench.containers import reader as container_reader
from rackproof.bench.drives import reader as drive_reader
from rackproof.bench.gpu import reader as gpu_reader
from rackproof.bench.ingest import reader as ingest_reader
from rackproof.bench.ingest.real import METRIC as UTILISATION
from rackproof.bench.links import reader as link_reader
from rackproof.bench.reading import Reader
from rackproof.bench.storage import reader as storage_reader
from rackproof.core.metrics import BESIDE_LOSSES

READERS: Final[dict[str, tuple[str, Reader]]] = {
    "collective": (collective_reader.NAME, collective_reader.read_collectives),
    "container": (container_reader.NAME, container_reader.read_containers),
    "drive": (drive_reader.NAME, drive_reader.read_drives),
    "gpu": (gpu_reader.NAME, gpu_reader.read_gpus),
    UTILISATION: (ingest_reader.NAME, ingest_reader.read_ingest),
    "group": (group_reader.NAME, group_reader.read_groups),
    "guest": (guest_reader.NAME, guest_reader.read_guests),
    **dict.fromkeys(("ingest", "inference", "mixed", "sizing"), (ingest_reader.NAME, ingest_reader.read_ingest)),
    **dict.fromkeys(BESIDE_LOSSES, (storage_reader.NAME, storage_reader.read_storage)),
    "link": (link_reader.NAME, link_reader.read_links),
    **dict.fromkeys(("storage", "checkpoint", "join"), (storage_reader.NAME, storage_reader.read_storage)),
}
"""Recorded name and function of the reader, by first part of a metric, or by the whole."""


def reader_of(metric: str) -> tuple[str, Reader | None]:
    """Recorded name and function of a metric's reader; an empty name for none."""
    return READERS.get(metric) or READERS.get(metric.partition(".")[0]) or ("", None)
