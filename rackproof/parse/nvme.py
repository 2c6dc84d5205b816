"""``nvme smart-log``: the health of NVMe drives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.jsondoc import Json, find_json
from rackproof.parse.memory import remembered
from rackproof.parse.text import ended_lines, excerpt

_TOOL: Final = "nvme"

# One command for all NVMe controllers on PCIe.
SMART_LOGS: Final = (
    'for c in /sys/class/nvme/nvme[0-9]*; do [ ! -e "$c" ] || [ "$(cat "$c/transport")" != pcie ] ||'
    ' { echo "drive ${c##*/}"; nvme smart-log -o json "/dev/${c##*/}"; echo "status $?"; }; done;'
    " echo end of smart logs"
)

WARNINGS: Final = (
    "spare blocks used up",
    "too hot or too cold",
    "reliability degraded",
    "read-only",
    "backup of volatile memory failed",
    "persistent memory region read-only",
)
"""Meaning of each bit of the critical warning, from the lowest."""


@dataclass(frozen=True, slots=True)
class SmartLog:
    """Lifetime counters of one drive."""

    name: str
    """Name of the controller: ``nvme0``."""
    critical_warning: int
    """Bit field; 0: no warning."""
    used_pct: int
    """Percentage of rated endurance used; can exceed 100."""
    media_errors: int

    @property
    def warnings(self) -> tuple[str, ...]:
        """The critical warnings in words."""
        named = [text for bit, text in enumerate(WARNINGS) if self.critical_warning >> bit & 1]
        rest = self.critical_warning >> len(WARNINGS)
        return (*named, *([f"unknown warning {self.critical_warning:#x}"] if rest else []))


@remembered(16)
def parse_smart_logs(output: str | bytes) -> dict[str, SmartLog | None]:
    """Output of ``SMART_LOGS`` by controller; None for a drive that did not respond. Empty without drives."""
    lines = ended_lines(_TOOL, output, "end of smart logs")
    logs: dict[str, SmartLog | None] = {}
    body: list[str] = []
    name = ""
    for line in lines:
        started, ended = re.fullmatch(r"drive (nvme\d+)", line), re.fullmatch(r"status (\d{1,3})", line)
        if bool(name) == bool(started) or (started and started[1] in logs):
            raise ParseError(_TOOL, f"unexpected line {excerpt(line)}")
        if started:
            name, body = started[1], []
        elif ended:
            if ended[1] in ("126", "127"):
                raise ParseError(_TOOL, "is not installed")
            logs[name] = _log(name, "\n".join(body) + "\n") if ended[1] == "0" else None
            name = ""
        else:
            body.append(line)
    if name:
        raise ParseError(_TOOL, f"the output for {name} is cut off")
    return logs


def _log(name: str, body: str) -> SmartLog:
    document = find_json(_TOOL, body, lambda value: isinstance(value, dict) and "percent_used" in value)
    if document.before.strip():
        raise ParseError(_TOOL, f"printed before the log of {name}: {excerpt(document.before)}")
    log = Json(_TOOL, f"{name}: ", document.value)
    # Newer versions print the warning as an object that contains the value.
    bits = log.values.get("critical_warning")
    return SmartLog(
        name,
        _count(log.child("critical_warning"), "value") if isinstance(bits, dict) else _count(log, "critical_warning"),
        _count(log, "percent_used"),
        _count(log, "media_errors"),
    )


def _count(log: Json, key: str) -> int:
    """128-bit counters are integers, decimals or strings, depending on the version of nvme-cli."""
    value = log.values.get(key)
    if isinstance(value, str) and re.fullmatch(r"\d{1,40}", value):
        return int(value)
    if isinstance(value, float) and log.number(key).is_integer():
        return int(value)
    return log.integer(key)
