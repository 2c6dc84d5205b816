"""Error counters and partition keys of RDMA ports, from /sys/class/infiniband."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from rackproof.parse.sysfs import sysfs_command

COUNTERS: Final = sysfs_command("/sys/class/infiniband", "*/ports/*/counters/*", "*/ports/*/hw_counters/*")
PKEYS: Final = sysfs_command("/sys/class/infiniband", "*/ports/*/pkeys/*")

Place = tuple[str, int]
"""RDMA device and port number."""


def parse_rdma_counters(files: Mapping[str, tuple[str, ...]]) -> dict[Place, dict[str, int]]:
    """Counters by port, from the files of ``COUNTERS``; without those that the device lacks (``N/A (no PMA)``)."""
    counters: dict[Place, dict[str, int]] = {}
    for path, lines in files.items():
        match = re.fullmatch(r"([^/]+)/ports/(\d+)/(?:hw_)?counters/(\w+)", path)
        if match and re.fullmatch(r"\d{1,20}", lines[0]):
            counters.setdefault((match[1], int(match[2])), {})[match[3]] = int(lines[0])
    return counters


def parse_pkeys(files: Mapping[str, tuple[str, ...]]) -> dict[Place, frozenset[int]]:
    """Partition keys by port, from the files of ``PKEYS``, without empty entries."""
    keys: dict[Place, frozenset[int]] = {}
    for path, lines in files.items():
        if match := re.fullmatch(r"([^/]+)/ports/(\d+)/pkeys/\d+", path):
            place = match[1], int(match[2])
            values = {int(line, 16) for line in lines if re.fullmatch(r"0x[0-9a-f]{4}", line)} - {0}
            keys[place] = keys.get(place, frozenset()) | values
    return keys


def traffic_class_of(lines: Iterable[str]) -> int | None:
    """``tc/1/traffic_class``: the class of all traffic of the port; None where none is set."""
    classes = [int(match[1]) for line in lines if (match := re.fullmatch(r"Global tclass=(\d{1,3})", line))]
    return classes[0] if classes else None
