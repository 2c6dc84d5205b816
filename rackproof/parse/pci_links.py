"""Speed and width of PCIe links, and the tree of PCI devices."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rackproof.parse.answer import STATUS, parse_answer
from rackproof.parse.errors import ParseError
from rackproof.parse.sysfs import files_in, sysfs_command
from rackproof.parse.text import excerpt, whole_lines

DEVICES: Final = "/sys/bus/pci/devices"
_FILES: Final = tuple(
    f"*/{name}" for name in ("class", "current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
)
LINKS: Final = sysfs_command(DEVICES, *_FILES)
TREE: Final = f"cd {DEVICES} && readlink *{STATUS}"
"""Path of each device in the PCI tree: ``../../../devices/pci0000:15/0000:15:01.0/0000:16:00.0``."""
SLOT: Final = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_UNKNOWN_WIDTHS: Final = (0, 63, 255)
_GENERATIONS: Final = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""GT/s of a PCIe lane: generation."""


@dataclass(frozen=True, slots=True)
class PciLink:
    """Speeds in GT/s, widths in lanes; None where there is no link, or the kernel does not know."""

    kind: str
    """Class, ``0x020000``."""
    speed: float | None
    width: int | None
    speed_can: float | None
    width_can: int | None


def parse_pci_links(output: str) -> dict[str, PciLink]:
    """Output of ``LINKS``, by PCI address."""
    devices: dict[str, dict[str, str]] = {}
    for path, lines in files_in(parse_answer("grep", output)).items():
        slot, _, name = path.partition("/")
        devices.setdefault(slot, {})[name] = lines[0]
    if not devices:
        raise ParseError("grep", f"{DEVICES} lists no device")
    without = [slot for slot, files in devices.items() if "class" not in files]
    if without:
        raise ParseError("grep", f"{', '.join(without)} has no class")
    return {
        slot: PciLink(
            files["class"],
            link_speed(files.get("current_link_speed")),
            link_width(files.get("current_link_width")),
            link_speed(files.get("max_link_speed")),
            link_width(files.get("max_link_width")),
        )
        for slot, files in devices.items()
    }


def link_speed(text: str | None) -> float | None:
    """GT/s of a lane, of ``32.0 GT/s PCIe``; None for ``Unknown`` and for no text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) GT/s.*", text or "")
    return float(match[1]) if match else None


def generation(text: str | None) -> int | None:
    """PCIe generation of a link speed as the kernel prints it; None for an unknown speed."""
    speed = link_speed(text)
    return None if speed is None else _GENERATIONS.get(speed)


def link_width(text: str | None) -> int | None:
    """Lanes of a link as the kernel prints them; None for the numbers that mean an unknown width, and for no text."""
    width = int(text) if text and re.fullmatch(r"\d{1,3}", text) else 0
    return None if width in _UNKNOWN_WIDTHS else width


def parse_pci_tree(output: str) -> dict[str, str | None]:
    """Body of the answer to ``TREE``: parent of each device, None below a root bus."""
    above: dict[str, str | None] = {}
    for line in whole_lines("readlink", output):
        *_, parent, device = ["", *line.split("/")]
        if not line.startswith("../") or not SLOT.fullmatch(device):
            raise ParseError("readlink", f"expected a device, got {excerpt(line)}")
        # Behind a volume management device another tree begins: pci0000:80/0000:80:05.5/pci10000:00/10000:00:02.0.
        above[device] = parent if SLOT.fullmatch(parent) else None
    return above
