"""Answers of ``rackproof/bench/collectives/guest_side.sh`` and ``guest_off.sh``: a node and its virtual machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree

from rackproof.core.load import LoadState
from rackproof.parse.errors import ParseError
from rackproof.parse.gpu_list import ListedGpu, parse_gpu_list
from rackproof.parse.load import parse_state
from rackproof.parse.sections import sections_of
from rackproof.parse.text import UUID, excerpt, marked_lines, matched, text_from

SIDE: Final = "rackproof guest side 1"
OFF: Final = "rackproof guest off 1"
"""First lines of the answers, and parts of the commands."""
TOOL: Final = "virsh"
SHUT_OFF: Final = "shut off"


@dataclass(frozen=True, slots=True)
class Domain:
    uuid: str
    state: str
    """``shut off``, ``running`` …, as ``virsh domstate`` prints it."""
    given: frozenset[str]
    """PCI functions that it takes from the node when it starts: ``00000000:18:00``, without the function."""


@dataclass(frozen=True, slots=True)
class Side:
    """A node, or its guest."""

    domain: Domain | None
    """The guest's, asked on the node; None in the guest."""
    virtualisation: str
    """As ``systemd-detect-virt --vm`` prints it; ``none`` on a machine."""
    machine: str
    """``product_uuid`` of its firmware; of a guest the domain's UUID."""
    gpus: tuple[ListedGpu, ...]
    state: LoadState


def parse_side(output: str | bytes) -> Side:
    """Raises ParseError."""
    domain, machine, gpus, state = sections_of(marked_lines(TOOL, output, SIDE, "end of side"), 4)
    if len(machine) != 2:
        raise ParseError("systemd-detect-virt", f"expected it and product_uuid, got {excerpt(' '.join(machine))}")
    return Side(
        domain=_domain([line for line in domain if line.strip()]) if domain else None,
        virtualisation=matched("systemd-detect-virt", r"[a-z0-9-]+", machine[0], "a kind of virtualisation")[0],
        machine=matched("product_uuid", UUID, machine[1].lower(), "a UUID")[0],
        gpus=parse_gpu_list(text_from(gpus)),
        state=parse_state(text_from(state)),
    )


def _domain(lines: Sequence[str]) -> Domain:
    if len(lines) < 3:
        raise ParseError(TOOL, "expected a domain's UUID, state and description")
    uuid = matched(TOOL, UUID, lines[0].strip().lower(), "a domain's UUID")[0]
    if not lines[2].startswith("<domain"):
        raise ParseError(TOOL, f"expected a domain's description, got {excerpt(lines[2])}")
    try:
        document = ElementTree.fromstring("\n".join(lines[2:]))  # noqa: S314  (no prolog, hence no entities)
    except ElementTree.ParseError as error:
        raise ParseError(TOOL, f"the domain's description is no XML: {error}") from None
    given = set()
    for device in document.findall("./devices/hostdev[@type='pci'][@managed='yes']/source/address"):
        try:
            place = [int(device.get(key, ""), 0) for key in ("domain", "bus", "slot")]
        except ValueError:
            raise ParseError(TOOL, f"unreadable address of a hostdev: {device.attrib}") from None
        given.add("{:08X}:{:02X}:{:02X}".format(*place))
    return Domain(uuid, lines[1].strip(), frozenset(given))


def parse_off(output: str | bytes) -> str:
    """How the domain ended: ``shutdown``, ``destroy``, or ``none`` where it was shut off. Raises ParseError."""
    lines = marked_lines(TOOL, output, OFF, "end of off")
    if len(lines) != 2 or lines[0] not in ("shutdown", "destroy", "none"):
        raise ParseError(TOOL, f"expected how the domain ended, got {excerpt(' '.join(lines))}")
    return lines[0]
