"""A fast local file system over several drives: mdadm RAID0, mounted by label.

Only blank drives are used. An array is the kit's when every member carries the array's name and the file system its
label; it is assembled again after a reboot, or when it was stopped. Nothing is ever formatted twice.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rackproof import shell
from rackproof.configure import drives
from rackproof.errors import Refused
from rackproof.parse.sections import blocks_of, keyed_lines


@dataclass(frozen=True, slots=True)
class Scratch:
    """Desired state of the array."""

    drives: tuple[str, ...]
    """By id; each names exactly one whole drive."""
    where: str
    label: str = "rp-scratch"
    fstype: str = "xfs"
    chunk_kib: int = 512

    @property
    def array(self) -> str:
        return f"/dev/md/{self.label}"


@dataclass(frozen=True, slots=True)
class Member:
    """One drive of the list with its content."""

    asked: str
    state: drives.DriveState
    array: str = ""
    """Name of the array that the drive belongs to, without the host part; empty without one."""


@dataclass(frozen=True, slots=True)
class ScratchState:
    members: tuple[Member, ...]
    active: bool
    """Whether the array runs."""
    type: str = ""
    label: str = ""
    zero: bool = False
    mounted: tuple[str, ...] = ()


def state_command(scratch: Scratch) -> str:
    """Command that reads every drive, the array and its file system."""
    members = "\n".join(f"echo member {drive}\ndrive_state {drive}" for drive in map(shlex.quote, scratch.drives))
    array = shell.script(__name__, "scratch_state", array=scratch.array, blank_bytes=drives.BLANK_BYTES)
    return f"export LC_ALL=C\n{drives.functions()}\n{members}\n{array}"


def parse_state(lines: Sequence[str]) -> ScratchState:
    """Answer of ``state_command``. Raises ValueError on anything else."""
    *drives_asked, (head, array_lines) = blocks_of("scratch array", "(member .+|array)", lines) or [("", [])]
    if head != "array":
        raise ValueError("nothing about the array")
    members = []
    for asked, body in drives_asked:
        state = drives.parse_state(body)
        # blkid says HOST:NAME for a member; the host is "any" where the array is to be taken on every host.
        array = state.label.rpartition(":")[2] if state.type == "linux_raid_member" else ""
        members.append(Member(asked.removeprefix("member "), state, array))
    answers = keyed_lines(
        "scratch array", map(str.strip, array_lines), ("active", "type", "label", "zero", "mounted"), "="
    )
    return ScratchState(
        members=tuple(members),
        active="active" in answers,
        type=answers.get("type", [""])[0],
        label=answers.get("label", [""])[0],
        zero="zero" in answers,
        mounted=tuple(answers.get("mounted", ())),
    )


def plan(scratch: Scratch, state: ScratchState) -> tuple[str, ...]:
    """Steps in order, of ``create``, ``assemble``, ``mkfs``; empty when the array is complete.

    Raises Refused when a drive is missing, used twice or carries other data.
    """
    devices = [drives.usable_device(member.asked, member.state) for member in state.members]
    if doubled := next((device for device in devices if devices.count(device) > 1), None):
        raise Refused(f"{doubled}: named twice among the scratch drives")
    ours = [member.array == scratch.label for member in state.members]
    if all(ours):
        if not state.active:
            return ("assemble", "mkfs-if-blank")
        if (state.type, state.label) == (scratch.fstype, scratch.label):
            return ()
        if not state.type and state.zero and not state.mounted:
            return ("mkfs",)
        actual = f"{state.type} '{state.label}'" if state.type else "data without a known signature"
        raise Refused(
            f"{scratch.array}: expected {scratch.fstype} '{scratch.label}', actual {actual}; nothing was done"
        )
    for member, own in zip(state.members, ours, strict=True):
        if own:
            others = ", ".join(m.state.devices[0] for m, known in zip(state.members, ours, strict=True) if not known)
            raise Refused(
                f"{member.state.devices[0]}: member of the array '{scratch.label}' already, {others} not;"
                " a RAID0 cannot be completed. If nothing on it is needed:"
                f" mdadm --stop {scratch.array}; mdadm --zero-superblock on every drive"
            )
        if not drives.is_blank(member.state):
            raise Refused(
                f"{member.state.devices[0]}: expected a blank drive for the array '{scratch.label}', actual"
                f" {drives.describe(member.state)}; nothing was done. If nothing on it is needed:"
                f" blkdiscard {member.state.devices[0]}"
            )
    return ("create", "mkfs")


def script(scratch: Scratch, steps: Sequence[str], state: ScratchState) -> str:
    """Shell script for the steps. It checks every drive again before it writes."""
    array, label = shlex.quote(scratch.array), shlex.quote(scratch.label)
    devices = [member.state.devices[0] for member in state.members]
    members = shlex.join(devices)
    mkfs = drives.mkfs(scratch.fstype, scratch.label, scratch.array)
    lines = ["set -eu", "export LC_ALL=C"]
    if "create" in steps:
        lines += [
            drives.still_blank(*devices),
            f"mdadm --create {array} --run --level=0 --chunk={scratch.chunk_kib}K --metadata=1.2"
            f" --homehost=any --name={label} --raid-devices={len(state.members)} {members} >&2",
        ]
    if "assemble" in steps:
        lines.append(f"mdadm --assemble {array} {members} >&2")
    lines.append("udevadm settle --timeout=60")
    lines.append(f"[ -b {array} ] || {{ echo {array}: the array was made and is not there >&2; exit 1; }}")
    if "mkfs" in steps:
        lines.append(mkfs)
    elif "mkfs-if-blank" in steps:
        lines.append(
            f'[ -n "$(blkid -p -s TYPE -o value -- {array})" ] || ! cmp -s -n {drives.BLANK_BYTES} -- {array} /dev/zero'
            f" || {mkfs}"
        )
    expected = shlex.quote(f"{scratch.fstype} {scratch.label}")
    lines += [
        "udevadm settle --timeout=60",
        f'actual="$(blkid -p -s TYPE -o value -- {array}) $(blkid -p -s LABEL -o value -- {array})"',
        f'[ "$actual" = {expected} ] || {{ echo {array}: expected {expected}, actual "$actual" >&2; exit 1; }}',
    ]
    return "\n".join(lines)
