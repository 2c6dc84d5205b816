"""/proc/meminfo and the kernel's pools of huge pages."""

from __future__ import annotations

from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import ended_lines, integer, matched, whole_lines


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


HUGEPAGES: Final = (
    'for f in /sys/kernel/mm/hugepages/hugepages-*kB/nr_hugepages; do [ ! -e "$f" ] || echo "$f $(cat "$f")"; done;'
    " echo end of huge pages"
)


def parse_hugepages(output: str) -> dict[int, int]:
    """Output of ``HUGEPAGES``: size in KiB and number of pages."""
    lines = ended_lines("sysfs", output, "end of huge pages")
    pages = {}
    for line in lines:
        match = matched(
            "sysfs",
            r"/sys/kernel/mm/hugepages/hugepages-(\d{1,12})kB/nr_hugepages (\d+)",
            line,
            "a number of huge pages",
        )
        pages[int(match[1])] = integer("sysfs", "huge pages", match[2])
    return pages
