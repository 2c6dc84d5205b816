"""PCI devices as lspci describes them (``-vv`` or more), with their links and access control services (ACS)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, matched, whole_lines

TOOL: Final = "lspci"

# lspci -vvv prints hundreds of lines a device; evidence keeps only those that are parsed. The number of devices
# proves that none is missing.
WANTED: Final = "^[0-9a-f]|NUMA node:|access denied|DevC(ap|tl):|MaxPayload|Lnk(Cap|Sta):|ACSC(ap|tl):"
COMMAND: Final = f"lspci -Dnnvvv | grep -E '{WANTED}'; echo devices $(ls /sys/bus/pci/devices | wc -l)"


@dataclass(frozen=True, slots=True)
class PciDevice:
    slot: str
    """With its domain: ``0000:1a:00.0``."""
    kind: str
    """``Ethernet controller`` …"""
    name: str
    """Vendor and device from the PCI id database; ``Device 1021`` for an unknown one, as ``has_name`` tells."""
    ids: str | None
    """``15b3:1021``; None without ``-nn``."""
    numa_node: int | None
    max_payload: int | None
    """Bytes."""
    max_read_request: int | None
    """Bytes."""
    relaxed_ordering: bool | None
    """None where lspci does not print it."""
    acs: dict[str, bool] | None = field(hash=False)
    """Enabled ACS functions: ``{"ReqRedir": False, …}``; None where the device has none."""
    acs_can: dict[str, bool] | None = field(hash=False)
    hidden: bool | None
    """lspci was not permitted to read the capabilities, so None values may exist. None: no capabilities printed."""

    @property
    def has_name(self) -> bool:
        """The PCI id database knows the device."""
        return re.search(r"\bDevice( [0-9a-f]{4})?$", self.name) is None


_DEVICE: Final = re.compile(r"([0-9a-f]{4,}:)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.+?)(?: \[[0-9a-f]{4}\])?: (.+?)\s*")
_IDS: Final = re.compile(r"(.*?) \[([0-9a-f]{4}:[0-9a-f]{4})\].*")
_FLAG: Final = re.compile(r"(\w+)([+-])")


def parse_lspci(output: str | bytes) -> tuple[PciDevice, ...]:
    """Read ``lspci -vv`` with or without ``-D`` and ``-nn``, or the answer to ``COMMAND``."""
    lines = whole_lines(TOOL, output)
    counted: int | None = None
    if match := re.fullmatch(r"devices (\d{1,6})", lines[-1]):
        counted = int(match[1])
        lines.pop()
    blocks: list[list[str]] = []
    for line in lines:
        if _DEVICE.fullmatch(line):
            blocks.append([line])
        elif blocks and (not line or line[0].isspace()):
            blocks[-1].append(line.strip())
        else:
            raise ParseError(TOOL, f"unexpected line {excerpt(line)}")
    if counted is not None and counted != len(blocks):
        raise ParseError(TOOL, f"describes {len(blocks)} of {counted} devices")
    if not blocks:
        raise ParseError(TOOL, "no device listed")
    devices = tuple(_device(block) for block in blocks)
    if len({device.slot for device in devices}) != len(devices):
        raise ParseError(TOOL, "describes a device twice")
    return devices


def _device(block: list[str]) -> PciDevice:
    match = matched(TOOL, _DEVICE, block[0], "a device")
    slot, name, ids = f"{match[1] or '0000:'}{match[2]}", re.sub(r" \((?:rev|prog-if) .*", "", match[4]), None
    if with_ids := _IDS.fullmatch(match[4]):
        name, ids = with_ids[1], with_ids[2]
    text = "\n".join(block[1:])
    numa = re.search(r"(?m)^NUMA node: (-?\d{1,4})$", text)
    control = re.search(r"MaxPayload (\d+) bytes, MaxReadReq (\d+) bytes", text)
    ordering = re.search(r"\bRlxdOrd([+-])", text)
    return PciDevice(
        slot=slot,
        kind=match[3],
        name=name,
        ids=ids,
        numa_node=int(numa[1]) if numa else None,
        max_payload=int(control[1]) if control else None,
        max_read_request=int(control[2]) if control else None,
        relaxed_ordering=ordering[1] == "+" if ordering else None,
        acs=_flags(text, "ACSCtl"),
        acs_can=_flags(text, "ACSCap"),
        hidden=True if "access denied" in text else False if "DevCap:" in text or "Capabilities: [" in text else None,
    )


def _flags(text: str, key: str) -> dict[str, bool] | None:
    line = re.search(rf"(?m)^{key}:\s*(.*)$", text)
    if line is None:
        return None
    flags = {name: sign == "+" for name, sign in _FLAG.findall(line[1])}
    if "SrcValid" not in flags or "ReqRedir" not in flags:
        raise ParseError(TOOL, f"expected ACS functions, got {excerpt(line[0])}")
    return flags
