"""A capacity plan for the terminal: a table of stages, then questions and answers."""

from __future__ import annotations

from rich.box import SIMPLE
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rackproof.core.sizing import words
from rackproof.core.sizing.answer import Answer
from rackproof.core.sizing.answers import Memo
from rackproof.core.sizing.model import Phase
from rackproof.core.wording import exact
from rackproof.report.sizing import stage_rows

SHOWN = 5
"""Maximum number of inputs listed with an answer; page and JSON list all."""


def print_memo(memo: Memo, console: Console) -> None:
    """Print the plan. All output is ``Text``, so that titles of files are never parsed as markup."""
    inputs = memo.inputs
    console.print(Text(f"Capacity plan: {memo.title}", style="bold"))
    for tenant in inputs.tenants:
        nodes = words.count(tenant.share * inputs.system.nodes, "node")
        console.print(
            Text(
                f"  {tenant.name}: {tenant.title} ({tenant.kind}), {nodes} × {exact(inputs.system.gpus_per_node)} GPUs"
            )
        )
    units = f"{exact(inputs.system.unit.count)} × {inputs.unit_title}"
    console.print(Text(f"  storage: {units}"))
    for phase in memo.view.phases:
        console.print()
        console.print(_stages(phase))
    unknown = dict.fromkeys(
        f"{row.title}: {row.remark}" for phase in memo.view.phases for row in stage_rows(phase) if row.remark
    )
    for line in unknown:
        console.print(Padding(Text(line, style="dim"), (0, 0, 0, 2), expand=False))
    for answer in (*memo.answers, *memo.pointers):
        _print_answer(answer, console)


def _stages(phase: Phase) -> Table:
    caches = "caches cold" if phase.name == "first epoch" else "caches full"
    title = f"{phase.name.capitalize()}, {caches}; rates of each stage at its ceiling"
    table = Table(box=SIMPLE, pad_edge=False, show_edge=False, title=title, title_justify="left")
    table.add_column("stage", overflow="fold")
    for name in ("samples/s", "into GPUs", "used", "ceiling"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    pace = "<- tightest known" if phase.unknown else "<- bottleneck"
    for row in stage_rows(phase):
        if row.remark:
            continue
        style = "bold" if row.binding else ""
        cells = (row.title, row.samples, row.bandwidth, row.used, row.ceiling)
        table.add_row(*(Text(cell, style=style) for cell in cells), Text(pace if row.binding else ""))
    return table


def _print_answer(answer: Answer, console: Console) -> None:
    console.print()
    console.print(Text(answer.question, style="bold"))
    for sentence in answer.says:
        console.print(Padding(Text(sentence), (0, 0, 0, 2), expand=False))
    if answer.depends_on:
        shown = [
            f"{d.input} {d.value}" + (f", changes at {d.tips_at}" if d.tips_at else "")
            for d in answer.depends_on[:SHOWN]
        ]
        more = len(answer.depends_on) - SHOWN
        shown += [f"{more} more"] if more > 0 else []
        console.print(Padding(Text(f"depends on: {'; '.join(shown)}", style="dim"), (0, 0, 0, 2), expand=False))
