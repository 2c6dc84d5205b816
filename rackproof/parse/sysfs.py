"""Many small files of /sys at once: ``cd DIR && grep -sH '' */name */dir/name``."""

from __future__ import annotations

import re
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, whole_lines

# Names of devices may contain colons (0000:1a:00.0), those of the files in their folders do not.
_LINE: Final = re.compile(r"((?:[^/]+/)+?[\w.-]+):(.*)")


def files_of(output: str | bytes) -> dict[str, tuple[str, ...]]:
    """Lines of each file by its path below DIR.

    An empty file has none and is not here. The caller proves that the output is whole: files are listed in no order
    that would show it.
    """
    found: dict[str, list[str]] = {}
    for line in whole_lines("grep", output):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ParseError("grep", f"no line of a file: {excerpt(line)}")
        found.setdefault(match[1], []).append(match[2].rstrip())
    return {path: tuple(lines) for path, lines in found.items()}
