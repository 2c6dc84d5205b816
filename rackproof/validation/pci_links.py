"""Links of PCI devices against what both of their ends can do. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rackproof.parse import ParseError
from rackproof.parse.sysfs import files_of
from rackproof.parse.text import excerpt, whole_lines
from rackproof.validation.answers import STATUS, answer_of
from rackproof.validation.nic_ports import GREP_DONE, sysfs

DEVICES: Final = "/sys/bus/pci/devices"
_FILES: Final = tuple(
    f"*/{name}" for name in ("class", "current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
)
LINKS: Final = sysfs(DEVICES, *_FILES)
TREE: Final = f"cd {DEVICES} && readlink *{STATUS}"
"""Where each device is below the others: ``../../../devices/pci0000:15/0000:15:01.0/0000:16:00.0``."""

DISPLAY: Final = "0x03"
"""Classes of GPUs, which slow their links down while they are idle."""
_ADDRESS: Final = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_UNKNOWN_WIDTHS: Final = (0, 63, 255)


@dataclass(frozen=True, slots=True)
class PciLink:
    """Speeds in GT/s, widths in lanes; None where there is no link, or the kernel cannot tell."""

    kind: str
    """Class, ``0x020000``."""
    speed: float | None
    width: int | None
    speed_can: float | None
    width_can: int | None


def links_of(output: str) -> dict[str, PciLink]:
    """Answer to ``LINKS``, by PCI address."""
    answer = answer_of("grep", output)
    if answer.status not in GREP_DONE or not answer.body:
        raise ParseError("grep", f"{DEVICES}: exit status {answer.status}, no device")
    found: dict[str, dict[str, str]] = {}
    for path, lines in files_of(answer.body).items():
        slot, _, name = path.partition("/")
        found.setdefault(slot, {})[name] = lines[0]
    without = [slot for slot, files in found.items() if "class" not in files]
    if without:
        raise ParseError("grep", f"{', '.join(without)} has no class")
    return {
        slot: PciLink(
            files["class"],
            _speed(files.get("current_link_speed")),
            _width(files.get("current_link_width")),
            _speed(files.get("max_link_speed")),
            _width(files.get("max_link_width")),
        )
        for slot, files in found.items()
    }


def _speed(text: str | None) -> float | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?) GT/s.*", text or "")
    return float(match[1]) if match else None


def _width(text: str | None) -> int | None:
    width = int(text) if text and re.fullmatch(r"\d{1,3}", text) else 0
    return None if width in _UNKNOWN_WIDTHS else width


def tree_of(output: str) -> dict[str, str | None]:
    """Answer to ``TREE``: the device above each one, None for those of the processor itself."""
    answer = answer_of("readlink", output)
    if answer.status != 0:
        raise ParseError("readlink", f"exit status {answer.status}")
    above: dict[str, str | None] = {}
    for line in whole_lines("readlink", answer.body):
        *_, parent, device = ["", *line.split("/")]
        if not line.startswith("../") or not _ADDRESS.fullmatch(device):
            raise ParseError("readlink", f"no device: {excerpt(line)}")
        # Behind a volume management device another tree begins: pci0000:80/0000:80:05.5/pci10000:00/10000:00:02.0.
        above[device] = parent if _ADDRESS.fullmatch(parent) else None
    return above


def degraded(links: Mapping[str, PciLink], above: Mapping[str, str | None]) -> list[str]:
    """Links that run below what both ends can do, ``SLOT: expected … actual …``.

    Raises ParseError where the two answers are about different devices or no link is known at all.
    """
    if links.keys() != above.keys() or not {parent for parent in above.values() if parent} <= links.keys():
        raise ParseError("readlink", "names other devices than /sys/bus/pci/devices has")
    problems, known = [], 0
    for slot, link in sorted(links.items()):
        parent = links.get(above[slot] or "")
        # Ports of the processor, and those of a switch towards its devices, speak of the link below them: every other
        # level of the tree is the lower end of a link, and has it above.
        if _depth(slot, above) % 2 == 0 or parent is None or link.width is None or link.width_can is None:
            continue
        known += 1
        width = min(link.width_can, parent.width_can or link.width_can)
        if link.width < width:
            problems.append(f"{slot}: expected x{width}, actual x{link.width}")
        if link.kind.startswith(DISPLAY) or link.speed is None or link.speed_can is None:
            continue
        speed = min(link.speed_can, parent.speed_can or link.speed_can)
        if link.speed < speed:
            problems.append(f"{slot}: expected {speed:g} GT/s, actual {link.speed:g} GT/s")
    if not known:
        raise ParseError("grep", "no PCI device has a link that the kernel knows")
    return problems


def _depth(slot: str, above: Mapping[str, str | None]) -> int:
    parent = above.get(slot)
    return 0 if parent is None else 1 + _depth(parent, above)
