from __future__ import annotations

from pathlib import Path

import pytest

from rackproof.configure.drives import (
    Drive,
    DriveState,
    mkfs_script,
    needs_mkfs,
    parse_state,
    state_command,
)
from rackproof.errors import InventoryError, Refused
from tests.unit.refusals import refuses
from tests.unit.shell import executable, sh

DRIVE = Drive("/dev/disk/by-id/nvme-*_rplocal", "rp-local")
BLANK = DriveState(("/dev/nvme0n1",), kind="disk", zero=True)


def test_a_blank_drive_is_formatted_and_looked_at_once_more_before() -> None:
    assert needs_mkfs(DRIVE, BLANK) is True
    script = mkfs_script(DRIVE, "/dev/nvme0n1")
    assert script.index("wipefs --no-act") < script.index("mkfs.ext4")
    assert "-L rp-local" in script


def test_our_own_file_system_is_left_alone_also_while_it_is_mounted() -> None:
    ours = DriveState(
        ("/dev/nvme0n1",), kind="disk", type="ext4", label="rp-local", mounted=("/mnt/local",), signatures=("ext4",)
    )
    assert needs_mkfs(DRIVE, ours) is False


@pytest.mark.parametrize(
    ("state", "contents"),
    [
        (DriveState(("/dev/nvme0n1",), kind="disk", type="ext4", label="data"), "ext4 'data'"),
        (
            DriveState(("/dev/nvme0n1",), kind="disk", type="xfs", label="rp-local", signatures=("xfs",)),
            "xfs 'rp-local'",
        ),
        (DriveState(("/dev/nvme0n1",), kind="disk", signatures=("gpt", "PMBR")), "signature gpt, signature PMBR"),
        (DriveState(("/dev/nvme0n1",), kind="disk", holders=("/dev/nvme0n1p1",), zero=True), "holds /dev/nvme0n1p1"),
        (DriveState(("/dev/nvme0n1",), kind="disk", mounted=("/data",), zero=True), "mounted on /data"),
        (DriveState(("/dev/nvme0n1",), kind="disk", zero=False), "data without a known signature"),
    ],
)
def test_a_drive_with_anything_else_on_it_is_never_formatted(state: DriveState, contents: str) -> None:
    with pytest.raises(Refused, match="nothing was done") as caught:
        needs_mkfs(DRIVE, state)
    assert f"actual {contents};" in str(caught.value)


test_a_pattern_must_name_one_whole_drive = refuses(
    lambda state: needs_mkfs(DRIVE, state),
    (DriveState(()), "expected exactly one drive, actual none"),
    (DriveState(("/dev/nvme0n1", "/dev/nvme1n1"), kind="disk", zero=True), "actual /dev/nvme0n1, /dev/nvme1n1"),
    (DriveState(("/dev/nvme0n1p1",), kind="part", zero=True), "expected a whole drive, actual part"),
    (DriveState(("/dev/nvme0n1",), kind="", zero=True), "expected a whole drive, actual unknown"),
    error=Refused,
)


STUB = """\
case "${0##*/} $*" in
"lsblk -d"*) echo disk ;;
"blkid "*) printf "$TYPE" ;;
"wipefs "*) printf "$SIGNATURE" ;;
esac
"""


def ask(folder: Path, *, type_: str = "", signature: str = "", content: bytes = bytes(1 << 20)) -> DriveState:
    """Run the command with stand-ins for what needs a block device; two names lead to one drive."""
    for name in ("lsblk", "blkid", "wipefs", "findmnt"):
        executable(folder / name, STUB)
    (folder / "nvme0n1").write_bytes(content)
    for link in ("nvme-x_rplocal", "nvme-x_rplocal_1"):
        if not (folder / link).is_symlink():
            (folder / link).symlink_to("nvme0n1")
    script = state_command(f"{folder}/nvme-*_rplocal*").replace('[ -b "$d" ]', '[ -e "$d" ]')
    done = sh(script, programs=folder, TYPE=type_, SIGNATURE=signature)
    return parse_state(done.stdout.splitlines())


def test_several_names_of_one_drive_are_one_drive_and_it_keeps_its_name_by_id(tmp_path: Path) -> None:
    state = ask(tmp_path)
    assert state.devices == (str(tmp_path / "nvme0n1"),)
    assert state.name == str(tmp_path / "nvme-x_rplocal")
    assert needs_mkfs(DRIVE, state) is True


def test_command_and_parser_tell_ours_blank_and_foreign_apart(tmp_path: Path) -> None:
    assert needs_mkfs(DRIVE, ask(tmp_path, type_="LABEL=rp-local\\nTYPE=ext4\\n")) is False
    for foreign in (
        ask(tmp_path, type_="TYPE=xfs\\n"),
        ask(tmp_path, signature="gpt\\nPMBR\\n"),
        ask(tmp_path, content=b"foreign data"),
        ask(tmp_path, content=bytes((1 << 20) - 1) + b"x"),
    ):
        with pytest.raises(Refused):
            needs_mkfs(DRIVE, foreign)


def test_what_is_not_about_a_drive_is_refused() -> None:
    with pytest.raises(ValueError, match="drive: unexpected line"):
        parse_state(["lsblk: broken"])


def test_a_pattern_reaches_the_shell_quoted() -> None:
    assert "drive_state '/dev/disk/by-id/nvme-*_rplocal'" in state_command("/dev/disk/by-id/nvme-*_rplocal")
    assert "drive_state '/dev/x;reboot'" in state_command("/dev/x;reboot")


@pytest.mark.parametrize("drive", [Drive("/dev/x", "a" * 17), Drive("/dev/x", ""), Drive("/dev/x", "ok", "btrfs")])
def test_impossible_file_systems_are_refused_before_anything_runs(drive: Drive) -> None:
    with pytest.raises(InventoryError):
        drive.check()
