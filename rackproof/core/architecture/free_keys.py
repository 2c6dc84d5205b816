"""Mappings of an architecture whose keys the file chooses: storages, jobs, checks, sysctls. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel

from rackproof.core.architecture.problem import KeyPath

ANY: Final = "*"
"""Any key of such a mapping, or any place in a list."""


def has_free_keys(model: type[BaseModel], path: KeyPath) -> bool:
    """Whether the mapping at ``path`` has keys of the file's choice, none of which may be null."""
    return any(
        len(pattern) == len(path) and all(key in (ANY, own) for key, own in zip(pattern, path, strict=True))
        for pattern in _patterns(model)
    )


@cache
def _patterns(model: type[BaseModel]) -> frozenset[KeyPath]:
    return frozenset(_below(model, ()))


def _below(annotation: Any, path: KeyPath) -> Iterator[KeyPath]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _below(arguments[0], path)
    elif origin in (Union, UnionType):
        for argument in arguments:
            yield from _below(argument, path)
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        value = arguments[1]
        if NoneType not in get_args(value):
            yield path
        yield from _below(value, (*path, ANY))
    elif isinstance(origin, type):
        for argument in arguments:
            yield from _below(argument, (*path, ANY))
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            yield from _below(field.annotation, (*path, field.alias or name))
