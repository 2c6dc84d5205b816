"""Readers by name: how each benchmark's raw outputs become samples, companions and conditions.

A benchmark gets its numbers from its reader when it measures, and ``rackproof judge`` gets them from the same reader
when it reads the evidence again; so a number that its raw output does not give is found. A reader whose rules change
in a way that makes recorded numbers differ gets a new name, and the old one stays for older evidence.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from rackproof.bench.collective_reader import read_collectives
from rackproof.bench.container_reader import read_containers
from rackproof.bench.fio_reader import read_fio
from rackproof.bench.link_reader import read_links
from rackproof.bench.proven_collectives import read_proven_collectives
from rackproof.bench.proven_containers import read_proven_containers
from rackproof.bench.proven_links import read_proven_links
from rackproof.bench.reading import Reader
from rackproof.bench.storage_reader import read_storage
from rackproof.core.evidence import PORTS, STORAGE

READERS: Final[dict[str, Reader]] = {
    "collectives": read_collectives,
    "collectives-proven": read_proven_collectives,
    "containers": read_containers,
    "containers-proven": read_proven_containers,
    "fio": read_fio,
    "fio-proven": read_storage,
    "links": read_links,
    "links-proven": read_proven_links,
}
_BY_METRIC: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    # by the first part of a metric: its readers, the newest first, and the proof of the runs that record it
    "collective": (("collectives-proven", PORTS), ("collectives", "")),
    "container": (("containers-proven", STORAGE), ("containers", "")),
    "link": (("links-proven", PORTS), ("links", "")),
    "storage": (("fio-proven", STORAGE), ("fio", "")),
}


def reader_of(metric: str, proofs: Collection[str]) -> str:
    """Name of the reader of a metric in a run with these proofs; empty where the kit does not measure it."""
    known = _BY_METRIC.get(metric.partition(".")[0], ())
    return next((name for name, proof in known if not proof or proof in proofs), "")
