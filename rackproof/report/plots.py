"""Bar and line plots as inline SVG.

This module computes the geometry; ``templates/plots.svg.j2`` is the markup. Unlike Matplotlib's SVG, plots follow the
page's fonts, dark mode and print colours, their text can be selected, and nothing has to be imported for a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rackproof.core.evidence import Scope
from rackproof.core.grouping import grouped
from rackproof.core.status import Status
from rackproof.core.units import sign
from rackproof.core.verdict import Verdict
from rackproof.core.wording import exact, shortened
from rackproof.report.findings import verdicts_about, worst
from rackproof.report.quantities import significant, size
from rackproof.report.schema import Certificate, MeasurementSummary
from rackproof.report.tables import of_all_clients, short_name

BAR_NODES = 8
"""Maximum number of nodes with one bar each; more become a strip with one mark per node."""

WIDTH = 340.0
_LABEL, _VALUE = 74.0, 62.0
_BAR, _GAP, _HEAD = 11.0, 4.0, 21.0
_NAME = 11
_TICKS = 4
_RADIUS = 46.0


@dataclass(frozen=True, slots=True)
class Bar:
    y: float
    width: float
    name: str
    value: str
    status: Status | None
    tick: float | None
    """X offset of the threshold."""


@dataclass(frozen=True, slots=True)
class Strip:
    y: float
    marks: tuple[float, ...]
    median: float
    value: str
    tick: float | None


@dataclass(frozen=True, slots=True)
class BarGroup:
    y: float
    title: str
    bars: tuple[Bar, ...]
    strip: Strip | None


@dataclass(frozen=True, slots=True)
class BarPlot:
    title: str
    unit: str
    height: float
    groups: tuple[BarGroup, ...]
    absent: tuple[str, ...]
    """Storages without a number."""
    width: float = WIDTH
    label_width: float = _LABEL
    bar_height: float = _BAR

    @property
    def has_ticks(self) -> bool:
        bars = [b.tick for g in self.groups for b in g.bars] + [g.strip.tick for g in self.groups if g.strip]
        return any(tick is not None for tick in bars)


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    points: tuple[tuple[float, float], ...]
    legend_x: float
    legend_y: float


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line at a value that the text names."""

    x: float
    text: str
    anchor: str
    y: float


@dataclass(frozen=True, slots=True)
class LinePlot:
    title: str
    unit: str
    height: float
    left: float
    right: float
    top: float
    bottom: float
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    lines: tuple[Line, ...]
    width: float = WIDTH
    across: str = ""
    """Title of the horizontal axis, with the axes that are logarithmic."""
    marks: tuple[Mark, ...] = ()
    caption: str = ""
    """Text alternative; empty: title and names."""
    smooth: bool = False
    """Curves of a model, without marks at their points."""


def storage_plots(certificate: Certificate) -> tuple[BarPlot, ...]:
    """Read and write bandwidth, one group of bars per storage; no plot for a metric without numbers.

    Only plots of small racks show the rack's sum: on a large rack it would make the nodes' marks too short.
    """
    plots = []
    for metric in ("storage.read_bandwidth", "storage.write_bandwidth"):
        selected = [m for m in of_all_clients(certificate.measurements) if m.metric == metric]
        if len({m.subject for m in selected if m.scope is Scope.NODE}) > BAR_NODES:
            selected = [m for m in selected if m.scope is Scope.NODE]
        for label, unit in dict.fromkeys((m.labels.get("block_bytes", ""), m.unit) for m in selected):
            series = [m for m in selected if (m.labels.get("block_bytes", ""), m.unit) == (label, unit)]
            block = f", {size(int(label))} blocks" if label.isdecimal() else ""
            if any(m.median is not None for m in series):
                plots.append(_bar_plot(certificate, f"{short_name(metric).capitalize()}{block}", unit, series))
    return tuple(plots)


def collective_plot(certificate: Certificate) -> LinePlot | None:
    """Bus bandwidth against message size; None without numbers."""
    series: dict[str, list[tuple[float, float]]] = {}
    engines = {m.labels.get("engine") for m in certificate.measurements if m.metric == "collective.busbw"}
    unit = ""
    for m in certificate.measurements:
        count = m.labels.get("bytes", "")
        if m.metric != "collective.busbw" or m.median is None or not count.isdecimal() or int(count) == 0:
            continue
        engine = f" ({m.labels.get('engine')})" if len(engines) > 1 else ""
        series.setdefault(m.labels.get("op", "operation") + engine, []).append((int(count), m.median))
        unit = m.unit
    across = "message size on a logarithmic axis"
    return (
        line_plot("Bus bandwidth against message size", unit, series, across, lambda count: size(int(count)))
        if series
        else None
    )


