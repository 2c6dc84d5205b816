"""Error counters of PCIe devices (advanced error reporting), from /sys/bus/pci/devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rackproof.parse.answer import STATUS
from rackproof.parse.sysfs import files_of
from rackproof.parse.text import integer, matched, text_from, whole_lines

AER: Final = (
    "cd /sys/bus/pci/devices && echo files $(ls -d */aer_dev_* 2>/dev/null | wc -l) && "
    f"grep -sHv ' 0$' */aer_dev_*{STATUS}"
)
"""Number of counter files, and the counters that are not 0."""


@dataclass(frozen=True, slots=True)
class AerCounters:
    """Errors of one device and kind since boot."""

    device: str
    """PCI address."""
    kind: str
    """``correctable``, ``nonfatal`` or ``fatal``."""
    counts: dict[str, int]
    """As the kernel names them: each type, and ``TOTAL_…``."""

    @property
    def types(self) -> dict[str, int]:
        return {name: count for name, count in self.counts.items() if not name.startswith("TOTAL_")}

    @property
    def total(self) -> int:
        return max([sum(self.types.values()), *self.counts.values()])


def parse_aer(body: str | bytes) -> tuple[AerCounters, ...] | None:
    """Body of the answer to ``AER``: counters above 0. None where the kernel counts no PCIe errors."""
    head, *lines = whole_lines("grep", body)
    match = matched("grep", r"files (\d{1,6})", head, "the number of counter files")
    if int(match[1]) == 0:
        return None
    return tuple(_counters(path, entries) for path, entries in files_of(text_from(lines)).items()) if lines else ()


def _counters(path: str, entries: tuple[str, ...]) -> AerCounters:
    match = matched("grep", r"([^/]+)/aer_dev_(correctable|nonfatal|fatal)", path, "counters of a device")
    counts = {name: integer("grep", path, count) for name, _, count in (entry.rpartition(" ") for entry in entries)}
    return AerCounters(match[1], match[2], counts)
