"""The certificate's sizing section: the predicted and the measured bottleneck, and the two curves."""

from __future__ import annotations

from collections.abc import Sequence

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement
from rackproof.core.sizing.curves import latency_against_load, throughput_against_gpus
from rackproof.core.sizing.inputs import Choice, inputs_of
from rackproof.core.sizing.measured import predicted_and_measured
from rackproof.core.sizing.view import View
from rackproof.errors import SizingError
from rackproof.report.schema import SizingSummary


def sizing_summary(architecture: Architecture, measurements: Sequence[Measurement]) -> SizingSummary | None:
    """Summary with the curves of the architecture's first workload; None if nothing was measured."""
    if not measurements:
        return None
    lines = predicted_and_measured(architecture, measurements).lines
    if architecture.sizing is None or not architecture.workloads:
        return SizingSummary(lines=lines)
    workload = next(iter(architecture.workloads))
    try:
        inputs = inputs_of(architecture, [Choice(workload)])
        return SizingSummary(
            lines=lines,
            workload=workload,
            latency=latency_against_load(View(inputs)),
            throughput=throughput_against_gpus(inputs),
        )
    except SizingError as error:
        return SizingSummary(lines=(*lines, f"no curves: {error}"))
