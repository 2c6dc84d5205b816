"""Options shared by several commands."""

from __future__ import annotations

import click

LIMIT_HELP = "Only these nodes: gpu-[01-16], gpu-0*, a group, gpu!gpu-03, !storage; separated by commas or repeated."

limit_option = click.option("--limit", metavar="NODES", multiple=True, help=LIMIT_HELP)
"""Patterns for ``Rack.select``; none means all nodes."""
