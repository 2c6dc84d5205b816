"""gdsio of NVIDIA GPUDirect Storage: the line of its result. Source: NVIDIA, Benchmarking and Configuration Guide."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rackproof.parse.errors import ParseError
from rackproof.parse.text import text_of

_TOOL: Final = "gdsio"
_LINE: Final = re.compile(
    r"IoType: (\w+) XferType: (\w+) Threads: (\d+) +DataSetSize: (\d+)/(\d+)\(KiB\) IOSize: (\d+)\(KiB\)"
    r" Throughput: (\d+\.\d+) GiB/sec, Avg_Latency: (\d+\.\d+) usecs ops: (\d+) total_time (\d+\.\d+) secs"
)
_AGREEMENT: Final = 0.02
"""Relative tolerance of the rate against bytes and time."""


class GdsResult(NamedTuple):
    io: str
    """READ, WRITE, RANDREAD …"""
    transfer: str
    """GPUD: between storage and GPU memory."""
    threads: int
    moved_bytes: int
    block_bytes: int
    bytes_per_s: float
    seconds: float


def parse_gdsio(output: str | bytes) -> GdsResult:
    """Raises ParseError without exactly one whole line of a result, and for one that contradicts itself."""
    lines = [line.strip() for line in text_of(_TOOL, output).splitlines() if line.startswith("IoType:")]
    match = _LINE.fullmatch(lines[0]) if len(lines) == 1 else None
    if match is None:
        raise ParseError(_TOOL, f"expected one line of a result, actual {len(lines)}, or it is cut off")
    threads, moved, _, block, rate, _, count, seconds = match.groups()[2:]
    result = GdsResult(
        match[1], match[2], int(threads), int(moved) * 1024, int(block) * 1024, float(rate) * 1024**3, float(seconds)
    )
    by_time, by_count = result.bytes_per_s * result.seconds, int(count) * result.block_bytes
    for name, other in (("its rate × time", by_time), ("its requests", by_count)):
        if abs(other - result.moved_bytes) > _AGREEMENT * max(other, result.moved_bytes):
            raise ParseError(_TOOL, f"it moved {result.moved_bytes} B, {name} {other:.0f} B")
    return result