def scale_plots(certificate: Certificate) -> tuple[LinePlot, ...]:
    """The rack's numbers against the number of clients, one plot per metric; none with a single point."""
    plots = []
    labelled = [m for m in certificate.measurements if "clients" in m.labels and m.median is not None]
    for metric, unit in dict.fromkeys((m.metric, m.unit) for m in labelled):
        series = grouped(
            (m.labels.get("storage", ""), (float(len(m.members)), m.median or 0.0))
            for m in labelled
            if m.metric == metric
        )
        if any(len(points) > 1 for points in series.values()):
            title = f"{short_name(metric).capitalize()} against clients, all together"
            plots.append(line_plot(title, unit, series, "clients on a logarithmic axis"))
    return tuple(plots)


def nice_ticks(top: float) -> tuple[float, ...]:
    """From 0 in steps of 1, 2 or 5 times a power of ten to the first step at or above ``top``."""
    if not top > 0:
        return (0.0, 1.0)
    raw = top / _TICKS
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(factor for factor in (1, 2, 5, 10) if factor * magnitude >= raw * (1 - 1e-9)) * magnitude
    return tuple(i * step for i in range(math.ceil(top / step - 1e-9) + 1))


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """1, 2 and 5 times powers of ten from at or below ``low`` to at or above ``high``; powers alone if many."""
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 2)
    for factors in ((1, 2, 5), (1,)):
        values = [factor * 10.0**power for power in powers for factor in factors]
        first = max((i for i, value in enumerate(values) if value <= low), default=0)
        last = next(i for i, value in enumerate(values) if i > first and value >= high)
        if last - first < 8:
            break
    return tuple(values[first : last + 1])


def _bar_plot(certificate: Certificate, title: str, unit: str, series: Sequence[MeasurementSummary]) -> BarPlot:
    by_storage: dict[str, list[MeasurementSummary]] = {s.name: [] for s in certificate.architecture.storages}
    for m in series:
        by_storage.setdefault(m.labels.get("storage", ""), []).append(m)
    position = {name: i for i, name in enumerate(certificate.node_names)}
    about = verdicts_about(certificate)
    thresholds = {m.subject + m.labels.get("storage", ""): _threshold(m, about(m)) for m in series}
    top = max([m.median or 0.0 for m in series] + [t for t in thresholds.values() if t is not None])
    scale = (WIDTH - _LABEL - _VALUE) / top if top > 0 else 0.0

    def at(value: float | None) -> float | None:
        return None if value is None else round(max(value, 0.0) * scale, 1)

    y, groups, absent = 0.0, [], []
    for name, members in by_storage.items():
        members.sort(key=lambda m: (m.scope is Scope.RACK, position.get(m.subject, len(position)), m.subject))
        measured = [m for m in members if m.median is not None]
        if not measured:
            absent += [name] if members else []
            continue
        first, bars, strip = y, [], None
        y += _HEAD
        if len(members) <= BAR_NODES + 1:
            for m in members:
                value = "unmeasured" if m.median is None else significant(m.median)
                bars.append(
                    Bar(
                        y,
                        at(m.median) or 0.0,
                        shortened(m.subject, _NAME),
                        value,
                        worst(about(m)),
                        at(thresholds[m.subject + m.labels.get("storage", "")]),
                    )
                )
                y += _BAR + _GAP
        else:
            values = sorted(m.median for m in measured if m.median is not None)
            middle = median(values)
            tick = next(
                (t for m in measured if (t := thresholds[m.subject + m.labels.get("storage", "")]) is not None), None
            )
            text = f"{significant(values[0])} to {significant(values[-1])}"
            marks = tuple(dict.fromkeys(round(2 * x) / 2 for v in values if (x := at(v)) is not None))
            strip = Strip(y, marks, at(middle) or 0.0, text, at(tick))
            y += 2 * _BAR + _GAP
        groups.append(BarGroup(first, name, tuple(bars), strip))
        y += 5.0
    return BarPlot(title, sign(unit), y, tuple(groups), tuple(absent))


def _threshold(m: MeasurementSummary, verdicts: Iterable[Verdict]) -> float | None:
    """The highest threshold of a number; None without one, or if its unit differs."""
    bars = []
    for v in verdicts:
        if v.bar_value is None:
            continue
        if v.measured is None and v.unit == m.unit:
            bars.append(v.bar_value)
        elif v.ceiling is not None and v.ceiling_unit == m.unit and v.unit in ("percent", "ratio"):
            bars.append(v.ceiling * v.bar_value / (100 if v.unit == "percent" else 1))
    return max(bars, default=None)


