"""The scale of a small rack that is certified against the claims of a large one."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Annotated, Final

from pydantic import Field

from rackproof.core.architecture.base import Claims, Identifier, Model, Sentence
from rackproof.core.texts import Line, Name

RATE: Final = "b/s"
READS: Final = "1/s"
"""Units to which limits are converted."""


class Factor(Model):
    """One quantity of the published system, and what it is here."""

    title: Sentence
    published: float = Field(gt=0)
    here: float = Field(gt=0)
    """Both in ``unit``."""
    unit: Line
    reason: Sentence
    """Why the rack has this value."""

    @property
    def times(self) -> float:
        """Factor for bars of the published system."""
        return self.here / self.published


class LeftOut(Model):
    """Entries of the published architecture without a scaled form in this file."""

    of: Annotated[tuple[Identifier, ...], Field(min_length=1)]
    """Ids of its criteria, curves and outliers."""
    claims: Claims = ()
    """Claims of these entries."""
    reason: Sentence
    """Why they are not measured here."""


class Throttle(Model):
    """A limit that a virtual rack has while it is measured, so that the stage binds that bound the published system."""

    published: float = Field(gt=0)
    """Rate of the published system, in ``unit``."""
    unit: Line
    by: Annotated[tuple[Identifier, ...], Field(min_length=1)]
    """Keys of ``scale.factors``: the limit here is the rate times these factors."""
    reason: Sentence

    def times(self, scale: Scale) -> float:
        """The product of its factors. Raises KeyError for an unknown one."""
        return prod(scale.factors[name].times for name in self.by)


class ShapedLink(Throttle):
    """The port of every node of a role sends and receives at most at this rate."""

    role: Name
    rail: int = Field(default=0, ge=0)
    each_connection_of: Identifier | None = Field(default=None, exclude_if=lambda value: value is None)
    """A storage over TCP that the role serves: each of its connections has the limit for itself, in what the node sends
    from the storage's ``port``; the node's port has none."""
    series: bool = Field(default=False, exclude_if=lambda value: not value)
    """Ingest jobs with ``port_gbps`` give it several rates, one after the other."""
    only_series: bool = Field(default=False, exclude_if=lambda value: not value)
    """The port has no limit in any other step."""


class ThrottledDrive(Throttle):
    """The drive behind a storage gives at most so many bytes or reads a second, as its unit says."""

    storage: Identifier
    """Local: the drive of each client is limited; otherwise that of each server."""


class Scale(Model):
    """Which published system the claims of a file are about, and how much smaller the rack is."""

    of: Identifier
    """Id of the published architecture."""
    factors: Annotated[dict[Identifier, Factor], Field(min_length=1)]
    left_out: tuple[LeftOut, ...] = ()
    """Every entry of the published architecture that no entry of this file scales."""
    links: dict[Identifier, ShapedLink] = Field(default_factory=dict, exclude_if=lambda value: not value)
    drives: dict[Identifier, ThrottledDrive] = Field(default_factory=dict, exclude_if=lambda value: not value)
    """Limits of links and drives apply while the rack is measured, and only on virtual machines."""


def throttles(scale: Scale) -> Iterator[tuple[tuple[str, str, str], ShapedLink | ThrottledDrive]]:
    """Every link and drive with its key in the file."""
    for name, link in scale.links.items():
        yield ("scale", "links", name), link
    for name, drive in scale.drives.items():
        yield ("scale", "drives", name), drive


class Scaled(Model):
    """The published bar of an entry, and the factors from it to the entry's own bar."""

    of: Identifier
    """Id of the criterion or curve of the published architecture."""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    """The published bar in ``unit``; of a curve, its efficiency as ``value``."""
    unit: Line = "ratio"
    tolerance_pct: float = Field(default=0.0, ge=0)
    """The published tolerance."""
    by: tuple[Identifier, ...] = ()
    """Keys of ``scale.factors``; none: the bar is as published."""
    note: Sentence | None = None
    """Other differences from the published entry: its metric, a larger tolerance, fewer workloads."""

    def times(self, scale: Scale) -> float:
        """The product of its factors. Raises KeyError for an unknown one."""
        return prod(scale.factors[name].times for name in self.by)
