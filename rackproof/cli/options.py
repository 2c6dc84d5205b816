"""Options shared by several commands."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A range of finite numbers: click's own ranges accept ``nan``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number


REPORTS = Path("reports")
FOLDER = click.Path(path_type=Path, file_okay=False)

limit_option = click.option(
    "--limit", metavar="NODES", multiple=True,
    help="Only these nodes: gpu-[01-16], gpu-0*, a group, gpu!gpu-03, !storage; separated by commas or repeated.",
)  # fmt: skip
"""Patterns of ``Rack.select``; none selects all nodes."""
architecture_option = click.option("--architecture", help="Id or file.  [default: the inventory's own]")
profile_option = click.option(
    "--profile",
    help="Size of the benchmarks: the architecture's, or smoke (minutes, never certifies).  [default: lab on a virtual "
    "rack, else full]",
)
output_option = click.option("--output", type=FOLDER, default=REPORTS, show_default=True, help="Folder of the runs.")
data_option = click.option("--data", multiple=True, help="key=value, overrides group data; repeatable.")
diff_option = click.option("--diff", is_flag=True, help="Show the differences of files.")
quiet_option = click.option("--quiet", is_flag=True, help="Print only the result.")
progress_option = click.option("--json", "as_json", is_flag=True, help="Progress (stderr) and result (stdout) as JSON.")


def options(*several: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several options and arguments as one decorator, in their order in the help."""

    def decorated(function: Any) -> Any:
        for option in reversed(several):
            function = option(function)
        return function

    return decorated
