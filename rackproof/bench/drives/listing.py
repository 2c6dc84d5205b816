"""The drives of a node, by declared name, from one answer that lists them; and states of a drive around its use."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from rackproof.core.architecture import Architecture
from rackproof.core.drives import drive_names
from rackproof.core.metrics import DRIVE
from rackproof.core.wording import some
from rackproof.parse import Mismatch, ParseError
from rackproof.parse.block import DRIVES, LocalDrive, parse_drives
from rackproof.parse.drive_state import BlockDevice, DriveState, parse_drive_state, split_state
from rackproof.parse.drive_uses import drives_by_use
from rackproof.remote.command import CommandResult
from rackproof.shell import script

COUNTED: Final = 0.97
"""Minimum share of the moved bytes in the drive's own counters."""
_MARK: Final = re.compile(r": drives of (\S+)\n")
_TOOL: Final = "drives"
_SHOWN: Final = 4
"""Maximum number of drives in a message."""


@dataclass(frozen=True, slots=True)
class ListedDrive:
    name: str
    """``gpu-01/scratch-0``."""
    drive: LocalDrive
    identity: str

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices that are read: with multipath the device above the path, whose name has no controller."""
        return tuple(re.sub(r"c\d+n", "n", device) for device in self.drive.devices)

    @property
    def watched(self) -> tuple[str, ...]:
        """Devices whose counters are read; with multipath some kernels count on the path only."""
        return tuple(dict.fromkeys((*self.devices, *self.drive.devices)))

    @property
    def text(self) -> str:
        """Model, serial number and place."""
        drive = self.drive
        words = [drive.model, f"serial number {self.identity}", f"PCI address {drive.slot}" if drive.slot else ""]
        return ", ".join(filter(None, words))

    def conditions(self) -> dict[str, Any]:
        drive = self.drive
        return {DRIVE: self.text, "model": drive.model, "firmware": drive.firmware, "size_bytes": drive.size_bytes}


def list_command(role: str) -> str:
    """Command that lists the drives of a node of ``role``."""
    return f": drives of {shlex.quote(role)}\n{script(__name__, 'state')}\n{DRIVES}"


def state_command(devices: Sequence[str]) -> str:
    return script(__name__, "state", *devices)


def is_listing(command: str) -> bool:
    """Whether a command is a ``list_command``."""
    return _MARK.match(command) is not None


def listing_of(answers: Sequence[CommandResult], node: str) -> CommandResult:
    """The answer of a node with its drives. Raises ParseError without one."""
    listed = [answer for answer in answers if answer.node == node and is_listing(answer.command)]
    if not listed or not listed[-1].ok:
        raise ParseError(_TOOL, f"{node}: {listed[-1].why if listed else 'its drives were not listed'}")
    return listed[-1]


def host_in(listing: CommandResult) -> str:
    """``uname -n`` of the listed node. Raises ParseError."""
    return parse_drive_state(split_state(listing.text)[0]).host


DrivesByName = Mapping[str, ListedDrive | None]
"""All declared drives of a node and use, by name; None: missing."""
DrivesOf = Callable[[str, str], DrivesByName]
"""Drives of a node and use. Raises ParseError."""


def listed_drives(listing: CommandResult, use: str, architecture: Architecture) -> DrivesByName:
    """Raises ParseError for more drives than declared."""
    role = _MARK.match(listing.command)
    expect = architecture.roles[role[1]].expect.drives if role and role[1] in architecture.roles else ()
    count = next((drives.count for drives in expect if drives.use == use), None)
    if not count:
        raise ParseError(_TOOL, f"{listing.node}: its role declares no number of {use} drives")
    head, tail = split_state(listing.text)
    state, node = parse_drive_state(head), listing.node
    every = parse_drives(tail)
    identities = [_identity(drive, state) for drive in every]
    unique = {
        drive.name: identity if identities.count(identity) == 1 else ""
        for drive, identity in zip(every, identities, strict=True)
    }
    drives = sorted(drives_by_use(expect, every)[use], key=lambda drive: (drive.slot, unique[drive.name]))
    if len(drives) > count:
        there = some([unique[drive.name] or drive.name for drive in drives], _SHOWN)
        raise ParseError(_TOOL, f"{node}: expected {count} {use} drives, actual {len(drives)}: {there}")
    named: dict[str, ListedDrive | None] = dict.fromkeys(drive_names(node, use, count))
    return named | {
        name: ListedDrive(name, drive, unique[drive.name]) for name, drive in zip(named, drives, strict=False)
    }


def drives_in(answers: Sequence[CommandResult], architecture: Architecture) -> DrivesOf:
    """``listed_drives`` of a node and use, from a step's answers."""
    return cache(lambda node, use: listed_drives(listing_of(answers, node), use, architecture))


def usable(drives: DrivesByName, name: str) -> ListedDrive:
    """The drive of this name. Raises ParseError for one that cannot be used, or is missing, with those that are not."""
    listed = drives.get(name)
    if listed is None:
        there = [drive.identity or drive.drive.name for drive in drives.values() if drive]
        names = some(there, _SHOWN) or "none"
        raise ParseError(_TOOL, f"{name} is missing: expected {len(drives)}, actual {len(there)}: {names}")
    drive = listed.drive
    if drive.state != "live":
        raise ParseError(_TOOL, f"{name} ({drive.name}): expected state live, actual {drive.state}")
    if not drive.devices:
        raise ParseError(_TOOL, f"{name} ({drive.name}): it has no namespace to read")
    if not listed.identity:
        raise ParseError(_TOOL, f"{name} ({drive.name}): it has no serial number of its own")
    return listed


def counted(listed: ListedDrive, before: DriveState, after: DriveState) -> tuple[int, int]:
    """Bytes read from and written to a drive between two states. Raises ParseError for another drive, or none."""
    pairs = {name: (_of(listed, name, before), _of(listed, name, after)) for name in listed.watched}

    def moved(names: Sequence[str]) -> tuple[int, int]:
        own = [pairs[name] for name in names]
        return (
            sum(end.read_bytes - begin.read_bytes for begin, end in own),
            sum(end.written_bytes - begin.written_bytes for begin, end in own),
        )

    above, paths = moved(listed.devices), moved(listed.drive.devices)
    return max(above[0], paths[0]), max(above[1], paths[1])


def covers(count: int, moved: int, tool: str, what: str) -> None:
    """Raises Mismatch where a drive counted fewer bytes than a tool says that it moved."""
    if count < COUNTED * moved:
        raise Mismatch(tool, f"it says that it {what} {moved} B, the drive counted {count} B")


def _of(listed: ListedDrive, name: str, state: DriveState) -> BlockDevice:
    device = state.devices.get(name)
    if device is None:
        raise Mismatch(_TOOL, f"{listed.name}: {name} is gone (serial number {listed.identity})")
    if device.identity != listed.identity:
        raise Mismatch(
            _TOOL,
            f"{listed.name}: {name}: expected serial number {listed.identity}, actual {device.identity or 'none'}",
        )
    return device


def _identity(drive: LocalDrive, state: DriveState) -> str:
    known = {state.devices[name].identity for name in drive.devices if name in state.devices}
    return known.pop() if len(known) == 1 else ""
