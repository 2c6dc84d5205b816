"""``sha256sum``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rackproof.core.texts import SHA256
from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, matched


def parse_digests(lines: Iterable[str]) -> dict[str, str]:
    """``sha256sum -- PATHS 2>/dev/null``: hash of each file that exists."""
    matches = (matched("sha256sum", f"({SHA256})  (.+)", line, "a hash and a path") for line in lines)
    return {match[2]: match[1] for match in matches}


def parse_sha256sum(lines: list[str], paths: tuple[str, ...]) -> dict[str, str]:
    """``sha256sum -- PATHS``: hash or error of each path."""
    hashes = {}
    for line in lines:
        good = re.fullmatch(f"({SHA256})  (.+)", line)
        bad = re.fullmatch(r"sha256sum: (.+): (No such file or directory|Is a directory)", line)
        path = good[2] if good else bad[1].strip("'") if bad else ""
        if path not in paths or path in hashes:
            raise ParseError("sha256sum", f"unexpected line {excerpt(line)}")
        hashes[path] = good[1] if good else bad[2] if bad else ""
    silent = [path for path in paths if path not in hashes]
    if silent:
        raise ParseError("sha256sum", f"no output for {', '.join(silent)}")
    return hashes
