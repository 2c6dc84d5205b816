"""Counters of fabric ports: bytes and packets of the interface and of its RDMA device, and of the node's TCP.

One ``grep`` reads them all, together with the node's own name; ``ethtool`` reads bytes by priority where asked to.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rackproof.parse.answer import STATUS, parse_answer
from rackproof.parse.errors import ParseError
from rackproof.parse.ethtool import parse_ethtool_statistics
from rackproof.parse.sysfs import GREP_DONE, files_of

TOOL: Final = "port counters"
BEGINS: Final = "grep -sH '' /proc/sys/kernel/hostname /proc/net/snmp"
"""How the command begins, by which it is found among others."""
_HOSTNAME: Final = "/proc/sys/kernel/hostname"
_SNMP: Final = "/proc/net/snmp"

Counters = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PortCounters:
    hostname: str
    """Host name by the kernel, which may differ from the name in the inventory."""
    netdevs: Mapping[str, Counters]
    """``statistics`` by interface."""
    rdma: Mapping[str, Counters]
    """``counters`` and ``hw_counters`` by RDMA device, of its first port; without those that it lacks."""
    tcp: Counters
    """``Tcp`` of /proc/net/snmp: ``OutSegs``, ``RetransSegs`` … of the whole node."""
    priorities: Mapping[str, Counters] = field(default_factory=dict)
    """Bytes by priority (``tx_prio3_bytes``) of the physical port, by interface, with RDMA's; only where asked for.
    Source: Linux, counters of the driver mlx5, "Priority Port Counters"."""


_PORT: Final = "priorities of "
"""Begins the line above a port's counters by priority."""


def counters_command(interfaces: Iterable[str], devices: Iterable[str], priorities: bool = False) -> str:
    """Command that prints the counters of interfaces and RDMA devices; ``priorities``: by priority, too."""
    interfaces = list(interfaces)
    folders = [f"/sys/class/net/{shlex.quote(name)}/statistics/*" for name in interfaces]
    for name in devices:
        port = f"/sys/class/infiniband/{shlex.quote(name)}/ports/1"
        folders += [f"{port}/counters/*", f"{port}/hw_counters/*"]
    ports = " ".join(map(shlex.quote, interfaces))
    by_priority = (
        f'; s=$?; for p in {ports}; do echo "{_PORT}$p";'
        " timeout 15 ethtool -S \"$p\" | grep -e '^NIC statistics' -e '_prio[0-7]_bytes:'; done; (exit $s)"
    )
    return " ".join([BEGINS, *folders]) + (by_priority if priorities else "") + STATUS


def parse_port_counters(output: str) -> PortCounters:
    """Output of ``counters_command``. Interfaces and devices that the node lacks are absent."""
    answer = parse_answer(TOOL, output)
    if answer.status not in GREP_DONE:
        raise ParseError(TOOL, answer.failure)
    netdevs: dict[str, dict[str, int]] = {}
    rdma: dict[str, dict[str, int]] = {}
    body, *ports = re.split(f"^{_PORT}", answer.body, flags=re.MULTILINE)
    files = files_of(body)
    for path, lines in files.items():
        match = re.fullmatch(r"/sys/class/(net|infiniband)/([^/]+)/(?:\w+/)*(\w+)", path)
        if match and re.fullmatch(r"\d{1,20}", lines[0]):
            family = netdevs if match[1] == "net" else rdma
            family.setdefault(match[2], {})[match[3]] = int(lines[0])
    hostname = files.get(_HOSTNAME, ("",))[0].strip()
    if not hostname:
        raise ParseError(TOOL, "the node's name is missing")
    return PortCounters(hostname, netdevs, rdma, _tcp(files.get(_SNMP, ())), dict(map(_priorities, ports)))


def _priorities(section: str) -> tuple[str, Counters]:
    """Name of a port and its counters; none of an adapter or driver that has none."""
    name, _, statistics = section.partition("\n")
    counters = parse_ethtool_statistics(statistics) if "_bytes:" in statistics else {}
    return name, counters


def _tcp(lines: Iterable[str]) -> dict[str, int]:
    """Names are in the first of two lines, values in the second."""
    rows = [line.split()[1:] for line in lines if line.startswith("Tcp:")]
    if len(rows) != 2 or len(rows[0]) != len(rows[1]):
        raise ParseError(TOOL, "no TCP counters in /proc/net/snmp")
    return {name: int(value) for name, value in zip(*rows, strict=True) if re.fullmatch(r"\d{1,20}", value)}