def line_plot(
    title: str,
    unit: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    across: str,
    x_text: Callable[[float], str] = exact,
    *,
    x_scale: Callable[[float], float] = math.log2,
    x_values: Sequence[float] = (),
    log_y: bool = False,
    marks: Iterable[tuple[float, str]] = (),
    caption: str = "",
    smooth: bool = False,
) -> LinePlot:
    """Lines through the points of each series, in the order of their names.

    ``x_values`` are the ticks of the horizontal axis, otherwise those of the points; ``marks`` are values and texts.
    A logarithmic vertical axis needs numbers above 0.
    """
    names = sorted(series)
    columns = 3 if any(len(name) > 8 for name in names) else 4
    rows = math.ceil(len(names) / columns)
    left, right, top = 38.0, WIDTH - 12.0, 12.0 + 18.0 * rows
    height = top + 190.0
    bottom = height - 22.0
    sizes = sorted({x for points in series.values() for x, _ in points})
    span = sorted({*sizes, *x_values})
    low, high = x_scale(span[0]), x_scale(span[-1])
    heights = [y for points in series.values() for _, y in points]
    y_values = log_ticks(min(heights), max(heights)) if log_y else nice_ticks(max(heights))
    y_scale = math.log10 if log_y else float
    base, reach = y_scale(y_values[0]), y_scale(y_values[-1]) - y_scale(y_values[0])

    def x_of(x: float) -> float:
        share = (x_scale(x) - low) / (high - low) if high > low else 0.5
        return round(left + 8 + share * (right - left - 16), 1)

    def y_of(value: float) -> float:
        return round(bottom - (y_scale(max(value, y_values[0])) - base) / reach * (bottom - top), 1)

    label_step = math.ceil(len(sizes) / 6)
    labelled = x_values or sizes[::-1][::label_step][::-1]
    column = (WIDTH - left) / min(columns, len(names))
    words_y, step = (top + 10, 14) if log_y else (bottom - 8, -14)  # where lines that rise leave room
    placed = sorted(marks)
    # With several marks the text of the first is on its left, so that no line crosses a text.
    turn = left + (right - left) / (4 if len(placed) > 1 else 2)
    return LinePlot(
        title=title,
        unit=sign(unit),
        height=height,
        left=left,
        right=right,
        top=top,
        bottom=bottom,
        x_ticks=tuple(Tick(x_of(x), x_text(x)) for x in labelled),
        y_ticks=tuple(Tick(y_of(y), exact(y) if y < 1000 else significant(y)) for y in y_values),
        across=across,
        lines=tuple(
            Line(
                name,
                tuple((x_of(x), y_of(y)) for x, y in sorted(series[name])),
                round(left + column * (i % columns), 1),
                8.0 + 18.0 * (i // columns),
            )
            for i, name in enumerate(names)
        ),
        marks=tuple(
            Mark(x_of(x), text, "end" if i == 0 and x_of(x) > turn else "start", words_y + step * i)
            for i, (x, text) in enumerate(placed)
        ),
        caption=caption,
        smooth=smooth,
    )


def rosette(seed: str) -> str:
    """SVG path of a guilloche, with petals and depth from ``seed``, a hexadecimal hash.

    Decoration only: certificates of different evidence look different. The hash is the proof.
    """
    digits = [int(c, 16) for c in seed if c in "0123456789abcdef"] or [0]
    petals = 9 + digits[0] % 8
    inner = 0.62 + digits[-1] / 16 * 0.2
    turns = 5 + digits[len(digits) // 2] % 3
    steps = 48 * turns
    points = []
    for i in range(steps):
        angle = 2 * math.pi * turns * i / steps
        wave = (1 + math.cos(petals * angle / turns * (turns - 1) + digits[0])) / 2
        r = _RADIUS * (inner + (1 - inner) * wave)
        points.append(f"{r * math.cos(angle):.1f} {r * math.sin(angle):.1f}")
    return f"M{'L'.join(points)}Z"


def summary_of(plot: BarPlot | LinePlot) -> str:
    """Text alternative of a plot, for screen readers."""
    if isinstance(plot, LinePlot):
        if plot.caption:
            return plot.caption
        names = ", ".join([*(line.name for line in plot.lines), *(mark.text for mark in plot.marks)])
        return f"{plot.title}, in {plot.unit}: {names}."
    parts = [
        f"{g.title}: " + (f"{g.strip.value}" if g.strip else ", ".join(f"{b.name} {b.value}" for b in g.bars))
        for g in plot.groups
    ]
    return f"{plot.title}, in {plot.unit}. {'; '.join(parts)}."
