"""Drives of a machine, from the kernel's own list."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rackproof.core.wording import scaled
from rackproof.parse.errors import ParseError
from rackproof.parse.pci_links import generation, link_width
from rackproof.parse.text import ended_lines, excerpt, integer, matched, whole_lines

_TOOL: Final = "sysfs"
_SECTOR: Final = 512
"""Bytes; /sys always counts in 512 B sectors, whatever the drive's sector size."""
_READ, _WRITTEN = 2, 6
"""Columns of sectors in ``/sys/block/*/stat`` (Documentation/block/stat.rst), from 0."""

# NVMe drives are listed by controller: a drive without a namespace appears only there.
DRIVES: Final = (
    'for c in /sys/class/nvme/nvme[0-9]*; do [ -e "$c" ] || continue; echo "nvme ${c##*/}";'
    ' for f in transport state model serial firmware_rev; do [ ! -e "$c/$f" ] || echo " $f $(cat "$c/$f")"; done;'
    ' echo " slot $(basename "$(readlink -f "$c/device")")";'
    " for f in current_link_speed max_link_speed current_link_width max_link_width;"
    ' do [ ! -e "$c/device/$f" ] || echo " $f $(cat "$c/device/$f")"; done;'
    ' for n in "$c"/nvme*n[0-9]*; do [ ! -e "$n/size" ] || echo " namespace ${n##*/} $(cat "$n/size")"; done; done;'
    ' for d in /sys/block/sd[a-z]*; do [ -e "$d" ] || continue; echo "disk ${d##*/}";'
    ' echo " path $(readlink -f "$d/device")"; echo " size $(cat "$d/size")";'
    ' echo " rotational $(cat "$d/queue/rotational")"; echo " removable $(cat "$d/removable")";'
    ' for f in model rev; do [ ! -e "$d/device/$f" ] || echo " $f $(cat "$d/device/$f")"; done; done;'
    " echo end of drives"
)


@dataclass(frozen=True, slots=True)
class LocalDrive:
    name: str
    """``nvme0`` (the controller) or ``sda``."""
    kind: Literal["nvme", "sata_ssd"]
    size_bytes: int
    """Sum of all namespaces."""
    model: str
    firmware: str
    state: str = "live"
    slot: str = ""
    """PCI address of an NVMe drive."""
    pcie_generation: int | None = None
    pcie_width: int | None = None
    """None where the link reports none."""
    devices: tuple[str, ...] = ()
    """The drive's block devices: ``nvme0n1`` for each namespace, or ``sda``. With multipath a path, ``nvme0c0n1``."""

    @property
    def size_tb(self) -> float:
        return self.size_bytes / 1e12

    @property
    def described(self) -> str:
        return f"{self.name} ({scaled(self.size_bytes, 'B')})"


def parse_drives(output: str | bytes) -> tuple[LocalDrive, ...]:
    """Output of ``DRIVES``: drives in PCIe slots and solid-state disks of local controllers.

    Rotating, removable, USB and network disks are left out.
    """
    lines = ended_lines(_TOOL, output, "end of drives")
    records: list[tuple[str, str, list[tuple[str, str]]]] = []
    for line in lines:
        if match := re.fullmatch(r"(nvme) (nvme\d+)|(disk) (sd[a-z]+)", line):
            records.append((match[1] or match[3], match[2] or match[4], []))
        elif records and (match := re.fullmatch(r" ([a-z_]+) ?(.*)", line)):
            records[-1][2].append((match[1], match[2].strip()))
        else:
            raise ParseError(_TOOL, f"unexpected line {excerpt(line)}")
    drives = [_nvme(name, fields) if kind == "nvme" else _disk(name, fields) for kind, name, fields in records]
    names = [name for _, name, _ in records]
    if len(set(names)) != len(names):
        raise ParseError(_TOOL, "a drive is listed twice")
    return tuple(drive for drive in drives if drive is not None)


def _nvme(name: str, fields: list[tuple[str, str]]) -> LocalDrive | None:
    known = _known(name, fields, ("transport", "state", "model", "firmware_rev", "slot"))
    if known["transport"] != "pcie":
        return None
    sectors = 0
    devices = []
    for key, value in fields:
        if key == "namespace":
            match = re.fullmatch(r"(nvme\d+(?:c\d+)?n\d+) (\d{1,18})", value)
            if match is None:
                raise ParseError(_TOOL, f"{name}: expected the size of a namespace, got {excerpt(value)}")
            devices.append(match[1])
            sectors += int(match[2])
    return LocalDrive(
        name, "nvme", sectors * _SECTOR, known["model"], known["firmware_rev"], known["state"], known["slot"],
        generation(known.get("current_link_speed")), link_width(known.get("current_link_width")), tuple(devices),
    )  # fmt: skip


def _disk(name: str, fields: list[tuple[str, str]]) -> LocalDrive | None:
    known = _known(name, fields, ("path", "size", "rotational", "removable", "model", "rev"))
    if not known["path"].startswith("/sys/devices/"):
        raise ParseError(_TOOL, f"{name}: expected a path below /sys/devices, got {excerpt(known['path'])}")
    flags = {key: integer(_TOOL, f"{name}: {key}", known[key]) for key in ("rotational", "removable")}
    elsewhere = re.search(r"/(usb\d+|session\d+|rport-[\d:-]+|nvme)/", known["path"])
    if flags["rotational"] or flags["removable"] or elsewhere:
        return None
    size = integer(_TOOL, f"{name}: size", known["size"]) * _SECTOR
    return LocalDrive(name, "sata_ssd", size, known["model"], known["rev"], devices=(name,))


def _known(name: str, fields: list[tuple[str, str]], needed: tuple[str, ...]) -> dict[str, str]:
    known = {key: value for key, value in fields if key != "namespace"}
    for key in needed:
        if not known.get(key):
            raise ParseError(_TOOL, f"{name}: has no {key}")
    return known


def moved_bytes(tool: str, stat: Sequence[str]) -> tuple[int, int]:
    """Bytes read and written since boot, from the columns of ``/sys/block/*/stat``. Raises ParseError."""
    read, written = (integer(tool, "counter of a drive", stat[column]) * _SECTOR for column in (_READ, _WRITTEN))
    return read, written


def read_ahead_command(device: str) -> str:
    """Read-ahead of a mounted device (``major:minor``): of a network file system, a drive, or a partition's drive."""
    matched("mountinfo", r"\d+:\d+", device, "MAJOR:MINOR")
    block = f"/sys/dev/block/{device}"
    folders = f"/sys/class/bdi/{device} {block}/bdi {block}/../bdi"
    return (
        f'r="no read-ahead"; for d in {folders}; do f="$d/read_ahead_kb";'
        ' if [ -e "$f" ]; then r=$(cat "$f"); break; fi; done; echo "$r"'
    )


def parse_read_ahead(output: str) -> int | None:
    """Output of ``read_ahead_command`` in KiB; None where the kernel has no such setting."""
    lines = whole_lines("bdi", output)
    if lines == ["no read-ahead"]:
        return None
    if len(lines) != 1:
        raise ParseError("bdi", f"expected a read-ahead in KiB, got {excerpt(output)}")
    return integer("bdi", "read-ahead", lines[0])
