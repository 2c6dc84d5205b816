"""PCI links that run below the capability of both ends. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rackproof.core.wording import exact
from rackproof.parse import ParseError
from rackproof.parse.pci_links import PciLink

DISPLAY: Final = "0x03"
"""Class prefix of GPUs, which reduce the speed of idle links."""
GPU_LANES: Final = 8
"""Minimum lanes of a GPU; the display controller of a BMC has one."""


def degraded(links: Mapping[str, PciLink], above: Mapping[str, str | None]) -> list[str]:
    """Links below the capability of both ends, as ``SLOT: expected … actual …``.

    Raises ParseError if the listings have different devices, or a link is only partly known.
    """
    if links.keys() != above.keys() or not {parent for parent in above.values() if parent} <= links.keys():
        raise ParseError("readlink", "lists different devices than /sys/bus/pci/devices")
    problems, partly, complete = [], list[str](), 0
    for slot, link in sorted(links.items()):
        parent = links.get(above[slot] or "")
        # Root ports and downstream ports of a switch report the link below them: every other level of the tree is the
        # lower end of a link to its parent.
        if _depth(slot, above) % 2 == 0 or parent is None:
            continue
        if not (link.width and link.width_can and link.speed and link.speed_can):
            partly += [slot] if link.width or link.width_can or link.speed or link.speed_can else []
            continue
        complete += 1
        width = min(link.width_can, parent.width_can or link.width_can)
        if link.width < width:
            problems.append(f"{slot}: expected x{width}, actual x{link.width}")
        if link.kind.startswith(DISPLAY):
            continue
        speed = min(link.speed_can, parent.speed_can or link.speed_can)
        if link.speed < speed:
            problems.append(f"{slot}: expected {exact(speed)} GT/s, actual {exact(link.speed)} GT/s")
    if partly and not problems:
        raise ParseError("grep", f"the kernel reports only a part of the links of {', '.join(partly)}")
    if not complete:
        raise ParseError("grep", "the kernel reports no link of any PCI device")
    return problems


def idle(links: Mapping[str, PciLink], above: Mapping[str, str | None]) -> list[str]:
    """GPUs with links below the capability of both ends: idle GPUs reduce them, so their speed cannot be judged."""
    slow = []
    for slot, link in sorted(links.items()):
        parent = links.get(above.get(slot) or "")
        if parent is None or not link.kind.startswith(DISPLAY) or (link.width_can or 0) < GPU_LANES:
            continue
        speed = min(link.speed_can or 0, parent.speed_can or link.speed_can or 0)
        if (link.speed or 0) < speed:
            slow.append(f"{slot} at {exact(link.speed or 0)} of {exact(speed)} GT/s")
    return slow


def _depth(slot: str, above: Mapping[str, str | None]) -> int:
    parent = above.get(slot)
    return 0 if parent is None else 1 + _depth(parent, above)
