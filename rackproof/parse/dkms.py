"""``dkms status``."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dkms:
    """One module for one kernel; ``kernel`` is empty for a module that is only known."""

    name: str
    version: str
    kernel: str
    state: str


def parse_dkms_status(lines: list[str]) -> tuple[Dkms, ...]:
    """``dkms status``, old and new; warnings that it prints between are no answer."""
    found = []
    for line in lines:
        match = re.fullmatch(
            r"([\w.+-]+)(?:/| ?, ?)([\w.+~:-]+)(?:, ([\w.+~-]+)(?:, ([\w-]+))?)?: ([a-z-]+)(.*)", line.strip()
        )
        if match:
            state = match[5] + (" with a warning" if "WARNING" in match[6] else "")
            found.append(Dkms(match[1], match[2], match[3] or "", state))
    return tuple(found)
