"""``df -Pk``: free space of file systems."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt

_SIZES = re.compile(r".+ \d+ +\d+ +(\d+) +(?:\d+%|-) /.*")
"""File system, 1024-byte blocks, used, available, percentage, mount point (POSIX, df -P)."""


def parse_free_mib(lines: Iterable[str]) -> dict[str, int | None]:
    """``PATH LINE``, the last line of ``df -Pk -- PATH``: free MiB by path; None where df gave no answer."""
    free: dict[str, int | None] = {}
    for line in lines:
        path, _, answer = line.partition(" ")
        if not path.startswith("/") or path in free:
            raise ParseError("df", f"expected a path and its file system, got {excerpt(line)}")
        sizes = _SIZES.fullmatch(answer.rstrip())
        free[path] = int(sizes[1]) // 1024 if sizes else None
    return free
