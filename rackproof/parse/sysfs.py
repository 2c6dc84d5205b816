"""Read many small files of /sys with one command: ``cd DIR && grep -sH '' */name */dir/name``."""

from __future__ import annotations

import re
from typing import Final

from rackproof.parse.answer import STATUS, Answer
from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, matched, whole_lines

# Device names may contain colons (0000:1a:00.0), file names do not.
_LINE: Final = re.compile(r"(/?(?:[^/]+/)+?[\w.-]+):(.*)")


def files_of(output: str | bytes) -> dict[str, tuple[str, ...]]:
    """Lines of each file by its path, as grep was given it.

    Empty files are left out. The caller verifies that the output is complete.
    """
    files: dict[str, list[str]] = {}
    for line in whole_lines("grep", output):
        match = matched("grep", _LINE, line, "PATH:LINE")
        files.setdefault(match[1], []).append(match[2].rstrip())
    return {path: tuple(lines) for path, lines in files.items()}


def number_of(lines: tuple[str, ...] | None) -> int | None:
    """The number in a file of ``files_of``; None without one."""
    return int(lines[0]) if lines and re.fullmatch(r"\d{1,3}", lines[0]) else None


def parse_choice(output: str) -> str:
    """The selected word, which is in brackets: ``always [madvise] never``."""
    words = re.findall(r"\[(\w+)\]", "\n".join(whole_lines("sysfs", output)))
    if len(words) != 1:
        raise ParseError("sysfs", f"expected a [selected] word in {excerpt(output)}")
    return str(words[0])


def parse_clock_source(output: str) -> str:
    """``current_clocksource``."""
    lines = whole_lines("sysfs", output)
    if len(lines) != 1 or not re.fullmatch(r"[\w-]+", lines[0]):
        raise ParseError("sysfs", f"expected a clock source, got {excerpt(lines[0])}")
    return lines[0]


def files_in(answer: Answer) -> dict[str, tuple[str, ...]]:
    """Files in the answer to a ``sysfs_command``; empty where it matches none. Raises ParseError where grep failed."""
    if answer.status not in GREP_DONE:
        raise ParseError(answer.tool, answer.failure)
    return files_of(answer.body) if answer.body else {}


# grep exits with 2 when a file cannot be read (the speed of a port that is down) and with 1 without any match; the
# status line shows that grep ran to its end.
GREP_DONE: Final = (0, 1, 2)


def sysfs_command(folder: str, *files: str) -> str:
    """Command that prints all lines of files (shell patterns) below a folder of /sys."""
    return f"cd {folder} 2>/dev/null && grep -sH '' {' '.join(files)}{STATUS}"
