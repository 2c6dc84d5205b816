"""Base types of a reference architecture: names, figures and their sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from rackproof.core.architecture.problem import KeyPath
from rackproof.core.texts import Line, Name, Prose, Version

Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
Sentence = Annotated[Prose, StringConstraints(min_length=3)]
ClaimId = Annotated[str, StringConstraints(pattern=r"^[A-Z]+[0-9]+$")]
"""``A3``: a row of the table of claims that the architecture is checked against."""


def _text_of_integer(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


LabelValue = Annotated[Line, BeforeValidator(_text_of_integer)]
"""Labels are strings in evidence; a file may have ``bytes: 1048576``."""

Claims = Annotated[tuple[ClaimId, ...], BeforeValidator(_several)]
"""``claim: A3`` or ``claim: [A3, T7]``."""


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)


def parts_of(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Model]]:
    """Every model within a value with its path, as files spell it; outer ones first."""
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, tuple):
        items = enumerate(value)
    elif isinstance(value, Model):
        yield path, value
        fields = type(value).model_fields.items()
        items = ((field.alias or name, getattr(value, name)) for name, field in fields)
    for key, inner in items:
        yield from parts_of(inner, (*path, key))


def checks_of(section: str, model: type[Model], without: str = "", **named: str) -> dict[str, str]:
    """Key of a section: its check, ``section.key`` unless ``named`` gives it another name.

    ``without``: keys that no check reads, beside source and claim.
    """
    unread = {"source", "claim", *without.split()}
    return {key: f"{section}.{named.get(key, key)}" for key in model.model_fields if key not in unread}


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

    doc: Prose
    status: SourceStatus
    edition: Prose | None = None
    """Version, date or commit, where figures differ between editions."""


class Figure(Model):
    """One number with its unit and its source. An unpublished number is ``null``, with a note."""

    value: float | None
    unit: Line
    source: Name
    """A key of ``metadata.sources``."""
    note: Prose | None = None


class Weakening(Model):
    """One key that demands less than the published architecture."""

    id: Prose
    """``criteria.gpu.d2h``, or the section: ``gpu``."""
    key: Prose
    """Key below ``id``: ``pass.value``; empty for the whole entry."""
    published: Prose
    here: Prose
    reason: Prose | None = None
    by: Prose | None = None

    @property
    def path(self) -> str:
        return f"{self.id}.{self.key}" if self.key else self.id


class Metadata(Model):
    id: Identifier
    version: Version
    title: Sentence
    scope: Sentence
    """Coverage of a certificate against this file, and its gaps."""
    sources: dict[Name, Source]
    derived_from: tuple[Prose, ...] = ()
    """Parents, nearest first, of a merged file; set by the kit, never in a file."""
    compared_with: Prose | None = None
    """The published architecture that ``weakened`` refers to; set by the kit, never in a file."""
    weakened: tuple[Weakening, ...] = ()
    """Values that are weaker than in ``compared_with``; set by the kit, never in a file."""
    edited: bool = False
    """The kit's file, or one that it extends, differs from the published one; set by the kit."""


class Claim(Model):
    """One published claim about the system.

    Criteria, curves, checks and expectations that name its id under ``claim:`` check it.
    """

    says: Sentence
    figure: Prose | None = None
    """As published, with its unit; null where the source gives none."""
    source: Name
    not_checkable: Sentence | None = None
    """Why no criterion or check covers it."""


class Count(Model):
    """How many nodes of a role a rack may have."""

    min: int = Field(default=1, ge=0)
    max: int | None = None
