"""What may be done about a reboot: words of the inventory, and of ``rackproof deploy``."""

from __future__ import annotations

import enum


class Mode(enum.Enum):
    """What may be done about a reboot: the inventory's ``reboot``."""

    REFUSED = "refused"
    """Reported only."""
    PLANNED = "planned"
    """Reported by a dry run, too."""
    ALLOWED = "allowed"
    ALLOWED_TWO_PASSES = "allowed-two-passes"
    """Done, and nodes stay drained in Slurm: the same deploy follows, with what had to wait for it."""
    FINISH = "finish"
    """The second of them: only reported, and nodes without a reason are given back to Slurm."""
