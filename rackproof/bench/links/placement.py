"""Where a node's adapters are: their NUMA nodes, and the GPUs that are nearest to them on PCIe."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult

TOOL: Final = "PCI devices"
LIMIT_S: Final = 20
"""Time limit of the question, in seconds."""
_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NUMA: Final = re.compile(r"-1|\d{1,4}")


class Placement(NamedTuple):
    """Of one network interface."""

    port: str
    numa: int
    """-1: the kernel knows none, as with one socket or a virtual port."""
    gpu: str | None
    """PCI address of the GPU next to it; None if none was asked for."""

    def bound(self, command: str) -> str:
        """The command with its process and its memory on the interface's NUMA node."""
        if self.numa < 0:
            return command
        near = shlex.quote(f"netdev:{self.port}")
        return f"numactl --cpunodebind={near} --membind={near} {command}"


def placement_command(ports: Sequence[str]) -> str:
    """Command that prints PCI path and NUMA node of network interfaces, then the paths of all NVIDIA GPUs."""
    names = " ".join(map(shlex.quote, ports))
    return (
        f"for p in {names}; do readlink -e /sys/class/net/$p/device || echo none; "
        "cat /sys/class/net/$p/device/numa_node 2>/dev/null || echo -1; done; for d in /sys/bus/pci/devices/*; do "
        'case "$(cat "$d/vendor"):$(cat "$d/class")" in 0x10de:0x030[02]*) readlink -e "$d";; esac; done; echo end'
    )


def placements(answer: CommandResult, ports: Sequence[str], gpus: bool) -> list[Placement]:
    """Placements of the interfaces. ``gpus``: each with a GPU, another one as long as there are unused ones as near.

    Raises ParseError.
    """
    if not answer.ok:
        raise ParseError(TOOL, f"{answer.node}: {answer.why}")
    lines = answer.text.splitlines()
    if lines[-1:] != ["end"] or len(lines) < 2 * len(ports) + 1:
        raise ParseError(TOOL, f"{answer.node}: the answer is cut off")
    own, numa, known = lines[: 2 * len(ports) : 2], lines[1 : 2 * len(ports) : 2], lines[2 * len(ports) : -1]
    if strange := [text for text in numa if not _NUMA.fullmatch(text)]:
        raise ParseError(TOOL, f"{answer.node}: no NUMA node: {strange[0][:40]!r}")
    nearest = _nearest(answer.node, dict(zip(ports, own, strict=True)), known) if gpus else {}
    return [Placement(port, int(node), nearest.get(port)) for port, node in zip(ports, numa, strict=True)]


def _nearest(node: str, paths: dict[str, str], gpus: Sequence[str]) -> dict[str, str]:
    """PCI address of the GPU that shares most of each adapter's path; the least used one of several."""
    addresses = [path.rpartition("/")[2] for path in gpus]
    if virtual := [port for port, path in paths.items() if not path.startswith("/sys/devices/")]:
        raise ParseError(TOOL, f"{node}: the port {virtual[0]} is no PCI device")
    if not gpus or not all(map(_ADDRESS.fullmatch, addresses)):
        raise ParseError(TOOL, f"{node}: no NVIDIA GPU on PCI")
    used: Counter[int] = Counter()
    nearest = {}
    for port, own in paths.items():
        shared = [_shared(own, path) for path in gpus]
        chosen = min(range(len(gpus)), key=lambda number: (-shared[number], used[number]))
        used[chosen] += 1
        nearest[port] = addresses[chosen]
    return nearest


def _shared(a: str, b: str) -> int:
    """Number of leading parts that two paths have in common."""
    parts = list(zip(a.split("/"), b.split("/"), strict=False))
    return next((number for number, (left, right) in enumerate(parts) if left != right), len(parts))
