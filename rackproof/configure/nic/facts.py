"""Facts about adapters: one command each, and a complete answer."""

from __future__ import annotations

from collections.abc import Sequence

from rackproof.configure.facts import answer
from rackproof.configure.nic import firmware, links, ports, stack
from rackproof.parse.bonding import parse_bonds
from rackproof.parse.link_counters import BASELINE, parse_baseline
from rackproof.parse.pci_links import SLOT
from rackproof.parse.routes import Route, Rule, parse_routes, parse_rules
from rackproof.parse.sections import sections_of
from rackproof.parse.text import text_from

PortStates = answer("PortStates", ports.state_command, ports.parse_states)
"""Settings in force on ports, from /sys, mlnx_qos or dcb, ethtool and the PCI configuration."""

FirmwareStates = answer("FirmwareStates", firmware.state_command, firmware.parse_state)
"""Versions and settings of firmware, the boot, and pending marks."""

StackState = answer("StackState", stack.state_command, stack.parse_state)
"""Loaded and installed drivers, and what would lose its connection without them."""


def _slots(lines: Sequence[str]) -> dict[str, str]:
    parts = (line.split() for line in lines)
    # A virtio or USB device has other names.
    return {name: slot for name, slot in parts if SLOT.fullmatch(slot)}


Slots = answer(
    "Slots",
    "for d in /sys/class/infiniband/*/device /sys/class/net/*/device; do"
    ' [ -e "$d" ] || continue; n=${d%/device}; s=$(cd -P "$d" && pwd); echo "${n##*/} ${s##*/}"; done',
    _slots,
)
"""PCI address by interface or RDMA device."""

Foreign = answer("Foreign", links.foreign_command, links.parse_foreign)
"""Files of other tools that name ports."""

Bonds = answer(
    "Bonds",
    'for f in /proc/net/bonding/*; do [ ! -e "$f" ] || { echo "bond ${f##*/}"; cat "$f"; }; done',
    lambda lines: {bond.name: bond for bond in parse_bonds(text_from(lines))},
)
"""Bonds as the kernel has them."""


def _tables(lines: list[str]) -> tuple[tuple[Rule, ...], tuple[Route, ...]]:
    rules, routes = sections_of(lines, 2)
    return parse_rules(text_from(rules)), parse_routes(text_from(routes))


RailTables = answer("RailTables", "ip -j -4 rule show; echo --; ip -j -4 route show table all", _tables)
"""Rules and routes of IPv4."""

LinkBaseline = answer("LinkBaseline", BASELINE, lambda lines: parse_baseline(text_from(lines)) is not None)
"""Whether the baseline of link counters was taken in this boot."""
