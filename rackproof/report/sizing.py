"""A capacity plan as a page, as two plots (latency against load, throughput against GPUs) and in a certificate.

On a page the plots use its style sheet; SVG files contain their own (``templates/sizing.svg.j2``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement
from rackproof.core.sizing import words
from rackproof.core.sizing.answers import Memo
from rackproof.core.sizing.curves import LatencyCurve, ScaleCurve, latency_against_load, throughput_against_gpus
from rackproof.core.sizing.inputs import Choice, inputs_of
from rackproof.core.sizing.measured import predicted_and_measured
from rackproof.core.sizing.model import Phase, Stage
from rackproof.core.sizing.sensitivity import described
from rackproof.core.sizing.view import View, title_of
from rackproof.errors import SizingError
from rackproof.report.environment import environment
from rackproof.report.plots import LinePlot, line_plot, nice_ticks
from rackproof.report.schema import SizingSummary

LATENCY, SCALE = "latency-against-load", "throughput-against-gpus"


@dataclass(frozen=True, slots=True)
class StageRow:
    """Table row of one stage in one phase."""

    title: str
    samples: str
    bandwidth: str
    """Bytes per second into the GPUs with this stage at its ceiling."""
    used: str
    ceiling: str
    binding: bool
    remark: str
    """Why there are no numbers."""


def sizing_summary(architecture: Architecture, measurements: Sequence[Measurement]) -> SizingSummary | None:
    """Summary with the curves of the architecture's first workload; None if nothing was predicted or measured."""
    if not measurements or architecture.sizing is None or not architecture.workloads:
        return None
    lines = predicted_and_measured(architecture, measurements).lines
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


def stage_rows(phase: Phase) -> tuple[StageRow, ...]:
    return tuple(_stage_row(phase, stage) for stage in phase.stages)


def pictures(memo: Memo) -> dict[str, LinePlot]:
    """Both curves by the name of their file."""
    return curve_pictures(latency_against_load(memo.view), throughput_against_gpus(memo.inputs))


def curve_pictures(latency: LatencyCurve | None, throughput: ScaleCurve | None) -> dict[str, LinePlot]:
    """Plots of the curves that have data."""
    drawn = {LATENCY: _latency_picture(latency)} if latency else {}
    scale = _scale_picture(throughput) if throughput else None
    return drawn if scale is None else {**drawn, SCALE: scale}


def render_svgs(memo: Memo) -> dict[str, str]:
    """Self-contained SVG files by name."""
    template = environment().get_template("sizing.svg.j2")
    return {f"{name}.svg": template.module.alone(picture) for name, picture in pictures(memo).items()}  # type: ignore[attr-defined]


def render_page(memo: Memo) -> str:
    """The whole plan as one self-contained page."""
    inputs = memo.inputs
    return (
        environment()
        .get_template("sizing.html.j2")
        .render(
            memo=memo,
            inputs=[(name, described(inputs, name), inputs.origins[name].note or "") for name in named_inputs(memo)],
            phases=[(phase, stage_rows(phase)) for phase in memo.view.phases],
            pictures=list(pictures(memo).values()),
        )
    )


def named_inputs(memo: Memo) -> list[str]:
    """Inputs that have a number, in the order of the file."""
    inputs = memo.inputs
    return [n for n in inputs.names if inputs.value(n) is not None and n.rpartition(".")[2] != "share"]


def _stage_row(phase: Phase, stage: Stage) -> StageRow:
    remark = stage.unused or ("unknown: " + "; ".join(stage.missing) if stage.missing else "")
    sample_bytes = _bytes_per_sample(phase, stage)
    planned = stage.planned
    return StageRow(
        title_of(stage),
        "" if planned is None else words.number(planned),
        "" if planned is None or sample_bytes is None else words.bandwidth(planned * sample_bytes),
        "" if stage.utilisation is None else words.percent(stage.utilisation),
        words.percent(stage.ceiling),
        stage in phase.binding,
        remark,
    )


def _bytes_per_sample(phase: Phase, stage: Stage) -> float | None:
    """Mean over the tenants that use the stage; None if a figure is missing."""
    flows = [f for f in phase.flows if stage.tenant in (None, f.tenant)]
    samples = [f.samples_per_s for f in flows if f.samples_per_s is not None]
    ingest = [f.ingest for f in flows if f.ingest is not None]
    return sum(ingest) / sum(samples) if len(ingest) == len(samples) == len(flows) else None


def _latency_picture(curve: LatencyCurve) -> LinePlot:
    in_time = all(p.latency_s is not None for p in curve.points)
    values = [(p.load, (p.latency_s or 0.0) * 1e3 if in_time else p.times) for p in curve.points]
    marks = [(curve.planned, f"planned {words.percent(curve.planned)}")]
    if curve.here is not None and curve.here <= 1:
        marks.append((curve.here, f"here {words.percent(curve.here)}"))
    unit = "milliseconds a read" if in_time else "times the unloaded latency"
    at_planned = 1 / (1 - curve.planned) if curve.planned < 1 else None
    caption = f"Read latency against the load of the storage, in {unit}: twice the unloaded latency at half load"
    caption += f", {words.number(at_planned)} times at the planned load." if at_planned else "."
    return line_plot(
        "Latency against load", unit, {"open loop": values}, "load of the storage, M/M/1",
        lambda load: f"{100 * load:.0f} %", x_scale=float, x_values=[x / 10 for x in range(0, 11, 2)], marks=marks,
        caption=caption, smooth=True,
    )  # fmt: skip


def _scale_picture(curve: ScaleCurve) -> LinePlot | None:
    supply = [(float(p.gpus), p.samples_per_s) for p in curve.points if p.samples_per_s is not None]
    demand = [(float(p.gpus), p.asked) for p in curve.points if p.asked is not None]
    if not supply:
        return None
    series = {"rack delivers": supply} | ({"GPUs consume": demand} if demand else {})
    last = curve.points[-1]
    caption = f"Samples a second against the number of GPUs, up to {last.gpus}"
    caption += f"; there the bottleneck is {last.stage}." if last.stage else "."
    return line_plot(
        "Throughput against GPUs", "samples/s, caches cold", series, "GPUs", lambda gpus: f"{gpus:,.0f}",
        x_scale=float, x_values=[x for x in nice_ticks(last.gpus) if x <= last.gpus],
        marks=[(float(curve.here), f"here {curve.here}")], caption=caption, smooth=True,
    )  # fmt: skip
