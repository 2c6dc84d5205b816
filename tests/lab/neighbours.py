"""Checks that notice a live fault beside the one that must: the fault reaches further than its own check."""

from __future__ import annotations

import fnmatch

from rackproof.lab.faults import LiveFault

ALSO: dict[str, tuple[str, ...]] = {
    "link-down": (
        "fabric.*@*",
        "mount.*@gpu-02",
        "base.time_*@gpu-02",
    ),
    "mtu": ("fabric.jumbo@*",),
    "packet-loss": (
        "fabric.*@*",
        "mount.*@gpu-02",
        "base.time_*@gpu-02",
    ),
    "mount-covered": ("mount.*@gpu-02",),
    "nfs-frozen": ("mount.*@*",),
    "mount-missing": ("mount.*@gpu-02",),
    "clock-off": (
        "base.time_*@gpu-02",
        "slurm.*@gpu-02",
    ),
    "clock-stepped": ("base.time_*@gpu-01",),
    "clock-stopped": ("base.time_*@gpu-01",),
    "memory-removed": ("base.sysctl@gpu-02",),  # the kernel recalculates its reserve
    "gpu-lost": ("gpu.*@gpu-01",),
    "tool-empty": ("gpu.*@gpu-02",),
    "tool-truncated": ("gpu.*@gpu-02",),
    "tool-garbled": ("gpu.*@gpu-02",),
    "tool-localised": ("gpu.*@gpu-02",),
    "tool-warnings": ("gpu.nvlink*@gpu-02",),
    "tool-lies": ("gpu.*@gpu-02",),
}
"""By fault: patterns of ``check@node``."""


def may_notice(fault: LiveFault, check: str, node: str) -> bool:
    """Whether the fault explains a result of this check on this node."""
    if (check, node) == (fault.check, fault.seen_on or fault.node):
        return True
    return any(fnmatch.fnmatchcase(f"{check}@{node}", pattern) for pattern in ALSO.get(fault.name, ()))
