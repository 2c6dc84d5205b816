"""Options shared by several commands."""

from __future__ import annotations

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A range of finite numbers: ``nan`` lies in every range of click's own."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number


LIMIT_HELP = "Only these nodes: gpu-[01-16], gpu-0*, a group, gpu!gpu-03, !storage; separated by commas or repeated."

limit_option = click.option("--limit", metavar="NODES", multiple=True, help=LIMIT_HELP)
"""Patterns of ``Rack.select``; none selects all nodes."""
