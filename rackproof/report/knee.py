"""The searches for the knee of each storage: plots of latency and rate against load, a table of peaks and fits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rackproof.core.grouping import grouped
from rackproof.core.knee import LEAST_LOADS
from rackproof.core.wording import counted, exact
from rackproof.report.plots import LinePlot, line_plot
from rackproof.report.quantities import ABSENT, significant
from rackproof.report.schema import Certificate
from rackproof.report.tables import Cell, Column, Row, Table, bytes_text

_CLOSED: Final = "Requests in flight (closed loop)"
_OPEN: Final = "Random arrivals (open loop)"
_LOADS: Final = (
    Column("knee", "requests", _CLOSED),
    Column("highest rate", "requests/s", _CLOSED),
    Column("reached at", "requests", _CLOSED),
    Column("knee", "requests/s", _OPEN),
    Column("share of the highest rate", "%", _OPEN),
)
_LAW: Final = (
    Column("rate of one", "requests/s"),
    Column("contention", "%"),
    Column("coherency", "%"),
    Column("highest rate at", "requests"),
    Column("deviation", "%"),
)
_OF_LOADS: Final = (
    "Knee: the load at which the 99th percentile of latency is twice that of the lowest load. Latencies are the slowest"
    " client's; rates and requests in flight are those of all clients together."
)
_OF_LAW: Final = (
    "Rate of N requests in flight = rate of one × N / (1 + contention × (N − 1) + coherency × N × (N − 1))."
    " Contention: requests wait for each other, and the rate approaches a limit. Coherency: requests cost each other"
    " work, and the rate falls after its maximum. Small print: 95 % confidence interval. Deviation: root mean square of"
    " the measured rates' relative deviations from the law."
)

_RECORDED: Final = {"steps", "knee", "peak_rate"}
"""Conditions of a search; evidence without one of them is not drawn."""
Steps = Sequence[Mapping[str, float]]
Points = dict[str, list[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Curve:
    """One search of a storage."""

    storage: str
    number: int
    of: int
    """Searches of the storage."""
    sample: float
    """Requests in flight at the knee of a closed loop; rate in % of the highest one at the knee of an open loop."""
    recorded: Mapping[str, Any]
    """As in the conditions of its measurement."""
    block_bytes: str

    @property
    def steps(self) -> Steps:
        steps: Steps = self.recorded["steps"]
        return steps

    @property
    def knee(self) -> Mapping[str, float] | None:
        """None: latency has not doubled, and the sample is a lower bound."""
        knee = self.recorded["knee"]
        return knee if isinstance(knee, Mapping) else None

    @property
    def peak(self) -> tuple[float, float]:
        """Closed loop: requests in flight with the highest rate, and the rate in requests a second."""
        rate = float(self.recorded["peak_rate"])
        step = min(self.steps, key=lambda step: (abs(step["rate"] - rate), step["outstanding"]))
        return step["outstanding"], rate

    @property
    def of_several(self) -> str:
        return f", search {self.number}" if self.of > 1 else ""


def knee_plots(certificate: Certificate) -> tuple[LinePlot, ...]:
    """The first search of each storage: latency and rate against requests in flight, latency against arrivals."""
    plots: list[LinePlot] = []
    for closed, opened in _searches(certificate):
        if closed.number > 1:
            continue
        plots += [*_latency_in_flight(closed), _rate_in_flight(closed)]
        if opened:
            plots += _latency_of_arrivals(opened)
    return tuple(plots)


def load_tables(certificate: Certificate) -> tuple[Table, ...]:
    """One row per search: its knees and highest rate, and the fit of the Universal Scalability Law."""
    searches = list(_searches(certificate))
    if not searches:
        return ()
    loads, laws, remarks = [], [], [_OF_LAW]
    columns = _LOADS if any(opened for _, opened in searches) else _LOADS[:3]
    for closed, opened in searches:
        name = closed.storage + closed.of_several
        if why := _without_fit(closed):
            remarks.append(f"{name}: no fit, because {why}.")
        loads.append(Row(name, (*_closed_cells(closed), *_open_cells(opened))[: len(columns)]))
        laws.append(Row(name, tuple(_law_cells(closed))))
    caption = ", ".join(dict.fromkeys(f"random reads of {bytes_text(closed.block_bytes)}" for closed, _ in searches))
    return (
        Table("Load and latency", caption, "Storage", columns, tuple(loads), (_OF_LOADS,)),
        Table("Fit of the Universal Scalability Law", caption, "Storage", _LAW, tuple(laws), tuple(remarks)),
    )


def _searches(certificate: Certificate) -> Iterator[tuple[Curve, Curve | None]]:
    """Searches with requests in flight, each with the search at random arrivals that follows it, by storage."""
    opened = {(c.storage, c.number): c for c in _curves(certificate, "storage.knee_utilisation")}
    for closed in _curves(certificate, "storage.knee_outstanding"):
        yield closed, opened.get((closed.storage, closed.number))


def _curves(certificate: Certificate, metric: str) -> Iterator[Curve]:
    for m in certificate.measurements:
        if m.metric == metric and m.median is not None:
            name, block, curves = m.labels.get("storage", ""), m.labels.get("block_bytes", ""), m.conditions["curves"]
            for number, (sample, recorded) in enumerate(zip(m.samples, curves, strict=False), start=1):
                if recorded.keys() >= _RECORDED:
                    yield Curve(name, number, len(curves), sample, recorded, block)


def _latency_in_flight(curve: Curve) -> Iterator[LinePlot]:
    unit, series = _percentiles(curve.steps, "outstanding")
    if not series:
        return
    knee = [(curve.sample, f"knee {significant(curve.sample)}")] if curve.knee else []
    across = "requests in flight; both axes logarithmic"
    title = f"{curve.storage}: latency against requests in flight{'' if knee else ', no knee'}{curve.of_several}"
    yield line_plot(title, unit, series, across, x_values=_doublings(curve.steps), log_y=True, marks=knee)


def _rate_in_flight(curve: Curve) -> LinePlot:
    series: Points = {"measured": [(step["outstanding"], step["rate"]) for step in curve.steps]}
    if fit := curve.recorded.get("scalability"):
        rate, contention, coherency = (fit[name][0] for name in ("rate", "contention", "coherency"))
        series["scalability law"] = [
            (n, rate * n / (1 + contention * (n - 1) + coherency * n * (n - 1)))
            for n in dict.fromkeys(step["outstanding"] for step in curve.steps)
        ]
    unit, series = _readable(series, ("requests/s", "1000 requests/s"), 1e5)
    at, _ = curve.peak
    title = f"{curve.storage}: rate against requests in flight{curve.of_several}"
    across = "requests in flight on a logarithmic axis"
    return line_plot(
        title,
        unit,
        series,
        across,
        x_values=_doublings(curve.steps),
        marks=[(at, f"highest rate at {exact(at)}")],
    )


def _latency_of_arrivals(curve: Curve) -> Iterator[LinePlot]:
    unit, series = _percentiles(curve.steps, "load")
    if not series or curve.knee is None:
        return
    title = f"{curve.storage}: latency against the rate of random arrivals{curve.of_several}"
    peak = significant(float(curve.recorded["peak_rate"]))
    yield line_plot(
        title,
        unit,
        series,
        f"arrivals in % of the highest rate, {peak} requests/s; latency on a logarithmic axis",
        x_scale=float,
        x_values=range(0, 101, 20),
        log_y=True,
        marks=[(curve.knee["load"], f"knee {significant(curve.knee['rate'])} requests/s")],
    )


def _percentiles(steps: Steps, load: str) -> tuple[str, Points]:
    """Unit and points of each percentile; a percentile of 0 was not reported."""
    points = grouped(
        (name.removesuffix("_us"), (float(step[load]), float(step[name])))
        for step in steps
        for name in step
        if name.startswith("p") and step[name] > 0
    )
    return _readable(points, ("us", "ms"), 1e4)


def _readable(points: Points, units: tuple[str, str], most: float) -> tuple[str, Points]:
    """Unit and points; in the second unit, 1,000 of the first, if a number is above ``most``."""
    if all(y <= most for line in points.values() for _, y in line):
        return units[0], points
    return units[1], {name: [(x, y / 1000) for x, y in line] for name, line in points.items()}


def _doublings(steps: Steps) -> tuple[float, ...]:
    """At most seven powers of two among the requests in flight; empty if they include none: then the plot marks the
    steps."""
    loads = [step["outstanding"] for step in steps]
    powers = range(math.ceil(math.log2(min(loads))), math.floor(math.log2(max(loads))) + 1)
    return tuple(2.0**power for power in powers[:: math.ceil(len(powers) / 7) or 1])


def _closed_cells(curve: Curve) -> Iterable[Cell]:
    at, rate = curve.peak
    yield Cell(f"{'' if curve.knee else 'above '}{significant(curve.sample)}")
    yield Cell(significant(rate))
    yield Cell(exact(at))


def _law_cells(curve: Curve) -> Iterable[Cell]:
    fit = curve.recorded.get("scalability")
    if fit is None:
        yield from [Cell(ABSENT)] * 5
        return
    for name, factor in (("rate", 1), ("contention", 100), ("coherency", 100)):
        value, low, high = (number * factor for number in fit[name])
        yield Cell(significant(value), f"{significant(low)} to {significant(high)}" if value else "below 0, left out")
    peak, most = fit["peak"], max(step["outstanding"] for step in curve.steps)
    if peak is None:
        yield Cell(ABSENT, "no maximum")
    else:
        yield Cell(significant(peak), "above the loads measured" if peak > most else "")
    yield Cell(significant(100 * fit["error"]))


def _without_fit(curve: Curve) -> str:
    """Why there is no fit; empty with one."""
    if "scalability" in curve.recorded:
        return ""
    loads = len({step["outstanding"] for step in curve.steps if step["rate"] > 0})
    if loads < LEAST_LOADS:
        return f"the search has {counted(loads, 'load')}, and a fit needs {LEAST_LOADS}"
    return "the measured rates do not determine the rate of one request in flight"


def _open_cells(curve: Curve | None) -> Iterable[Cell]:
    if curve is None or curve.knee is None:
        yield from [Cell(ABSENT)] * 2
    else:
        yield Cell(significant(curve.knee["rate"]))
        yield Cell(significant(curve.sample))
