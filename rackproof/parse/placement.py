"""Answer of ``rackproof/bench/links/placement.sh``: adapters and GPUs on PCIe, and the NUMA nodes of the adapters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from rackproof.parse.errors import ParseError

TOOL: Final = "PCI devices"
_NUMA: Final = re.compile(r"-1|\d{1,4}")
_PROCESSORS: Final = re.compile(r"\d{1,5}(?:[-,]\d{1,5})*")
_NUMACTL: Final = re.compile(r"/\S*/numactl|no numactl")
_BUILT: Final = re.compile("(?:no )?built perftest")
_LINES: Final = 3
"""Number of lines for each adapter."""


class Place(NamedTuple):
    """Place of one network interface."""

    path: str
    """``/sys/devices/pci0000:15/…/0000:18:00.0``; ``none`` of a port that is no device."""
    numa: int
    """-1: the kernel knows none, as with one socket or a virtual port."""
    processors: str
    """CPUs of the NUMA node in the kernel's list format: ``0-15,32-47``."""


class Places(NamedTuple):
    ports: tuple[Place, ...]
    """In the order in which they were asked about."""
    gpus: tuple[str, ...]
    """Paths of NVIDIA's GPUs."""
    numactl: bool
    """Whether numactl is installed on the node."""
    built: bool
    """Whether the node has perftest with CUDA from the deploy."""


def parse_places(output: str, ports: Sequence[str]) -> Places:
    """Raises ParseError."""
    lines = output.splitlines()
    most = _LINES * len(ports)
    whole = lines[-1:] == ["end"] and len(lines) >= most + 3
    if not (whole and _NUMACTL.fullmatch(lines[-3]) and _BUILT.fullmatch(lines[-2])):
        raise ParseError(TOOL, "the answer is cut off")
    paths, numa, processors = (lines[first:most:_LINES] for first in range(_LINES))
    if strange := [text for text in numa if not _NUMA.fullmatch(text)]:
        raise ParseError(TOOL, f"no NUMA node: {strange[0][:40]!r}")
    for port, where, listed in zip(ports, numa, processors, strict=True):
        if int(where) >= 0 and not _PROCESSORS.fullmatch(listed):
            raise ParseError(TOOL, f"no processors of {port}: {listed[:40]!r}")
    places = map(Place, paths, map(int, numa), processors)
    return Places(tuple(places), tuple(lines[most:-3]), lines[-3] != "no numactl", not lines[-2].startswith("no "))
