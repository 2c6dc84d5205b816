"""Output in sections that ``--`` lines separate, and lines that begin with a key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt


def sections_of(lines: Sequence[str], count: int) -> list[list[str]]:
    """Split lines into sections. Raises ParseError unless there are ``count``."""
    sections: list[list[str]] = [[]]
    for line in lines:
        if line == "--":
            sections.append([])
        else:
            sections[-1].append(line)
    if len(sections) != count:
        raise ParseError("answer", f"expected {count} sections, actual {len(sections)}")
    return sections


def keyed_lines(tool: str, lines: Iterable[str], keys: Collection[str], separator: str = " ") -> dict[str, list[str]]:
    """Values of lines ``KEY VALUE``, by key. Raises ParseError for a line with another key.

    A key may stand alone where the separator is a blank.
    """
    values: dict[str, list[str]] = {}
    for line in lines:
        key, found, value = line.partition(separator)
        if key not in keys or (separator != " " and not found):
            raise ParseError(tool, f"unexpected line {excerpt(line)}")
        values.setdefault(key, []).append(value)
    return values
