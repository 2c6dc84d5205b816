"""``sha256sum``."""

from __future__ import annotations

import re

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt


def parse_sha256sum(lines: list[str], paths: tuple[str, ...]) -> dict[str, str]:
    """``sha256sum -- PATHS``: hash or error of each path."""
    hashes = {}
    for line in lines:
        good = re.fullmatch(r"([0-9a-f]{64})  (.+)", line)
        bad = re.fullmatch(r"sha256sum: (.+): (No such file or directory|Is a directory)", line)
        path = good[2] if good else bad[1].strip("'") if bad else ""
        if path not in paths or path in hashes:
            raise ParseError("sha256sum", f"unexpected line {excerpt(line)}")
        hashes[path] = good[1] if good else bad[2] if bad else ""
    silent = [path for path in paths if path not in hashes]
    if silent:
        raise ParseError("sha256sum", f"no output for {', '.join(silent)}")
    return hashes
