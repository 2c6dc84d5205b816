"""``command -v``: paths of programs."""

from __future__ import annotations

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, whole_lines


def parse_programs(output: str, programs: tuple[str, ...]) -> dict[str, str | None]:
    """Path by program, from lines ``name path``; a program that is not installed has no path."""
    paths: dict[str, str | None] = {}
    for line in whole_lines("command -v", output):
        name, _, path = line.partition(" ")
        if name not in programs or (path and not path.startswith("/")):
            raise ParseError("command -v", f"unexpected line {excerpt(line)}")
        paths[name] = path or None
    missing = [name for name in programs if name not in paths]
    if missing:
        raise ParseError("command -v", f"no output for {', '.join(missing)}")
    return paths
