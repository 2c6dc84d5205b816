"""Answers of several parts: lines, divided by ``--``."""

from __future__ import annotations

from collections.abc import Sequence


def sections_of(lines: Sequence[str], count: int) -> list[list[str]]:
    """The parts of an answer that must have so many. Raises ValueError."""
    sections: list[list[str]] = [[]]
    for line in lines:
        if line == "--":
            sections.append([])
        else:
            sections[-1].append(line)
    if len(sections) != count:
        raise ValueError(f"expected {count} sections, actual {len(sections)}")
    return sections
