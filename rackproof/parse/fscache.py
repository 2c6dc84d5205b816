"""Caches of network file systems: /proc/fs/fscache/caches, or the daemons that hold one."""

from __future__ import annotations

import re
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import ended_lines, excerpt, matched, whole_lines

FSCACHE: Final = "cat /proc/fs/fscache/caches"
_END: Final = "end of descriptors"
CACHE_DAEMONS: Final = f"find /proc/[0-9]*/fd -lname /dev/cachefiles 2>/dev/null; echo {_END}"
"""Descriptors of /dev/cachefiles: cachefilesd keeps one as long as its cache is bound, and ends otherwise
(cachefilesd(8))."""
_STATES: Final = {"-": "absent", "P": "preparing", "A": "active", "E": "broken", "W": "withdrawn"}


def parse_fscache(output: str) -> tuple[str, ...]:
    """/proc/fs/fscache/caches: the state of every cache; empty without one."""
    lines = whole_lines("fscache", output)
    if lines[0].split()[:1] != ["CACHE"] or len(lines) < 2 or not lines[1].startswith("==="):
        raise ParseError("fscache", f"expected a table of caches, got {excerpt(lines[0])}")
    states = []
    for line in lines[2:]:
        words = line.split()
        if len(words) < 6 or words[5] not in _STATES or not re.fullmatch(r"[0-9a-f]+", words[0]):
            raise ParseError("fscache", f"expected a cache, got {excerpt(line)}")
        states.append(_STATES[words[5]])
    return tuple(states)


def parse_cache_daemons(output: str) -> tuple[str, ...]:
    """Output of ``CACHE_DAEMONS``: ``active`` for each daemon that holds a cache."""
    lines = ended_lines("fscache", output, _END)
    for line in lines:
        matched("fscache", r"/proc/\d+/fd/\d+", line, "a descriptor")
    return tuple("active" for _ in lines)
