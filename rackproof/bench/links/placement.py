"""Where a node's adapters are: their NUMA nodes, and the GPUs that are nearest to them on PCIe.

Tests of an adapter are bound to its NUMA node. The node's answer and the command of a test prove what was bound.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from rackproof.core.programs import PERFTEST
from rackproof.parse import Mismatch, ParseError
from rackproof.parse.pci_links import SLOT
from rackproof.parse.placement import TOOL, parse_places
from rackproof.remote.command import CommandResult
from rackproof.shell import script

LIMIT_S: Final = 20
"""Time limit of the question, in seconds."""
_PORTS: Final = re.compile(r"set -- (.+)", re.MULTILINE)


class Placement(NamedTuple):
    """Place of one network interface in its node."""

    port: str
    numa: int
    """-1: the kernel knows none, as with one socket or a virtual port."""
    gpu: str | None = None
    """PCI address of the GPU next to it; None if none was asked for."""
    processors: str = ""
    """See ``Place``; for the next two see ``Places``."""
    numactl: bool = True
    built: bool = False

    def bound(self, command: str) -> str:
        """The command with its process and its memory on the interface's NUMA node.

        Without numactl the process is bound, and Linux takes memory of the NUMA node as long as there is some.
        """
        if self.numa < 0:
            return command
        if not self.numactl:
            return f"taskset -c {shlex.quote(self.processors)} {command}"
        near = shlex.quote(f"netdev:{self.port}")
        return f"numactl --cpunodebind={near} --membind={near} {command}"

    @property
    def conditions(self) -> dict[str, Any]:
        """Conditions of a measurement: NUMA node, and what was bound to it."""
        if self.numa < 0:
            return {}
        bound = "numactl: processors and memory" if self.numactl else "taskset: processors"
        return {"numa_node": self.numa, "bound": bound}


def placement_command(ports: Sequence[str]) -> str:
    return script(__name__, "placement", *ports, perftest=PERFTEST)


def placements(answer: CommandResult, ports: Sequence[str], gpus: bool) -> list[Placement]:
    """Placements of the interfaces. ``gpus``: with the nearest GPU; of equally near ones, the one with fewest adapters.

    Raises ParseError.
    """
    if not answer.ok:
        raise ParseError(TOOL, f"{answer.node}: {answer.why}")
    try:
        places = parse_places(answer.text, ports)
        own = {port: place.path for port, place in zip(ports, places.ports, strict=True)}
        nearest = _nearest(own, places.gpus) if gpus else {}
    except ParseError as error:
        raise ParseError(TOOL, f"{answer.node}: {error.reason}") from None
    return [
        Placement(port, place.numa, nearest.get(port), place.processors, places.numactl, places.built)
        for port, place in zip(ports, places.ports, strict=True)
    ]


def is_question(command: str) -> bool:
    """Whether a command is that of ``placement_command``, to which a node gives the same answer at all times."""
    return command == placement_command(_ports(command))


def _ports(command: str) -> list[str]:
    match = _PORTS.search(command)
    try:
        return shlex.split(match[1]) if match else []
    except ValueError:  # quotes that are not closed
        return []


def bound_as_placed(command: str, port: str, answers: Iterable[CommandResult]) -> tuple[dict[str, Any], CommandResult]:
    """Conditions of a test by the node's ``answers``, and the answer that tells where the adapter is.

    Raises ParseError without such an answer, and Mismatch if the command is not bound to that NUMA node.
    """
    asked = [answer for answer in answers if is_question(answer.command)]
    if not asked:
        raise ParseError(TOOL, f"no answer about the NUMA node of {port}")
    ports = _ports(asked[0].command)
    placed = {one.port: one for one in placements(asked[0], ports, gpus=False)}
    if port not in placed:
        raise ParseError(TOOL, f"the answer about NUMA nodes leaves out {port}")
    expected = placed[port].bound("").rstrip()
    if f"{expected} ib_".lstrip() not in command.replace(f"{PERFTEST}/", ""):
        raise Mismatch(TOOL, f"expected {expected} before the test of {port}, actual {command[:80]}")
    return placed[port].conditions, asked[0]


def _nearest(paths: dict[str, str], gpus: Sequence[str]) -> dict[str, str]:
    """PCI address of the GPU that shares most of each adapter's path; the least used one of several."""
    addresses = [path.rpartition("/")[2] for path in gpus]
    if virtual := [port for port, path in paths.items() if not path.startswith("/sys/devices/")]:
        raise ParseError(TOOL, f"the port {virtual[0]} is no PCI device")
    if not gpus or not all(map(SLOT.fullmatch, addresses)):
        raise ParseError(TOOL, "no NVIDIA GPU on PCI")
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
