"""``firewall-cmd``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Zone:
    interfaces: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


def parse_active_zones(lines: Sequence[str]) -> dict[str, Zone]:
    """``firewall-cmd --get-active-zones``: a name, and below it, indented, its interfaces and sources."""
    zones: dict[str, Zone] = {}
    name = ""
    for line in lines:
        if not line.startswith(" "):
            name = line.split()[0] if line.split() else ""
            zones[name] = Zone()
        elif name:
            key, _, values = line.strip().partition(":")
            zone = zones[name]
            interfaces = tuple(values.split()) if key == "interfaces" else zone.interfaces
            sources = tuple(values.split()) if key == "sources" else zone.sources
            zones[name] = Zone(interfaces, sources)
    return zones
