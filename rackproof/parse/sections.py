"""Output in sections that lines ``--`` or ``-- NAME`` separate, and lines that begin with a key."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, text_of

_SECTION: Final = re.compile(r"-- ([a-z]+)")


def sections_of(lines: Iterable[str], count: int | None = None, *, mark: str = "--") -> list[list[str]]:
    """Split lines into sections. Raises ParseError unless there are ``count``; None: any number."""
    sections: list[list[str]] = [[]]
    for line in lines:
        if line == mark:
            sections.append([])
        else:
            sections[-1].append(line)
    if count is not None and len(sections) != count:
        raise ParseError("answer", f"expected {count} sections, actual {len(sections)}")
    return sections


def named_sections(tool: str, output: str | bytes) -> dict[str, list[str]]:
    """Lines of each section below its line ``-- NAME``, those before the first one under an empty name.

    Raises ParseError without the section ``end``.
    """
    sections: dict[str, list[str]] = {"": []}
    lines = sections[""]
    for line in text_of(tool, output).split("\n"):  # a name may hold other ends of lines
        if match := _SECTION.fullmatch(line):
            lines = sections.setdefault(match[1], [])
        else:
            lines.append(line)
    if "end" not in sections:
        raise ParseError(tool, "the answer is cut off")
    return sections


def blocks_of(tool: str, head: str, lines: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Blocks of lines, each below a line that matches ``head``: the pattern's group, and the lines that follow.

    Raises ParseError for lines before the first head.
    """
    blocks: list[tuple[str, list[str]]] = []
    for line in lines:
        if match := re.fullmatch(head, line):
            blocks.append((match[1], []))
        elif blocks:
            blocks[-1][1].append(line)
        else:
            raise ParseError(tool, f"unexpected line {excerpt(line)}")
    return blocks


def keyed_lines(tool: str, lines: Iterable[str], keys: Collection[str], separator: str = " ") -> dict[str, list[str]]:
    """Values of lines ``KEY VALUE``, by key. Raises ParseError for a line with another key.

    A key may stand alone where the separator is a blank.
    """
    values: dict[str, list[str]] = {}
    for line in lines:
        key, separated, value = line.partition(separator)
        if key not in keys or (separator != " " and not separated):
            raise ParseError(tool, f"unexpected line {excerpt(line)}")
        values.setdefault(key, []).append(value)
    return values
