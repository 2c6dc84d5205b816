"""Readers by name: they turn a benchmark's raw outputs into samples, companions and conditions.

Benchmarks and ``rackproof judge`` use the same readers, so that a number that contradicts its raw output is found. If a
reader's rules change its numbers, the format of the evidence changes.
"""

from __future__ import annotations

from typing import Final

from rackproof.bench.collectives.group_reader import read_groups
from rackproof.bench.collectives.guest_reader import read_guests
from rackproof.bench.collectives.reader import read_collectives
from rackproof.bench.containers.reader import read_containers
from rackproof.bench.drives.reader import read_drives
from rackproof.bench.gpu.reader import read_gpus
from rackproof.bench.ingest.reader import read_ingest
from rackproof.bench.ingest.real import METRIC as UTILISATION
from rackproof.bench.links.reader import read_links
from rackproof.bench.reading import Reader
from rackproof.bench.storage.reader import read_storage
from rackproof.core.metrics import BESIDE_METRICS

READERS: Final[dict[str, Reader]] = {
    "collective": read_collectives,
    "container": read_containers,
    "drive": read_drives,
    "gpu": read_gpus,
    UTILISATION: read_ingest,
    "group": read_groups,
    "guest": read_guests,
    **dict.fromkeys(("ingest", "inference", "mixed", "sizing"), read_ingest),
    **dict.fromkeys(BESIDE_METRICS, read_storage),
    "link": read_links,
    **dict.fromkeys(("storage", "checkpoint", "join"), read_storage),
}
"""By first part of a metric, or by the whole."""


def reader_of(metric: str) -> Reader | None:
    """The reader of a metric; None without one."""
    return READERS.get(metric) or READERS.get(metric.partition(".")[0])
