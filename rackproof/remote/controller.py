"""Load of the controller, and of a virtual rack on it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rackproof.core.rack import Rack
from rackproof.core.starvation import CONTROLLER_LOAD, CONTROLLER_PRESSURE, OTHERS

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


def runs_the_rack(rack: Rack) -> bool:
    """Whether the nodes are virtual machines on this machine: their address is a loopback address."""
    return bool(rack.nodes) and all(
        node.virtual and _LOOPBACK.fullmatch(str(node.data.get("ssh_hostname", ""))) for node in rack.nodes
    )


def reading(runs_rack: bool, root: Path = Path("/proc")) -> Reading | None:
    """The current values; None if the controller does not run Linux. Only ``runs_rack`` looks at all processes."""
    try:
        line = (root / "stat").read_text().split("\n", 1)[0].split()[1:9]
        fields = [int(field) for field in line]
        uptime_s = float((root / "uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    return Reading(
        sum(fields), sum(fields) - fields[3] - fields[4], _machines(root) if runs_rack else 0,
        int(own * os.sysconf("SC_CLK_TCK")), _pressure(root), uptime_s,
    )  # fmt: skip


def conditions(before: Reading | None, after: Reading | None, runs_rack: bool) -> dict[str, Any]:
    """Conditions of the controller during a step."""
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
    try:
        match = re.match(r"some .*total=(\d+)", (root / "pressure/cpu").read_text())
    except OSError:
        return None
    return int(match[1]) if match else None


def _machines(root: Path) -> int:
    total = 0
    for path in root.glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue  # the process has ended
        name, fields = text[text.find("(") + 1 : text.rfind(")")], text[text.rfind(")") + 2 :].split()
        if name.startswith(_MACHINE) and len(fields) > 12:
            total += int(fields[11]) + int(fields[12])
    return total
