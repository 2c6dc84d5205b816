"""Progress of a run."""

from __future__ import annotations

STAGES = ("connect", "deploy", "validate", "bench", "judge")


class Display:
    """Prints nothing; terminal, plain lines and JSON override it."""

    def stage(self, name: str, estimate_s: float | None) -> None:
        """A stage begins."""

    def step(self, title: str, index: int, total: int, left_s: float | None) -> None:
        """A step of the current stage begins; ``left_s``: estimated seconds until the stage ends."""

    def waiting(self, text: str) -> None:
        """Nodes that have not answered for a while, and the command that they run."""

    def line(self, text: str) -> None:
        """A line to print now."""
