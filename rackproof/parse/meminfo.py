"""/proc/meminfo and the kernel's pools of huge pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import ended_lines, integer, matched, whole_lines

MEMINFO: Final = "cat /proc/meminfo"


def parse_meminfo(output: str) -> dict[str, int]:
    """``/proc/meminfo``: sizes in KiB, and numbers of huge pages."""
    values = {}
    for line in whole_lines("/proc/meminfo", output):
        match = matched("/proc/meminfo", r"([\w()]+): +(\d{1,18})(?: kB)?", line, "a size")
        values[match[1]] = int(match[2])
    for key in ("MemTotal", "SwapTotal"):
        if key not in values:
            raise ParseError("/proc/meminfo", f"has no field {key}")
    return values


def pages_path(size_kib: int | str) -> str:
    """File with the number of huge pages of a size."""
    return f"/sys/kernel/mm/hugepages/hugepages-{size_kib}kB/nr_hugepages"


HUGEPAGES: Final = (
    f'for f in {pages_path("*")}; do [ ! -e "$f" ] || echo "$f $(cat "$f")"; done; echo end of huge pages'
)


def parse_hugepages(output: str) -> dict[int, int]:
    """Output of ``HUGEPAGES``: size in KiB and number of pages."""
    return pages_of(ended_lines("sysfs", output, "end of huge pages"))


def pages_of(lines: Iterable[str]) -> dict[int, int]:
    """Number of pages by size in KiB, from lines with the file and its value. Raises ParseError."""
    pattern = r"/\S+/hugepages-(\d{1,12})kB/nr_hugepages (\d+)"
    matches = (matched("sysfs", pattern, line, "a number of huge pages") for line in lines)
    return {int(match[1]): integer("sysfs", "huge pages", match[2]) for match in matches}
