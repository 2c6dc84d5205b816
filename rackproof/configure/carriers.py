"""The rule of every network change: no device is taken down that carries an ssh session, the default route or an
undeclared address.

A device carries what devices on top of it carry: a bond's members, a VLAN's parent. Its addresses count where it is
renamed, removed or made a member; a device that only gets its declared configuration again keeps them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rackproof import shell
from rackproof.parse.netdev import parse_ip
from rackproof.parse.routes import parse_routes
from rackproof.parse.sections import sections_of
from rackproof.parse.text import text_from


@dataclass(frozen=True, slots=True)
class Carrier:
    """Load of a network device: its own, and that of devices on top of it."""

    sessions: frozenset[str] = frozenset()
    """Peers of ssh sessions."""
    default: bool = False
    addresses: frozenset[str] = frozenset()
    """Without prefix length, and without link-local ones."""
    driver: str = ""
    """Name of its own kernel driver; empty for a bond, a VLAN …"""


@dataclass(frozen=True, slots=True)
class Touched:
    """Devices, by their present names, that a change disturbs."""

    down: frozenset[str] = frozenset()
    """Devices that are renamed, removed, or made members of a bond, and lose their addresses."""
    reconfigured: frozenset[str] = frozenset()
    """Devices that get their configuration again, and lose routes that are not in it."""

    def __or__(self, other: Touched) -> Touched:
        return Touched(self.down | other.down, self.reconfigured | other.reconfigured)

    def __bool__(self) -> bool:
        return bool(self.down or self.reconfigured)


def command() -> str:
    return shell.script(__name__, "carriers")


def parse(lines: Sequence[str]) -> dict[str, Carrier]:
    """Answer of ``command``: carriers by device. Raises ValueError on anything else."""
    listed, *routes, ends = sections_of(lines, 4)
    devices = {device.name: device for device in parse_ip(text_from(listed))}
    addresses = {
        name: frozenset(a.address for a in device.addresses or () if a.scope != "link")
        for name, device in devices.items()
        if device.kind != "loopback"
    }
    default = {route.device for family in routes for route in parse_routes(text_from(family))}
    drivers = dict(line.split(" ")[1:] for line in ends if line.startswith("driver "))
    sessions: dict[str, set[str]] = {}
    for line in ends:
        if line.startswith("driver "):
            continue
        own, peer, egress = line.split(" ")
        address, _, zone = own.partition("%")
        for name in {egress, zone, *(name for name, known in addresses.items() if address in known)} & set(devices):
            sessions.setdefault(name, set()).add(peer)
    carriers: dict[str, Carrier] = {}
    for name in devices:
        above = {name, *_above(name, {other.name: (other.master, other.parent) for other in devices.values()})}
        carriers[name] = Carrier(
            sessions=frozenset(peer for other in above for peer in sessions.get(other, ())),
            default=bool(above & default),
            addresses=frozenset().union(*(addresses.get(other, ()) for other in above)),
            driver=drivers.get(name, ""),
        )
    return carriers


def _above(name: str, below: Mapping[str, tuple[str | None, str | None]]) -> set[str]:
    """Devices on top of a device: its bond or bridge, and what is stacked on it, in all layers. ``below``: master and
    parent of every device."""
    above: set[str] = set()
    waiting = [name]
    while waiting:
        here = waiting.pop()
        master = below.get(here, (None, None))[0]
        on_top = {other for other, (_, parent) in below.items() if parent == here} | ({master} if master else set())
        waiting += on_top - above
        above |= on_top
    return above - {name}


def needs(touched: Touched, carriers: Mapping[str, Carrier], declared: Collection[str]) -> str | None:
    """Why a change must not be made, in one line; None when it may. ``declared``: the node's own addresses in the
    inventory, with or without prefix length."""
    own = {address.partition("/")[0] for address in declared}
    problems = []
    for name in sorted(touched.down | touched.reconfigured):
        carrier = carriers.get(name, Carrier())
        carried = [f"the ssh session of {peer}" for peer in sorted(carrier.sessions)]
        carried += ["the default route"] if carrier.default else []
        if name in touched.down:
            carried += [f"{address}, which is not declared" for address in sorted(carrier.addresses - own)]
        if carried:
            problems.append(f"{name} carries {', '.join(carried)}")
    if not problems:
        return None
    return (
        f"{'; '.join(problems)}: such a device is never taken down; move it to another device, or take the port, bond"
        " or VLAN out of the inventory"
    )


def of_driver(driver: str, carriers: Mapping[str, Carrier]) -> Touched:
    """Devices that a restart of a driver takes down."""
    return Touched(down=frozenset(name for name, carrier in carriers.items() if carrier.driver == driver))
