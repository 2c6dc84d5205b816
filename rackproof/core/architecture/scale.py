"""The scale of a small rack that is certified against the claims of a large one."""

from __future__ import annotations

from math import prod
from typing import Annotated

from pydantic import Field

from rackproof.core.architecture.base import Claims, Identifier, Model, Sentence
from rackproof.core.texts import Line


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
        """What a bar of the published system is multiplied with."""
        return self.here / self.published


class LeftOut(Model):
    """Entries of the published architecture that the file has no form of."""

    of: Annotated[tuple[Identifier, ...], Field(min_length=1)]
    """Ids of its criteria, curves and outliers."""
    claims: Claims = ()
    """Claims that they are about."""
    reason: Sentence
    """Why they are not measured here."""


class Scale(Model):
    """Which published system the claims of a file are about, and how much smaller the rack is."""

    of: Identifier
    """Id of the published architecture."""
    factors: Annotated[dict[Identifier, Factor], Field(min_length=1)]
    left_out: tuple[LeftOut, ...] = ()
    """Every entry of the published architecture that no entry of this file scales."""


class Scaled(Model):
    """The published bar of an entry, and the factors that make the entry's own bar of it."""

    of: Identifier
    """Id of the criterion or curve of the published architecture."""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    """The published bar in ``unit``; of a curve, its efficiency as ``value``."""
    unit: Line = "ratio"
    tolerance_pct: float = Field(default=0.0, ge=0)
    """The published one."""
    by: tuple[Identifier, ...] = ()
    """Keys of ``scale.factors``; none: the bar is as published."""
    note: Sentence | None = None
    """What else differs from the published entry: its metric, a larger tolerance, fewer workloads."""

    def times(self, scale: Scale) -> float:
        """The product of its factors. Raises KeyError for an unknown one."""
        return prod(scale.factors[name].times for name in self.by)
