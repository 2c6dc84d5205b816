"""Output in sections that ``--`` lines separate."""

from __future__ import annotations

from collections.abc import Sequence


def sections_of(lines: Sequence[str], count: int) -> list[list[str]]:
    """Split lines into sections. Raises ValueError unless there are ``count``."""
    sections: list[list[str]] = [[]]
    for line in lines:
        if line == "--":
            sections.append([])
        else:
            sections[-1].append(line)
    if len(sections) != count:
        raise ValueError(f"expected {count} sections, actual {len(sections)}")
    return sections
