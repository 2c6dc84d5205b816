"""Jinja for the kit's pages: one environment, in which everything is escaped."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rackproof.core.visible import visible
from rackproof.report import plots, quantities
from rackproof.report.statements import fold_subjects, subject_text


@cache
def environment() -> Environment:
    """Jinja with the filters of the kit's pages; everything is escaped."""
    env = Environment(
        loader=PackageLoader("rackproof.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    env.filters |= {
        "quantity": quantities.quantity,
        "significant": quantities.significant,
        "duration": quantities.duration,
        "moment": quantities.moment,
        "size": quantities.size,
        "fold": fold_subjects,
        "subject": subject_text,
        "described": plots.summary_of,
        "slug": lambda status: str(status).lower().replace(" ", "-"),
    }
    return env


def _printable(value: Any) -> Any:
    """Show control characters of every expression that is not markup: it may come from a node."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
