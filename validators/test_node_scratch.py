"""Local scratch array: assembled from all drives, and mounted at its mount point."""

from __future__ import annotations

import shlex

from testinfra.host import Host

from rackproof.core.architecture import Architecture, Scratch
from rackproof.core.rack import Node
from rackproof.parse import ParseError
from rackproof.parse.md_array import md_array_command, parse_md_array
from rackproof.parse.mounts import find_mount, parse_mountinfo
from rackproof.parse.text import whole_lines
from rackproof.validation import Unmeasured, announce, check, expect_all, read
from rackproof.validation.expected import hardware
from rackproof.validation.mounts import MOUNTINFO

WORKING = ("clean", "active", "active-idle", "write-pending")
"""States of a usable array; a RAID0 that has lost a drive is ``broken``."""


def scratch_of(arch: Architecture, node: Node) -> Scratch:
    """The scratch array of the architecture. Raises Unmeasured without one."""
    expected = hardware(arch, node, "scratch")
    if expected is None or expected.scratch is None:
        raise Unmeasured("the architecture has no scratch array for this role")
    return expected.scratch


@check(
    "scratch.array",
    reads="roles.{role}.expect.scratch.drives",
    protects="If the array is not assembled, the mount point is an empty folder and jobs fill the system drive.",
    hint="cat /proc/mdstat; mdadm --detail /dev/md/LABEL; a RAID0 that lost a drive has lost its data.",
)
def test_array(host: Host, arch: Architecture, node: Node) -> None:
    scratch = scratch_of(arch, node)
    array = parse_md_array(read(host, md_array_command(scratch.label)))
    if array is None:
        raise AssertionError(f"expected the array /dev/md/{scratch.label}, actual none")
    good = [name for name, state in array.members.items() if state == "in_sync"]
    bad = [f"{name} {state}" for name, state in array.members.items() if state != "in_sync"]
    problems = []
    if array.level != scratch.level:
        problems.append(f"level: expected {scratch.level}, actual {array.level}")
    if array.state not in WORKING:
        problems.append(f"state: expected one of {', '.join(WORKING)}, actual {array.state}")
    if (len(good), array.drives) != (scratch.drives, scratch.drives):
        problems.append(
            f"drives: expected {scratch.drives}, actual {len(good)} of {array.drives}"
            + (f" ({', '.join(bad)})" if bad else "")
        )
    elif bad:
        problems.append(f"drives: expected all in_sync, actual {', '.join(bad)}")
    if scratch.chunk_kib is not None and array.chunk_bytes != scratch.chunk_kib * 1024:
        problems.append(f"chunk: expected {scratch.chunk_kib} KiB, actual {array.chunk_bytes / 1024:g} KiB")
    expect_all(problems)


@check(
    "scratch.mounted",
    reads="roles.{role}.expect.scratch.mountpoint",
    protects="Without the mount, jobs silently use the slow system drive and fill it.",
    hint="findmnt MOUNTPOINT; systemctl status of its mount unit; ls -l /dev/disk/by-label.",
)
def test_mounted(host: Host, arch: Architecture, node: Node) -> None:
    scratch = scratch_of(arch, node)
    by_label = f"readlink -f -- {shlex.quote(f'/dev/disk/by-label/{scratch.label}')}"
    announce(host, MOUNTINFO, by_label, md_array_command(scratch.label))
    mount = find_mount(parse_mountinfo(read(host, MOUNTINFO)), scratch.mountpoint)
    if mount is None:
        raise AssertionError(f"{scratch.mountpoint}: expected {scratch.fstype}, actual not mounted")
    device = whole_lines("readlink", read(host, by_label))[0]
    if not device.startswith("/dev/"):
        raise ParseError("readlink", f"no device: {device}")
    array = parse_md_array(read(host, md_array_command(scratch.label)))
    problems = []
    if mount.fstype != scratch.fstype:
        problems.append(f"{scratch.mountpoint}: expected {scratch.fstype}, actual {mount.fstype}")
    if mount.source != device:
        problems.append(f"{scratch.mountpoint}: expected {device} (label {scratch.label}), actual {mount.source}")
    elif array is None or array.device != device:
        actual = array.device if array else "none"
        problems.append(f"{scratch.mountpoint}: expected on /dev/md/{scratch.label}, actual array {actual}")
    if mount.read_only:
        problems.append(f"{scratch.mountpoint}: expected rw, actual ro")
    expect_all(problems)
