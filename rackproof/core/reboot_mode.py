"""What a deploy does about a reboot."""

from __future__ import annotations

import enum


class Mode(enum.Enum):
    """``reboot_mode`` on the command line; without it, ``reboot.allowed`` of the inventory decides."""

    REFUSED = "refused"
    """Reported only."""
    PLANNED = "planned"
    """Reported by a dry run, too."""
    ALLOWED = "allowed"
    ALLOWED_TWO_PASSES = "allowed-two-passes"
    """Done, and nodes stay drained in Slurm: the same deploy follows, with what had to wait for it."""
    FINISH = "finish"
    """The second of them: only reported, and nodes without a reason are given back to Slurm."""
