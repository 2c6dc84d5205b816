"""Load of the controller, and of a virtual rack on it."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from paramiko.config import SSH_PORT

from rackproof.core.rack import Rack
from rackproof.core.starvation import CONTROLLER_LOAD, CONTROLLER_PRESSURE, OTHERS
from rackproof.parse import ParseError
from rackproof.parse.cpu import parse_pressure, parse_processor_times
from rackproof.parse.processes import parse_listening, parse_process

_LOOPBACK: Final = re.compile(r"127\.\d+\.\d+\.\d+|::1|localhost")
_MACHINE: Final = "qemu-system"
"""Prefix of the process names of virtual machines; the kernel keeps 15 characters."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Processor time in jiffies since the controller's start."""

    all: int
    busy: int
    machines: int
    """Time of virtual machines."""
    own: int
    pressure_us: int | None
    uptime_s: float


def ports_of_machines(rack: Rack) -> frozenset[int]:
    """ssh ports of nodes that are virtual machines on this machine; empty if one has no loopback address."""
    if not all(node.virtual and _LOOPBACK.fullmatch(str(node.data.get("ssh_hostname", ""))) for node in rack.nodes):
        return frozenset()
    return frozenset(int(node.data.get("ssh_port") or SSH_PORT) for node in rack.nodes)


def reading(ports: frozenset[int], root: Path = Path("/proc")) -> Reading | None:
    """The current values; None if the controller does not run Linux. ``ports``: see ``ports_of_machines``; without them
    no process is read."""
    try:
        fields = parse_processor_times("/proc/stat", (root / "stat").read_text().partition("\n")[0].removeprefix("cpu"))
        uptime_s = float((root / "uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    return Reading(
        sum(fields), sum(fields) - fields[3] - fields[4], _machines(root, ports) if ports else 0,
        int(own * os.sysconf("SC_CLK_TCK")), _pressure(root), uptime_s,
    )  # fmt: skip


def conditions(before: Reading | None, after: Reading | None, runs_rack: bool) -> dict[str, Any]:
    """Conditions of the controller during a step. ``runs_rack``: the nodes are virtual machines on it."""
    if before is None or after is None or after.all <= before.all:
        return {}
    values: dict[str, Any] = {CONTROLLER_LOAD: round(os.getloadavg()[0], 2)}
    if before.pressure_us is not None and after.pressure_us is not None and after.uptime_s > before.uptime_s:
        share = (after.pressure_us - before.pressure_us) / (after.uptime_s - before.uptime_s) / 1e4
        values[CONTROLLER_PRESSURE] = round(min(100.0, max(0.0, share)), 2)
    if runs_rack:
        values[OTHERS] = others_pct(before, after)
    return values


def others_pct(before: Reading, after: Reading) -> float:
    """Share of the processors that neither the virtual machines nor this process used, in %."""
    ours = max(0, after.machines - before.machines) + max(0, after.own - before.own)
    busy = max(0, after.busy - before.busy - ours)
    return round(min(100.0, 100 * busy / (after.all - before.all)), 2)


def _pressure(root: Path) -> int | None:
    with suppress(OSError, ParseError):
        return parse_pressure("/proc/pressure", (root / "pressure/cpu").read_text())
    return None


def _machines(root: Path, ports: frozenset[int]) -> int:
    """Time of the rack's virtual machines: those that listen at ``ports``. Machines of another rack count as others.

    If another program listens for the machines (e.g. passt), all machines count as the rack's.
    """
    sockets = _listening(root, ports)
    times = {path.parent: used for path in root.glob("[0-9]*/stat") if (used := _time_of_machine(path)) is not None}
    own = [used for folder, used in times.items() if _has_socket(folder, sockets)]
    return sum(own or times.values())


def _time_of_machine(stat: Path) -> int | None:
    """Processor time of a process in jiffies; None if it is no virtual machine."""
    try:
        text = stat.read_text()
    except OSError:
        return None  # the process has ended
    name, fields = parse_process(text)
    return int(fields[11]) + int(fields[12]) if name.startswith(_MACHINE) and len(fields) > 12 else None


def _listening(root: Path, ports: frozenset[int]) -> frozenset[str]:
    sockets: frozenset[str] = frozenset()
    for table in ("net/tcp", "net/tcp6"):
        with suppress(OSError):  # a kernel without IPv6
            sockets |= parse_listening((root / table).read_text(), ports)
    return sockets


def _has_socket(folder: Path, sockets: frozenset[str]) -> bool:
    try:
        return any(os.readlink(entry) in sockets for entry in (folder / "fd").iterdir())
    except OSError:
        return False  # the process has ended, or is another user's
