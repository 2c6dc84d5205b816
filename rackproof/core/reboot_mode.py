"""How a deploy handles reboots."""

from __future__ import annotations

import enum


class Mode(enum.Enum):
    """``reboot_mode`` on the command line; without it, ``reboot.allowed`` of the inventory decides."""

    REFUSED = "refused"
    """Reported only."""
    PLANNED = "planned"
    """Reported, also by a dry run."""
    ALLOWED = "allowed"
    ALLOWED_TWO_PASSES = "allowed-two-passes"
    """Rebooted; nodes stay drained in Slurm until the deploy runs again for what needed the reboot."""
    FINISH = "finish"
    """Second pass: reboots are only reported, and nodes without a reason are resumed in Slurm."""
