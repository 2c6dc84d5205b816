"""``rackproof size``: capacity planning."""

from __future__ import annotations

from pathlib import Path

import click

from rackproof import architectures
from rackproof.atomic_write import write_output
from rackproof.cli.terminal import print_document, say
from rackproof.errors import SizingError


@click.command()
@click.argument("arch")
@click.option(
    "--workload", "-w", "workloads", multiple=True, metavar="NAME[:PART]",
    help="A workload of ARCH. PART is its part of the nodes: 7 (nodes) or 75%. Workloads without a part share the "
    "remaining nodes evenly.  [default: the only one]",
)  # fmt: skip
@click.option(
    "--set", "settings", multiple=True, metavar="INPUT=VALUE",
    help="Change an input, with its unit: nodes=18, port_rate=25Gb/s, unit.count=3, rate_per_gpu=1786, "
    "unit.read_iops=unknown. With several workloads, for one of them: resnet50.rate_per_gpu=1786.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The whole plan as JSON (rackproof.sizing/v1).")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write the plan as a page, with curves.")
@click.option("--svg", type=click.Path(path_type=Path, file_okay=False), help="Write the two curves into this folder.")
def size(
    arch: str, workloads: tuple[str, ...], settings: tuple[str, ...], as_json: bool, html: Path | None, svg: Path | None
) -> None:
    """Plan the capacity of ARCH (id or file): the bottleneck, and how much storage and network are needed.

    Nothing is measured, and no node is contacted. A figure that is absent in the file is reported as unknown, never
    guessed. Example with two workloads:

        rackproof size dell-isilon-f800-dgx1 -w resnet50:6 -w inception4-large:3 --set nodes=9
    """
    from rackproof.core.sizing.answers import memo
    from rackproof.core.sizing.document import to_json
    from rackproof.core.sizing.inputs import inputs_of, parse_choice

    architecture = architectures.load(arch).model
    plan = memo(architecture, inputs_of(architecture, [parse_choice(w) for w in workloads], settings))
    files: dict[Path, str] = {}
    if html or svg:
        from rackproof.report.sizing import render_page, render_svgs

        files |= {html: render_page(plan)} if html else {}
        files |= {svg / name: text for name, text in render_svgs(plan).items()} if svg else {}
    for folder in (html.parent if html else None, svg.parent if svg else None):
        if folder is not None and not folder.is_dir():
            raise SizingError(f"{folder}: cannot be written to (no such folder)")
    if svg:
        svg.mkdir(exist_ok=True)
    for path, text in files.items():
        write_output(path, text, SizingError)
    if as_json:
        print_document(to_json(plan))
        return
    from rich.console import Console

    from rackproof.report.sizing_memo import print_memo

    print_memo(plan, Console())
    for path in files:
        say(f"written: {path}")
