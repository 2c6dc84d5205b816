"""Published claims and what stands for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import BaseModel

from rackproof.core.architecture.models import Architecture
from rackproof.core.architecture.problem import KeyPath, Problem, known


class Standing(NamedTuple):
    """Something that names a claim: an entry of a list, or a block of the file."""

    claim: str
    path: KeyPath
    part: BaseModel


def standings(architecture: Architecture) -> Iterator[Standing]:
    """Everything that names a claim, in the order of the file."""
    yield from _named(architecture, ())


def claim_problems(architecture: Architecture) -> Iterator[Problem]:
    """Every claim is checked by something or says why it cannot be, never both and never neither."""
    named: dict[str, KeyPath] = {}
    for standing in standings(architecture):
        named.setdefault(standing.claim, standing.path)
        yield from known((*standing.path, "claim"), standing.claim, architecture.claims, "claim")
    for id_, claim in architecture.claims.items():
        if claim.not_checkable is None and id_ not in named:
            yield Problem(("claims", id_), "no criterion or check names it: name it, or say why it is not_checkable")
        if claim.not_checkable is not None and id_ in named:
            where = ".".join(str(key) for key in named[id_])
            yield Problem(("claims", id_, "not_checkable"), f"{where} checks it")


def _named(part: Any, here: KeyPath) -> Iterator[Standing]:
    if isinstance(part, dict):
        for key, inner in part.items():
            yield from _named(inner, (*here, key))
    elif isinstance(part, tuple):
        for index, inner in enumerate(part):
            yield from _named(inner, (*here, index))
    elif isinstance(part, BaseModel):
        for claim in getattr(part, "claim", ()):
            yield Standing(claim, here, part)
        for name, field in type(part).model_fields.items():
            if name != "claim":
                yield from _named(getattr(part, name), (*here, field.alias or name))
