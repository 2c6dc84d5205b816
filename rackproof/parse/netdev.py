"""iproute2: ``ip -j link show`` and ``ip -j addr show``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.jsondoc import Json, find_array

TOOL: Final = "ip"


@dataclass(frozen=True, slots=True)
class Address:
    family: str
    """inet or inet6."""
    address: str
    prefix_length: int
    scope: str


@dataclass(frozen=True, slots=True)
class NetDevice:
    index: int
    name: str
    mtu_bytes: int
    state: str
    """operstate: UP, DOWN, UNKNOWN (drivers without link state, the loopback) …"""
    flags: tuple[str, ...]
    """UP: administratively up. LOWER_UP: carrier."""
    kind: str | None
    """ether, loopback, infiniband …; None with ``-4`` or ``-6``."""
    mac: str | None
    permanent_mac: str | None
    """Permanent hardware address, where it differs: a bond member."""
    stacked: bool
    """Stacked on another interface: a VLAN, a macvlan."""
    addresses: tuple[Address, ...] | None
    """None in the output of ``ip link``, which prints no addresses."""
    master: str | None = None
    """Bond or bridge that it is a member of."""
    parent: str | None = None
    """Interface that it is stacked on, in the same network namespace."""

    @property
    def carrier(self) -> bool:
        return "UP" in self.flags and "LOWER_UP" in self.flags


def parse_ip(output: str | bytes) -> tuple[NetDevice, ...]:
    """Read either command; devices are in the order of their indices, at least the loopback."""
    entries = find_array(TOOL, output, "devices")
    devices = tuple(_device(entry) for entry in entries if entry.values)  # ip prints {} for devices that a filter hides
    if not devices:
        raise ParseError(TOOL, "no device listed")
    return devices


def _device(entry: Json) -> NetDevice:
    return NetDevice(
        index=entry.integer("ifindex", minimum=1),
        name=entry.string("ifname"),
        mtu_bytes=entry.integer("mtu", minimum=1),
        state=entry.string("operstate"),
        flags=entry.strings("flags"),
        kind=entry.string("link_type") if entry.has("link_type") else None,
        mac=entry.string("address") if entry.has("address") else None,
        permanent_mac=entry.string("permaddr") if entry.has("permaddr") else None,
        stacked=entry.has("link"),
        addresses=tuple(
            Address(
                family=item.string("family"),
                address=item.string("local"),
                prefix_length=item.integer("prefixlen"),
                scope=item.string("scope"),
            )
            for item in entry.children("addr_info")
            if item.values
        )
        if entry.has("addr_info")
        else None,
        master=entry.string("master") if entry.has("master") else None,
        parent=entry.string("link") if isinstance(entry.values.get("link"), str) else None,
    )
