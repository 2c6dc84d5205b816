"""Baseline of link counters: their values when acceptance began."""

from __future__ import annotations

from typing import Final

from rackproof.parse.text import UUID, matched, whole_lines

BASELINE_FILE: Final = "/var/lib/rackproof/nic/link-counters"
"""First line: boot id for which it is valid. Then ``NAME NUMBER``: an interface and how often its link went down, or
an RDMA device's port (``mlx5_0/1``) and its ``link_downed``."""
BASELINE: Final = f"cat /proc/sys/kernel/random/boot_id {BASELINE_FILE} 2>/dev/null"


def parse_baseline(output: str | bytes) -> dict[str, int] | None:
    """Output of ``BASELINE``; None without a baseline of this boot."""
    boot, *lines = whole_lines("cat", output)
    matched("cat", UUID, boot, "a boot id")
    if lines[:1] != [boot]:
        return None
    counters = {}
    for line in lines[1:]:
        match = matched("cat", r"(\S+) (\d{1,9})", line, "a link counter")
        counters[match[1]] = int(match[2])
    return counters
