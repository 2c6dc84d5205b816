"""Base types of a reference architecture: names, figures and their sources."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
Sentence = Annotated[str, StringConstraints(min_length=3, strip_whitespace=True)]
ClaimId = Annotated[str, StringConstraints(pattern=r"^[A-Z]+[0-9]+$")]
"""``A3``: a row of the table of claims that the architecture is checked against."""


def _text_of_integer(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


LabelValue = Annotated[str, BeforeValidator(_text_of_integer), StringConstraints(min_length=1)]
"""Labels are text in evidence; a file may write ``bytes: 1048576``."""

Claims = Annotated[tuple[ClaimId, ...], BeforeValidator(_several)]
"""``claim: A3`` or ``claim: [A3, T7]``."""


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)


class SourceStatus(StrEnum):
    VERIFIED = "verified"
    """Read in the document."""
    DERIVED = "derived"
    """Arithmetic on verified figures."""
    PROPOSED = "proposed"
    """The kit's own proposal."""
    UNVERIFIED = "unverified"
    """Common knowledge; no source was read."""


class Source(Model):
    """Origin of a figure, and how reliable it is."""

    doc: str
    status: SourceStatus
    edition: str | None = None
    """Version, date or commit, where figures differ between editions."""


class Figure(Model):
    """One number with its unit and its source. An unpublished number is ``null``, with a note."""

    value: float | None
    unit: str
    source: str
    """A key of ``metadata.sources``."""
    note: str | None = None


class Weakening(Model):
    """One key that demands less than the published architecture."""

    id: str
    """``criteria.gpu.d2h``, or the section: ``gpu``."""
    key: str
    """Below ``id``: ``pass.value``; empty where all of it is meant."""
    published: str
    here: str
    reason: str | None = None
    by: str | None = None

    @property
    def path(self) -> str:
        return f"{self.id}.{self.key}" if self.key else self.id


class Metadata(Model):
    id: Identifier
    version: str
    title: Sentence
    scope: Sentence
    """What a certificate against this file covers, and what not."""
    sources: dict[str, Source]
    derived_from: tuple[str, ...] = ()
    """Parents, nearest first, of a merged file; set by the kit, never in a file."""
    compared_with: str | None = None
    """The published architecture that ``weakened`` refers to; set by the kit, never in a file."""
    weakened: tuple[Weakening, ...] = ()
    """What demands less than in ``compared_with``; set by the kit, never in a file."""
    edited: bool = False
    """The kit's own file, here or among those that it extends, is not the one that was published; set by the kit."""


class Claim(Model):
    """One published claim about the system.

    Criteria, curves, checks and expectations that name its id under ``claim:`` check it.
    """

    says: Sentence
    figure: str | None = None
    """As published, with its unit; null where the source gives none."""
    source: str
    not_checkable: Sentence | None = None
    """Why no criterion or check covers it."""


class Count(Model):
    """How many nodes of a role a rack may have."""

    min: int = Field(default=1, ge=0)
    max: int | None = None
