"""Facts about adapters: one command each, and a complete answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rackproof.configure.facts import Answer, complete
from rackproof.configure.nic import firmware, links, ports, stack
from rackproof.parse.bonding import Bond, parse_bonds
from rackproof.parse.link_counters import BASELINE, parse_baseline
from rackproof.parse.routes import Route, Rule, parse_routes, parse_rules
from rackproof.parse.text import text_from


class PortStates(Answer[dict[str, ports.PortState]]):
    """Settings in force on ports, from /sys, mlnx_qos or dcb, ethtool and the PCI configuration."""

    def command(self, names: Sequence[str]) -> str:
        return complete(ports.state_command(names))

    def parse(self, lines: list[str]) -> dict[str, ports.PortState]:
        return ports.parse_states(lines)


class FirmwareStates(Answer[firmware.FirmwareState]):
    """Versions and settings of firmware, the boot, and pending marks."""

    def command(self, wanted: Sequence[firmware.WantedFirmware]) -> str:
        return complete(firmware.state_command(wanted))

    def parse(self, lines: list[str]) -> firmware.FirmwareState:
        return firmware.parse_state(lines)


class StackState(Answer[stack.StackState]):
    """Loaded and installed drivers, and what would lose its connection without them."""

    def command(self) -> str:
        return complete(stack.state_command())

    def parse(self, lines: list[str]) -> stack.StackState:
        return stack.parse_state(lines)


class Slots(Answer[dict[str, str]]):
    """PCI address by interface or RDMA device."""

    def command(self) -> str:
        return complete(
            "for d in /sys/class/infiniband/*/device /sys/class/net/*/device; do"
            ' [ -e "$d" ] || continue; n=${d%/device}; s=$(cd -P "$d" && pwd); echo "${n##*/} ${s##*/}"; done'
        )

    def parse(self, lines: list[str]) -> dict[str, str]:
        parts = {}
        for line in lines:
            name, slot = line.split()
            if firmware.SLOT.fullmatch(slot):  # a virtio or USB device has other names
                parts[name] = slot
        return parts


class Foreign(Answer[tuple[tuple[str, str], ...]]):
    """Files of other tools that name ports."""

    def command(self, names: Mapping[str, Sequence[str]]) -> str:
        return complete(links.foreign_command(names))

    def parse(self, lines: list[str]) -> tuple[tuple[str, str], ...]:
        return links.parse_foreign(lines)


class Bonds(Answer[dict[str, Bond]]):
    """Bonds as the kernel has them."""

    def command(self) -> str:
        return complete('for f in /proc/net/bonding/*; do [ ! -e "$f" ] || { echo "bond ${f##*/}"; cat "$f"; }; done')

    def parse(self, lines: list[str]) -> dict[str, Bond]:
        return {bond.name: bond for bond in parse_bonds(text_from(lines))}


class RailTables(Answer[tuple[tuple[Rule, ...], tuple[Route, ...]]]):
    """Rules and routes of IPv4."""

    def command(self) -> str:
        return complete("ip -j -4 rule show; echo --; ip -j -4 route show table all")

    def parse(self, lines: list[str]) -> tuple[tuple[Rule, ...], tuple[Route, ...]]:
        split = lines.index("--")
        return parse_rules("\n".join(lines[:split])), parse_routes("\n".join(lines[split + 1 :]))


class LinkBaseline(Answer[bool]):
    """Whether the baseline of link counters was taken in this boot."""

    def command(self) -> str:
        return complete(BASELINE)

    def parse(self, lines: list[str]) -> bool:
        return parse_baseline(text_from(lines)) is not None
