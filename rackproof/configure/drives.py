"""Formats drives, but only blank ones.

A drive is *ours* when it has the declared file system and label, *blank* when nothing on it is recognised and its first
MiB is zero, *foreign* otherwise. Foreign drives are never written to.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rackproof import shell
from rackproof.errors import DeclarationError, Refused
from rackproof.parse.sections import keyed_lines

_LABEL_LIMIT = {"ext4": 16, "xfs": 12}
BLANK_BYTES = 1 << 20

# No lazy initialisation: the kernel would do it in the background of the first benchmark.
_MKFS = {
    "ext4": "mkfs.ext4 -q -m 0 -E lazy_itable_init=0,lazy_journal_init=0 -L {label} -- {device}",
    "xfs": "mkfs.xfs -q -L {label} -- {device}",
}


@dataclass(frozen=True, slots=True)
class Drive:
    """A drive and its desired file system. ``device`` may be a shell pattern that matches one drive."""

    device: str
    label: str
    fstype: str = "ext4"

    def check(self) -> None:
        """Raises DeclarationError when type or label of the file system is not supported."""
        if self.fstype not in _MKFS:
            raise DeclarationError(f"{self.device}: no rule to make a file system of type {self.fstype}")
        if not 0 < len(self.label.encode()) <= _LABEL_LIMIT[self.fstype]:
            raise DeclarationError(
                f"{self.label}: a label of {self.fstype} has 1 to {_LABEL_LIMIT[self.fstype]} characters"
            )


@dataclass(frozen=True, slots=True)
class DriveState:
    """State of the drives that a pattern matches. The other fields are set only for exactly one device."""

    devices: tuple[str, ...]
    """Resolved paths."""
    name: str = ""
    """Path that the pattern matched: unlike /dev/nvme0n1, a name by id is the same after a reboot."""
    kind: str = ""
    """lsblk's TYPE: disk, part, crypt …"""
    type: str = ""
    label: str = ""
    holders: tuple[str, ...] = ()
    """Partitions and mappings on the drive."""
    mounted: tuple[str, ...] = ()
    signatures: tuple[str, ...] = ()
    zero: bool = False


def functions() -> str:
    """Shell function ``drive_state PATTERN``."""
    return shell.script(__name__, "drives", blank_bytes=BLANK_BYTES)


def state_command(device: str) -> str:
    """Shell text that prints the drives that the pattern matches and their content. Reads only."""
    return f"export LC_ALL=C\n{functions()}\ndrive_state {shlex.quote(device)}"


def parse_state(lines: Sequence[str]) -> DriveState:
    """Answer of ``state_command``. Raises ValueError on anything else."""
    keys = ("device", "name", "kind", "type", "label", "holder", "mounted", "signature", "zero")
    values = keyed_lines("drive", (line.strip() for line in lines), keys, "=")
    return DriveState(
        devices=tuple(values.get("device", ())),
        name=_first(values, "name"),
        kind=_first(values, "kind"),
        type=_first(values, "type"),
        label=_first(values, "label"),
        holders=tuple(values.get("holder", ())),
        mounted=tuple(values.get("mounted", ())),
        signatures=tuple(values.get("signature", ())),
        zero="zero" in values,
    )


def _first(values: dict[str, list[str]], key: str) -> str:
    return values.get(key, [""])[0]


def usable_device(device: str, state: DriveState) -> str:
    """The one whole drive that a pattern matches.

    Raises Refused when it matches none, several, or something that is not a whole drive.
    """
    if len(state.devices) != 1:
        actual = ", ".join(state.devices) or "none"
        raise Refused(f"{device}: expected exactly one drive, actual {actual}; correct the inventory")
    if state.kind != "disk":
        raise Refused(f"{device}: expected a whole drive, actual {state.kind or 'unknown'}; correct the inventory")
    return state.devices[0]


def is_blank(state: DriveState) -> bool:
    return state.zero and not (state.type or state.holders or state.mounted or state.signatures)


def describe(state: DriveState) -> str:
    """Content of a drive, in words."""
    contents = [f"{state.type} '{state.label}'" if state.type else ""]
    contents += [f"signature {name}" for name in state.signatures if name != state.type]
    contents += [f"holds {name}" for name in state.holders]
    contents += [f"mounted on {where}" for where in state.mounted]
    if not state.zero and not any(contents):
        contents.append("data without a known signature")
    return ", ".join(part for part in contents if part) or "nothing"


def needs_mkfs(drive: Drive, state: DriveState) -> bool:
    """Whether the drive must be formatted: True when it is blank, False when it has the declared file system.

    Raises Refused in every other case.
    """
    device = usable_device(drive.device, state)
    if state.type == drive.fstype and state.label == drive.label:
        return False
    if is_blank(state):
        return True
    raise Refused(
        f"{device}: expected {drive.fstype} '{drive.label}' or a blank drive, actual {describe(state)};"
        f" nothing was done. If nothing on it is needed: blkdiscard {device}"
    )


def mkfs(fstype: str, label: str, device: str) -> str:
    """Shell command that makes a file system."""
    return _MKFS[fstype].format(label=shlex.quote(label), device=shlex.quote(device))


def still_blank(*devices: str) -> str:
    """Shell line that ends a script with one line where a drive is no longer blank."""
    return (
        f'for d in {shlex.join(devices)}; do [ -z "$(wipefs --no-act --noheadings --output TYPE -- "$d")" ] &&'
        f' cmp -s -n {BLANK_BYTES} -- "$d" /dev/zero || {{ echo "$d: no longer blank" >&2; exit 1; }}; done'
    )


def mkfs_script(drive: Drive, device: str) -> str:
    """Shell script that checks again that the drive is blank, then formats it."""
    return "\n".join(
        (
            "set -eu",
            still_blank(device),
            mkfs(drive.fstype, drive.label, device),
            "udevadm settle --timeout=30",
        )
    )
