"""One prediction of the sizing model beside what was measured, and its sentence."""

from __future__ import annotations

from typing import NamedTuple

from rackproof.core.sizing import words


class Comparison(NamedTuple):
    """One prediction and its measurement."""

    subject: str
    """``read of nfs-tcp``, or a workload."""
    unit: str
    """``B/s`` or ``samples/s``."""
    predicted: float | None
    predicted_stage: str | None
    measured: float | None
    measured_stage: str | None
    directly: bool = True
    """False: the workload was not run; this is the model's answer with measured links and storage."""
    basis: str = ""
    """Figures that the prediction follows from; empty: declared figures only."""

    @property
    def agrees(self) -> bool | None:
        """Whether the bottleneck is the predicted one; None where either is unknown."""
        if self.predicted_stage is None or self.measured_stage is None:
            return None
        return self.predicted_stage == self.measured_stage

    @property
    def line(self) -> str:
        """``read of nfs: predicted 30 GB/s, set by storage bandwidth; measured …``."""
        verdict = {True: "bottleneck as predicted", False: "another bottleneck", None: "nothing to compare"}[
            self.agrees
        ]
        if self.predicted and self.measured is not None:
            share = self.measured / self.predicted
            verdict += f", {words.percent(share)} of the rate, an error of {words.percent(abs(share - 1))}"
        how = "measured" if self.directly else "with links and storage as measured"
        predicted = self._described(self.predicted, self.predicted_stage)
        measured = self._described(self.measured, self.measured_stage)
        basis = f" from {self.basis}" if self.basis else ""
        return f"{self.subject}: predicted{basis} {predicted}; {how} {measured} ({verdict})"

    def _described(self, value: float | None, stage: str | None) -> str:
        if value is None:
            return "unknown"
        rate = words.bandwidth(value) if self.unit == "B/s" else f"{words.number(value)} {self.unit}"
        return f"{rate}, set by {stage or 'an unknown stage'}"
