"""One mistake in a file, and its path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rackproof.core.nearest import suggestion

KeyPath = tuple[str | int, ...]
"""Keys and list positions from the top of a file."""


@dataclass(frozen=True, slots=True)
class Problem:
    path: KeyPath
    message: str


def known(path: KeyPath, name: str, names: Iterable[str], what: str) -> Iterator[Problem]:
    """A problem where ``name`` is not in ``names``."""
    listed = tuple(names)
    if name not in listed:
        yield Problem(path, f"unknown {what} '{name}'; {suggestion(name, listed)}")


def each_known(path: KeyPath, asked: Iterable[str], names: Iterable[str], what: str) -> Iterator[Problem]:
    listed = tuple(names)
    for index, name in enumerate(asked):
        yield from known((*path, index), name, listed, what)
