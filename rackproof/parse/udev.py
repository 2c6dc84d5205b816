"""Properties of udev."""

from __future__ import annotations

import re

from rackproof.parse.errors import ParseError
from rackproof.parse.pci_links import SLOT
from rackproof.parse.text import whole_lines


def parse_id_path(output: str) -> str:
    """ID_PATH in the output of ``udevadm info -q property DEVICE``. Raises ParseError for a device without one."""
    for line in whole_lines("udevadm", output):
        if line.startswith("ID_PATH="):
            return line.removeprefix("ID_PATH=")
    raise ParseError("udevadm", "no ID_PATH")


def slot_of_id_path(path: str) -> str | None:
    """``0000:3b:00.0`` of udev's ID_PATH ``pci-0000:3b:00.0``."""
    match = re.match(rf"pci-({SLOT.pattern})(-|$)", path)
    return match[1] if match else None
