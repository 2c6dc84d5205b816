"""Reference architectures, their claims and the vocabulary of metrics as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rackproof.core.architecture.claims import ClaimRow, Way, measured_today
from rackproof.core.architecture.coverage import unjudged
from rackproof.core.architecture.entries import each_entry
from rackproof.core.architecture.models import Architecture
from rackproof.core.metrics import METRICS, NOT_YET, Metric
from rackproof.core.wording import counted

NARROW = 100
"""Columns. A narrower terminal gets a list: a table with sentences in its cells does not fit."""


def claims_table(rows: Sequence[ClaimRow], console: Console) -> None:
    """Print the claims: figure, criterion or check, how it is measured, what the virtual rack verifies."""
    if console.width < NARROW:
        _claims_list(rows, console)
        return
    table = Table(box=SIMPLE, show_lines=True, header_style="bold", expand=True)
    table.add_column("claim", no_wrap=True)
    for title, ratio in (("says", 3), ("criterion or check", 3), ("measured by", 5), ("virtual rack", 3)):
        table.add_column(title, ratio=ratio)
    for row in rows:
        claim_text = Text(row.says)
        if row.figure:
            claim_text.append(f"\n{row.figure}", style="bold")
        if row.not_checkable is not None:
            table.add_row(row.claim, claim_text, Text("not checkable", style="dim"), Text(row.not_checkable), "")
        for index, way in enumerate(row.ways):
            table.add_row(
                row.claim if index == 0 else "",
                claim_text if index == 0 else "",
                Text(f"{row.architecture}\n", style="dim").append(way.what, style=""),
                _how(way),
                _lab(way),
            )
    console.print(table)
    console.print(Text(claims_summary(rows)))


def _claims_list(rows: Sequence[ClaimRow], console: Console) -> None:
    for row in rows:
        head = Text.assemble((row.claim, "bold"), f"  {row.says}", (f"  {row.figure}" if row.figure else "", "bold"))
        console.print(head)
        if row.not_checkable is not None:
            console.print(Padding(Text(f"not checkable: {row.not_checkable}"), (0, 0, 0, 4)))
        for way in row.ways:
            console.print(Padding(Text(f"{row.architecture}: {way.what}"), (0, 0, 0, 4)))
            console.print(Padding(Text("measured by: ").append_text(_how(way)), (0, 0, 0, 6)))
            console.print(Padding(Text("virtual rack: ").append_text(_lab(way)), (0, 0, 0, 6)))
    console.print(Text(claims_summary(rows)))


def _how(way: Way) -> Text:
    return Text(way.how) if way.today else Text("not yet: ", style="yellow").append(way.how, style="")


def _lab(way: Way) -> Text:
    if not way.lab:
        return Text("nothing", style="dim")
    return Text(way.lab) if way.today else Text("when measured: ", style="dim").append(way.lab, style="")


def claims_summary(rows: Sequence[ClaimRow]) -> str:
    """``49 claims: 20 measured today, 22 not yet, 7 not checkable``."""
    closed = sum(row.not_checkable is not None for row in rows)
    today = sum(any(way.today for way in row.ways) for row in rows)
    lab = sum(any(way.lab and way.today for way in row.ways) for row in rows)
    return (
        f"{len(rows)} claims: {today} can be measured today, {len(rows) - closed - today} not yet, "
        f"{closed} cannot be checked; the virtual rack verifies {lab} at least in part"
    )


def claims_json(rows: Iterable[ClaimRow]) -> list[dict[str, Any]]:
    return [row._asdict() | {"ways": [way._asdict() for way in row.ways]} for row in rows]


def metrics_table(console: Console) -> None:
    """Print all metrics, grouped by the first word of their names."""
    table = Table(box=SIMPLE, header_style="bold", expand=True, padding=0)
    table.add_column("metric", ratio=1, min_width=max(map(len, METRICS)))
    for title in ("unit, better", "scope", "benchmark"):
        table.add_column(title)
    for metric in METRICS.values():
        labels = f" [{', '.join(metric.labels)}]" if metric.labels else ""
        table.add_row(
            Text.assemble((metric.name, "bold"), f"\n{metric.meaning}", (labels, "dim")),
            Text(f"{metric.unit}, {'more' if metric.higher_is_better else 'less'}"),
            "\n".join(scope.value for scope in metric.scopes),
            Text(_benchmark(metric), style="yellow" if metric.benchmark == NOT_YET else ""),
        )
    console.print(table)


def _benchmark(metric: Metric) -> str:
    """``collectives; node: not yet``."""
    later = [scope.value for scope in metric.not_yet_of]
    return f"{metric.benchmark}\n{', '.join(later)}: {NOT_YET}" if later else metric.benchmark


def metric_json(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name,
        "unit": metric.unit,
        "better": "more" if metric.higher_is_better else "less",
        "scopes": [scope.value for scope in metric.scopes],
        "labels": list(metric.labels),
        "benchmark": None if metric.benchmark == NOT_YET else metric.benchmark,
        "not_yet": {"scopes": [scope.value for scope in metric.not_yet_of], "labels": list(metric.not_yet_by)},
        "meaning": metric.meaning,
    }


def contents(architecture: Architecture) -> str:
    """``24 criteria (9 measured today), 2 curves, 3 outliers, 12 claims``."""
    entries = [entry for _, entry in each_entry(architecture)]
    today = sum(measured_today(entry) for entry in entries)
    parts = [counted(len(architecture.criteria), "criterion", "criteria")]
    further = {"curve": architecture.curves, "outlier": architecture.outliers, "claim": architecture.claims}
    parts += [counted(len(listed), noun) for noun, listed in further.items() if listed]
    measurable = f" ({today} of {len(entries)} measured today)" if entries else ""
    unused = unjudged(architecture)
    return (
        ", ".join(parts) + measurable + (f"; measured, but without a criterion: {', '.join(unused)}" if unused else "")
    )
