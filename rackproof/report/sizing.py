"""A capacity plan as a page, as two plots (latency against load, throughput against GPUs) and in a certificate.

As in ``plots``, this module has the geometry, ``templates/sizing.svg.j2`` the markup. On a page the plots use its style
sheet; SVG files contain their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from rackproof.report.plots import WIDTH, Line, LinePlot, Mark, Tick, nice_ticks, y_ticks
from rackproof.report.schema import SizingSummary

LATENCY, SCALE = "latency-against-load", "throughput-against-gpus"
_LEFT, _RIGHT, _TOP, _FOOT, _HEIGHT = 42.0, 12.0, 30.0, 36.0, 232.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture(LinePlot):
    x_title: str
    described: str
    """Text alternative, for screen readers."""


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


def pictures(memo: Memo) -> dict[str, Picture]:
    """Both curves by the name of their file."""
    return curve_pictures(latency_against_load(memo.view), throughput_against_gpus(memo.inputs))


def curve_pictures(latency: LatencyCurve | None, throughput: ScaleCurve | None) -> dict[str, Picture]:
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


def _latency_picture(curve: LatencyCurve) -> Picture:
    in_time = all(p.latency_s is not None for p in curve.points)
    values = [(p.load, (p.latency_s or 0.0) * 1e3 if in_time else p.times) for p in curve.points]
    top = values[-1][1]
    y_values = nice_ticks(top)
    marks = [(curve.planned, f"planned {words.percent(curve.planned)}")]
    if curve.here is not None and curve.here <= 1:
        marks.append((curve.here, f"here {words.percent(curve.here)}"))
    unit = "milliseconds a read" if in_time else "times the unloaded latency"
    at_planned = 1 / (1 - curve.planned) if curve.planned < 1 else None
    caption = f"Read latency against the load of the storage, in {unit}: twice the unloaded latency at half load"
    caption += f", {words.number(at_planned)} times at the planned load." if at_planned else "."
    return _picture(
        "Latency against load",
        unit,
        "load of the storage, M/M/1",
        caption,
        x_values=[(x / 10, f"{x * 10} %") for x in range(0, 11, 2)],
        y_values=y_values,
        series={"open loop": values},
        marks=marks,
    )


def _scale_picture(curve: ScaleCurve) -> Picture | None:
    supply = [(float(p.gpus), p.samples_per_s) for p in curve.points if p.samples_per_s is not None]
    demand = [(float(p.gpus), p.asked) for p in curve.points if p.asked is not None]
    if not supply:
        return None
    series = {"rack delivers": supply} | ({"GPUs consume": demand} if demand else {})
    last = curve.points[-1]
    y_values = nice_ticks(max(y for points in series.values() for _, y in points))
    x_values = [(x, f"{x:,.0f}") for x in nice_ticks(last.gpus) if x <= last.gpus]
    caption = f"Samples a second against the number of GPUs, up to {last.gpus}"
    caption += f"; there the bottleneck is {last.stage}." if last.stage else "."
    return _picture(
        "Throughput against GPUs",
        "samples/s, caches cold",
        "GPUs",
        caption,
        x_values=x_values,
        y_values=y_values,
        series=series,
        marks=[(float(curve.here), f"here {curve.here}")],
        last_x=float(last.gpus),
    )


def _picture(
    title: str,
    unit: str,
    x_title: str,
    described: str,
    *,
    x_values: Sequence[tuple[float, str]],
    y_values: Sequence[float],
    series: dict[str, list[tuple[float, float]]],
    marks: Sequence[tuple[float, str]],
    last_x: float = 1.0,
) -> Picture:
    left, right, top, bottom = _LEFT, WIDTH - _RIGHT, _TOP, _HEIGHT - _FOOT

    def x_of(x: float) -> float:
        return round(left + x / last_x * (right - left), 1)

    def y_of(y: float) -> float:
        return round(bottom - y / y_values[-1] * (bottom - top), 1)

    step = (WIDTH - left) / len(series)
    lines = (
        Line(name, tuple((x_of(x), y_of(y)) for x, y in points), round(left + i * step, 1), 8.0)
        for i, (name, points) in enumerate(series.items())
    )
    return Picture(
        title, unit, _HEIGHT, left, right, top, bottom,
        tuple(Tick(x_of(x), text) for x, text in x_values), y_ticks(y_values, y_of), tuple(lines),
        x_title=x_title, described=described, marks=_marks(sorted(marks), last_x, x_of, top + 10),
    )  # fmt: skip


def _marks(
    marks: Sequence[tuple[float, str]], last_x: float, x_of: Callable[[float], float], y: float
) -> tuple[Mark, ...]:
    """Marks with text outside of the pair, so that no line crosses a text."""
    placed = []
    for i, (x, text) in enumerate(marks):
        leftmost = i == 0 and (len(marks) > 1 or x > last_x / 2)
        placed.append(Mark(x_of(x), text, "end" if leftmost and x > last_x / 4 else "start", y + 14 * i))
    return tuple(placed)
