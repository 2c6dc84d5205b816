"""Interrupts of network cards, and the processors that serve them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import ended_lines, excerpt, processor_list

IRQ_END: Final = "end of interrupts"
# The effective affinity takes precedence over the requested one; an interrupt that never fired has none yet.
INTERRUPTS: Final = (
    'for d in /sys/class/net/*/device /sys/class/infiniband/*/device; do [ -e "$d" ] || continue;'
    ' p=$(readlink -f "$d"); [ -d "$p/msi_irqs" ] || p=${p%/*}; [ ! -d "$p/msi_irqs" ] || echo "$p"; done | sort -u |'
    ' while read -r p; do set -- "$p"/msi_irqs/*; [ -e "$1" ] || shift;'
    ' echo "device ${p##*/} $(cat "$p/numa_node") $(cat "$p/local_cpulist") $#";'
    ' for i in "$@"; do f=/proc/irq/${i##*/};'
    ' [ -e "$f/smp_affinity_list" ] || { echo "irq ${i##*/} unused"; continue; };'
    ' a=$(cat "$f/effective_affinity_list" 2>/dev/null); echo "irq ${i##*/} ${a:-$(cat "$f/smp_affinity_list")}"; done;'
    f" done; echo {IRQ_END}"
)


@dataclass(frozen=True, slots=True)
class CardInterrupts:
    """A network card and the processors that serve its interrupts."""

    slot: str
    numa_node: int
    """-1 where the firmware reports none."""
    local: frozenset[int]
    by_irq: Mapping[int, frozenset[int]]

    @property
    def far(self) -> tuple[int, ...]:
        """Interrupts whose affinity includes a processor of another NUMA node."""
        return tuple(irq for irq, processors in self.by_irq.items() if not processors <= self.local)


def parse_interrupts(output: str) -> tuple[CardInterrupts, ...]:
    """Output of ``INTERRUPTS``."""
    lines = ended_lines("/proc/irq", output, IRQ_END)
    cards: list[tuple[str, int, frozenset[int], dict[int, frozenset[int]]]] = []
    missing: dict[str, int] = {}  # interrupts of each card that are not listed yet
    for line in lines:
        if match := re.fullmatch(r"device (\S+) (-1|\d+) ([\d,-]+) (\d{1,5})", line):
            missing[match[1]] = int(match[4])
            cards.append((match[1], int(match[2]), processor_list("/proc/irq", match[3]), {}))
        elif (match := re.fullmatch(r"irq (\d+) ([\d,-]+)", line)) and cards and int(match[1]) not in cards[-1][3]:
            cards[-1][3][int(match[1])] = processor_list("/proc/irq", match[2])
            missing[cards[-1][0]] -= 1
        elif re.fullmatch(r"irq \d+ unused", line) and cards:
            missing[cards[-1][0]] -= 1
        else:
            raise ParseError("/proc/irq", f"expected an interrupt, got {excerpt(line)}")
    if wrong := [slot for slot, count in missing.items() if count]:
        raise ParseError("/proc/irq", f"does not list every interrupt of {', '.join(wrong)}")
    return tuple(CardInterrupts(*card) for card in cards)
