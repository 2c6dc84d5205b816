"""PCI links that run below the capability of both ends. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rackproof.parse import ParseError
from rackproof.parse.pci_links import PciLink

DISPLAY: Final = "0x03"
"""Classes of GPUs, which slow their links down while they are idle."""


def degraded(links: Mapping[str, PciLink], above: Mapping[str, str | None]) -> list[str]:
    """Links below the capability of both ends, as ``SLOT: expected … actual …``.

    Raises ParseError when the two listings have different devices, or no link is known.
    """
    if links.keys() != above.keys() or not {parent for parent in above.values() if parent} <= links.keys():
        raise ParseError("readlink", "lists different devices than /sys/bus/pci/devices")
    problems, known = [], 0
    for slot, link in sorted(links.items()):
        parent = links.get(above[slot] or "")
        # Root ports and downstream ports of a switch report the link below them: every other level of the tree is the
        # lower end of a link to its parent.
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
        raise ParseError("grep", "the kernel reports no link of any PCI device")
    return problems


def _depth(slot: str, above: Mapping[str, str | None]) -> int:
    parent = above.get(slot)
    return 0 if parent is None else 1 + _depth(parent, above)
