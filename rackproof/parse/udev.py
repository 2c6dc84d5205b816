"""Properties of udev."""

from __future__ import annotations

import re


def slot_of_id_path(path: str) -> str | None:
    """``0000:3b:00.0`` of udev's ID_PATH ``pci-0000:3b:00.0``."""
    match = re.match(r"pci-([0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(-|$)", path)
    return match[1] if match else None
