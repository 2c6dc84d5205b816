"""Readers by name: how each benchmark's raw outputs become samples, companions and conditions.

A benchmark gets its numbers from its reader when it measures, and ``rackproof judge`` gets them from the same reader
when it reads the evidence again; so a number that its raw output does not give is found. A reader whose rules change
in a way that makes recorded numbers differ gets a new name, and the old one stays for older evidence.
"""

from __future__ import annotations

from typing import Final

from rackproof.bench.collective_reader import read_collectives
from rackproof.bench.container_reader import read_containers
from rackproof.bench.fio_reader import read_fio
from rackproof.bench.link_reader import read_links
from rackproof.bench.reading import Reader

READERS: Final[dict[str, Reader]] = {
    "collectives": read_collectives,
    "containers": read_containers,
    "fio": read_fio,
    "links": read_links,
}
_BY_METRIC: Final = {"collective": "collectives", "container": "containers", "link": "links", "storage": "fio"}


def reader_of(metric: str) -> str:
    """Name of the reader of a metric, by its first part; empty where the kit does not measure it."""
    return _BY_METRIC.get(metric.partition(".")[0], "")
