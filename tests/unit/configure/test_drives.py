from __future__ import annotations

import pytest

from rackproof.configure.drives import (
    Drive,
    DriveState,
    ForeignDrive,
    mkfs_script,
    needs_mkfs,
    parse_state,
    state_command,
)
from rackproof.errors import InventoryError

DRIVE = Drive("/dev/disk/by-id/nvme-*_rplocal", "rp-local")
BLANK = DriveState(("/dev/nvme0n1",), kind="disk", zero=True)


def test_a_blank_drive_is_formatted_and_looked_at_once_more_before() -> None:
    assert needs_mkfs(DRIVE, BLANK) is True
    script = mkfs_script(DRIVE, "/dev/nvme0n1")
    assert script.index("wipefs --no-act") < script.index("mkfs.ext4")
    assert "-L rp-local" in script


def test_our_own_file_system_is_left_alone_also_while_it_is_mounted() -> None:
    ours = DriveState(("/dev/nvme0n1",), "disk", "ext4", "rp-local", mounted=("/mnt/local",), signatures=("ext4",))
    assert needs_mkfs(DRIVE, ours) is False


@pytest.mark.parametrize(
    ("state", "found"),
    [
        (DriveState(("/dev/nvme0n1",), "disk", "ext4", "data", signatures=("ext4",)), "ext4 'data'"),
        (DriveState(("/dev/nvme0n1",), "disk", "xfs", "rp-local", signatures=("xfs",)), "xfs 'rp-local'"),
        (DriveState(("/dev/nvme0n1",), "disk", signatures=("gpt", "PMBR")), "signature gpt, signature PMBR"),
        (DriveState(("/dev/nvme0n1",), "disk", holders=("/dev/nvme0n1p1",), zero=True), "holds /dev/nvme0n1p1"),
        (DriveState(("/dev/nvme0n1",), "disk", mounted=("/data",), zero=True), "mounted on /data"),
        (DriveState(("/dev/nvme0n1",), "disk", zero=False), "data without a known signature"),
    ],
)
def test_a_drive_with_anything_else_on_it_is_never_formatted(state: DriveState, found: str) -> None:
    with pytest.raises(ForeignDrive, match="nothing was done") as caught:
        needs_mkfs(DRIVE, state)
    assert f"actual {found};" in str(caught.value)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (DriveState(()), "expected exactly one drive, actual none"),
        (DriveState(("/dev/nvme0n1", "/dev/nvme1n1"), "disk", zero=True), "actual /dev/nvme0n1, /dev/nvme1n1"),
        (DriveState(("/dev/nvme0n1p1",), "part", zero=True), "expected a whole drive, actual part"),
        (DriveState(("/dev/nvme0n1",), "", zero=True), "expected a whole drive, actual unknown"),
    ],
)
def test_a_pattern_must_name_one_whole_drive(state: DriveState, message: str) -> None:
    with pytest.raises(ForeignDrive, match=message):
        needs_mkfs(DRIVE, state)


def test_the_answer_is_read() -> None:
    lines = ["device=/dev/nvme0n1", "kind=disk", "label=rp-local", "type=ext4", "mounted=/mnt/local", "signature=ext4"]
    assert parse_state(lines) == DriveState(
        ("/dev/nvme0n1",), "disk", "ext4", "rp-local", mounted=("/mnt/local",), signatures=("ext4",)
    )
    assert parse_state([*lines, "zero=yes"]).zero is True
    with pytest.raises(ValueError, match="not about a drive"):
        parse_state(["lsblk: broken"])


def test_only_pattern_characters_reach_the_shell_unquoted() -> None:
    assert "nvme-*_rplocal" in state_command("/dev/disk/by-id/nvme-*_rplocal")
    assert "';'" in state_command("/dev/x;reboot")


@pytest.mark.parametrize("drive", [Drive("/dev/x", "a" * 17), Drive("/dev/x", ""), Drive("/dev/x", "ok", "btrfs")])
def test_impossible_file_systems_are_refused_before_anything_runs(drive: Drive) -> None:
    with pytest.raises(InventoryError):
        drive.check()
