"""Limits of ports and drives that a scaled architecture declares, as they are in force on one node. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import isclose
from typing import Any, Final, NamedTuple

from rackproof.core.architecture import Architecture, Scale, ShapedLink, Storage, ThrottledDrive
from rackproof.core.architecture.scale import RATE, READS, throttles
from rackproof.core.units import UnitError, convert

CONDITION: Final = "throttled"
"""Condition of a measurement: the limits of each node, as they were read back."""
LABEL: Final = "port_gbps"
"""Label of a measurement whose step gives the ports another rate, in Gb/s of the published system."""
EXACT: Final = 0.01
"""How far a limit that was read back may be off: kernels round."""
BITS, EACH, BPS, IOPS = "bits_per_s", "bits_per_s_each", "bytes_per_s", "reads_per_s"


class NodeLimits(NamedTuple):
    """Limits of one node; empty where it has none."""

    ports: Mapping[str, float] = {}
    """bit/s by interface."""
    drives: Mapping[str, Mapping[str, float]] = {}
    """By name of the storage: ``BPS``, ``IOPS`` or both."""
    connections: Mapping[str, float] = {}
    """bit/s of each connection, by interface and TCP port: ``fabric0:2049``."""

    def plain(self) -> dict[str, Any]:
        """As a condition of a measurement."""
        return (
            {name: {BITS: rate} for name, rate in self.ports.items()}
            | {name: {EACH: rate} for name, rate in self.connections.items()}
            | {name: dict(limits) for name, limits in self.drives.items()}
        )

    def unlike(self, actual: NodeLimits) -> str:
        """The first difference; empty without any."""
        expected, there = self.plain(), actual.plain()
        for name in sorted(expected.keys() | there.keys()):
            ours, theirs = expected.get(name, {}), there.get(name, {})
            for key in sorted(ours.keys() | theirs.keys()):
                want, have = ours.get(key), theirs.get(key)
                if want is None or have is None or not isclose(want, have, rel_tol=EXACT):
                    return f"{name}: expected {_text(want)} {key}, actual {_text(have)}"
        return ""


def _text(value: float | None) -> str:
    return "no limit of" if value is None else f"{value:.0f}"


def limits_of(architecture: Architecture, groups: Collection[str], port_gbps: float | None = None) -> NodeLimits:
    """Limits of a node of these groups, the least where several are declared. ``port_gbps``: of the links with
    ``series``, instead of their published rate. Links with ``only_series`` limit nothing without it."""
    ports: dict[str, float] = {}
    connections: dict[str, float] = {}
    drives: dict[str, dict[str, float]] = {}
    scale, fabric = architecture.scale, architecture.fabric
    if scale is None:
        return NodeLimits()
    for _, throttle in throttles(scale):
        if isinstance(throttle, ThrottledDrive):
            if throttle.storage in architecture.storage and _has_drive(architecture.storage[throttle.storage], groups):
                key, value = limit_of(scale, throttle)
                own = drives.setdefault(throttle.storage, {})
                own[key] = min(value, own.get(key, value))
        elif throttle.only_series and port_gbps is None:
            continue
        elif throttle.role in groups and fabric is not None:
            name, key = place_of(architecture, throttle)
            rates = ports if key == BITS else connections
            rate = link_rate(scale, throttle, port_gbps if throttle.series else None)
            rates[name] = min(rate, rates.get(name, rate))
    return NodeLimits(ports, drives, connections)


def place_of(architecture: Architecture, link: ShapedLink) -> tuple[str, str]:
    """Port or connections that a link limits on a node, and the key of the limit: ``BITS`` or ``EACH``."""
    name = f"{architecture.fabric.interface_prefix if architecture.fabric else ''}{link.rail}"
    if link.each_connection_of is None:
        return name, BITS
    return f"{name}:{architecture.storage[link.each_connection_of].port}", EACH


def _has_drive(storage: Storage, groups: Collection[str]) -> bool:
    if storage.class_ == "local":
        return bool(set(storage.client_roles) & set(groups))
    return storage.server_role is not None and storage.server_role in groups


def link_rate(scale: Scale, link: ShapedLink, port_gbps: float | None = None) -> float:
    """bit/s here."""
    published = convert(link.published, link.unit, RATE) if port_gbps is None else convert(port_gbps, "Gb/s", RATE)
    return published * link.times(scale)


def limit_of(scale: Scale, drive: ThrottledDrive) -> tuple[str, float]:
    """``BPS`` or ``IOPS``, and the limit here."""
    try:
        return BPS, convert(drive.published, drive.unit, RATE) / 8 * drive.times(scale)
    except UnitError:
        return IOPS, convert(drive.published, drive.unit, READS) * drive.times(scale)


def words_of(scale: Scale) -> Iterator[tuple[str, ShapedLink | ThrottledDrive, float, str]]:
    """Every throttle for people: what it limits, itself, its value here, and the unit of that."""
    for _, throttle in throttles(scale):
        if isinstance(throttle, ShapedLink):
            one = throttle.each_connection_of
            title = f"Port of every {throttle.role} node, rail {throttle.rail}, "
            title += "both directions" if one is None else f"to each connection of {one}"
            title += ", in jobs of several rates only" if throttle.only_series else ""
            yield title, throttle, link_rate(scale, throttle) / 1e6, "Mb/s"
        else:
            key, value = limit_of(scale, throttle)
            what = f"Drive behind {throttle.storage}, reads"
            yield (what, throttle, value / 1e6, "MB/s") if key == BPS else (what, throttle, value, READS)
