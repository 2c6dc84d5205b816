"""Reference architectures, their claims and the vocabulary of metrics as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rackproof.core.architecture.claims import ClaimRow
from rackproof.core.architecture.criterion import Criterion, Curve, Outlier
from rackproof.core.architecture.models import Architecture
from rackproof.core.metrics import METRICS, NOT_YET, Metric

NARROW = 100
"""Below so many columns a table with sentences in it is no table any more."""


def claims_table(rows: Sequence[ClaimRow], console: Console) -> None:
    """Claim, figure, what stands for it, how that is measured, what the virtual rack can verify of it."""
    if console.width < NARROW:
        _claims_list(rows, console)
        return
    table = Table(box=SIMPLE, show_lines=True, header_style="bold", expand=True)
    table.add_column("claim", no_wrap=True)
    for title, ratio in (("says", 3), ("criterion or check", 3), ("measured by", 5), ("virtual rack", 3)):
        table.add_column(title, ratio=ratio)
    for row in rows:
        says = Text(row.says)
        if row.figure:
            says.append(f"\n{row.figure}", style="bold")
        if row.not_checkable is not None:
            table.add_row(row.claim, says, Text("not checkable", style="dim"), Text(row.not_checkable), "")
        for index, way in enumerate(row.ways):
            table.add_row(
                row.claim if index == 0 else "",
                says if index == 0 else "",
                Text(f"{row.architecture}\n", style="dim").append(way.what, style=""),
                _how(way.how, way.today),
                Text(way.lab) if way.lab else Text("nothing", style="dim"),
            )
    console.print(table)
    console.print(Text(claims_summary(rows)))


def _claims_list(rows: Sequence[ClaimRow], console: Console) -> None:
    for row in rows:
        console.print(
            Text.assemble((row.claim, "bold"), f"  {row.says}", (f"  {row.figure}" if row.figure else "", "bold"))
        )
        if row.not_checkable is not None:
            console.print(Text(f"    not checkable: {row.not_checkable}"))
        for way in row.ways:
            console.print(Text(f"    {row.architecture}: {way.what}"))
            console.print(Text("      measured by: ").append_text(_how(way.how, way.today)))
            console.print(Text(f"      virtual rack: {way.lab or 'nothing'}"))
    console.print(Text(claims_summary(rows)))


def _how(how: str, today: bool) -> Text:
    return Text(how) if today else Text("not yet: ", style="yellow").append(how, style="")


def claims_summary(rows: Sequence[ClaimRow]) -> str:
    """``49 claims: 20 measured today, 22 not yet, 7 not checkable``."""
    closed = sum(row.not_checkable is not None for row in rows)
    today = sum(any(way.today for way in row.ways) for row in rows)
    lab = sum(any(way.lab for way in row.ways) for row in rows)
    return (
        f"{len(rows)} claims: {today} can be measured today, {len(rows) - closed - today} not yet, "
        f"{closed} cannot be checked; the virtual rack verifies a part of {lab}"
    )


def claims_json(rows: Iterable[ClaimRow]) -> list[dict[str, Any]]:
    return [row._asdict() | {"ways": [way._asdict() for way in row.ways]} for row in rows]


def metrics_table(console: Console) -> None:
    """The vocabulary, grouped by the first word of the names."""
    table = Table(box=SIMPLE, header_style="bold", expand=True, padding=(0, 1, 0, 0))
    table.add_column("metric", ratio=1)
    for title in ("unit", "better", "scope", "benchmark"):
        table.add_column(title, no_wrap=True)
    for metric in METRICS.values():
        labels = f" [{', '.join(metric.labels)}]" if metric.labels else ""
        table.add_row(
            Text.assemble((metric.name, "bold"), f"\n{metric.meaning}", (labels, "dim")),
            Text(metric.unit),
            "more" if metric.higher_is_better else "less",
            ", ".join(scope.value for scope in metric.scopes),
            Text(metric.benchmark, style="yellow" if metric.benchmark == NOT_YET else ""),
        )
    console.print(table)


def metric_json(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name,
        "unit": metric.unit,
        "better": "more" if metric.higher_is_better else "less",
        "scopes": [scope.value for scope in metric.scopes],
        "labels": list(metric.labels),
        "benchmark": None if metric.benchmark == NOT_YET else metric.benchmark,
        "meaning": metric.meaning,
    }


def contents(architecture: Architecture) -> str:
    """``24 criteria (9 measured today), 2 curves, 3 outliers, 12 claims``."""
    entries: tuple[Criterion | Curve | Outlier, ...] = (
        *architecture.criteria,
        *architecture.curves,
        *architecture.outliers,
    )
    today = sum(METRICS[entry.metric].benchmark != NOT_YET for entry in entries)
    parts = [
        f"{len(listed)} {name if len(listed) != 1 else one}"
        for listed, name, one in (
            (architecture.criteria, "criteria", "criterion"),
            (architecture.curves, "curves", "curve"),
            (architecture.outliers, "outliers", "outlier"),
            (architecture.claims, "claims", "claim"),
        )
        if listed or name == "criteria"
    ]
    measurable = f" ({today} of {len(entries)} measured today)" if entries else ""
    return ", ".join(parts) + measurable
