from __future__ import annotations

import pytest

from rackproof.parse import ParseError
from rackproof.parse.mounts import Mount, Operation, find_mount, parse_mountinfo, parse_mountstats, parse_proc_mounts
from tests.unit.refusals import refuses

from . import tool_output

MOUNTINFO = tool_output("mountinfo.txt")
MOUNTSTATS = tool_output("mountstats.txt")


def mount_at(mounts: tuple[Mount, ...], mountpoint: str) -> Mount:
    mount = find_mount(mounts, mountpoint)
    assert mount is not None
    return mount


def test_mountinfo_tells_mount_and_file_system_options_apart() -> None:
    mounts = parse_mountinfo(MOUNTINFO)
    assert len(mounts) == 8
    root = mount_at(mounts, "/")
    assert (root.source, root.fstype, root.device, root.root) == ("/dev/vda1", "ext4", "254:1", "/")
    assert root.options == ("rw", "relatime")
    assert root.super_options == ("rw", "errors=remount-ro")
    assert root.option("errors") == "remount-ro"
    assert root.option("relatime") == ""
    assert root.option("noatime") is None
    assert not root.read_only
    assert mount_at(mounts, "/run/credentials").read_only


def test_optional_fields_may_be_none_or_several() -> None:
    nfs = next(mount for mount in parse_mountinfo(MOUNTINFO) if mount.fstype == "nfs4")
    assert nfs.source == "10.77.0.10:/export"
    assert (nfs.option("vers"), nfs.option("proto"), nfs.option("nconnect")) == ("4.2", "rdma", "4")


def test_the_mount_on_top_is_the_one_that_is_seen() -> None:
    assert mount_at(parse_mountinfo(MOUNTINFO), "/mnt/data").fstype == "tmpfs"


TREE = (
    "25 1 254:1 / / rw - ext4 /dev/vda1 rw\n"
    "24 25 0:21 / /proc rw - proc proc rw\n"
    "40 25 0:47 / /mnt/nfs rw - nfs4 10.0.0.9:/srv rw\n"
    "41 40 0:48 / /mnt/nfs/deep rw - nfs4 10.0.0.9:/srv/deep rw\n"
    "42 25 0:49 / /mnt2/nfs rw - nfs4 10.0.0.9:/srv rw\n"
    "43 25 0:50 / /auto rw - autofs auto rw\n"
    "44 43 0:51 / /auto rw - nfs4 10.0.0.9:/auto rw\n"
)
OVER = "50 25 0:60 / /mnt rw - tmpfs tmpfs rw\n"


@pytest.mark.parametrize("at", range(8))
def test_a_mount_below_a_later_mount_on_a_folder_above_is_not_seen(at: int) -> None:
    """Wherever the kernel lists the later one."""
    lines = TREE.splitlines(keepends=True)
    mounts = parse_mountinfo("".join([*lines[:at], OVER, *lines[at:]]))
    assert [find_mount(mounts, point) for point in ("/mnt/nfs", "/mnt/nfs/deep")] == [None, None]
    assert {mount.mountpoint: mount.hidden_by for mount in mounts if mount.hidden_by} == {
        "/mnt/nfs": "/mnt", "/mnt/nfs/deep": "/mnt",
    }  # fmt: skip


def test_mounts_in_other_mounts_are_seen() -> None:
    assert not any(mount.hidden_by for mount in parse_mountinfo(TREE))
    below = "51 50 0:47 / /mnt/nfs rw - nfs4 10.0.0.9:/srv rw\n"  # mounted again, in the later one
    assert mount_at(parse_mountinfo(TREE + OVER + below), "/mnt/nfs").hidden_by == ""


def test_blanks_are_unescaped_and_an_empty_source_is_kept() -> None:
    mounts = parse_mountinfo(MOUNTINFO)
    assert mount_at(mounts, "/mnt/with blank").fstype == "ceph"
    assert mount_at(mounts, "/mnt/data").source == ""
    assert mount_at(mounts, "/mnt/bound").root == "/sub"
    assert find_mount(mounts, "/mnt/none") is None


def test_proc_mounts() -> None:
    mounts = parse_proc_mounts(tool_output("proc-mounts.txt"))
    nfs = mount_at(mounts, "/mnt/with blank\\backslash")
    assert (nfs.source, nfs.fstype, nfs.option("vers")) == ("10.77.0.10:/export", "nfs4", "4.2")
    assert nfs.read_only


test_bad_mountinfo_raises_with_the_reason = refuses(
    parse_mountinfo,
    ("", "no output"),
    ("cat: /proc/self/mountinfo: Permission denied\n", "expected a mount, got"),
    (MOUNTINFO[:-1], "cut off"),
    (MOUNTINFO.replace(" - ext4", " ext4"), "expected a mount, got"),
    (MOUNTINFO.replace("254:1", "x:y"), "expected a mount, got"),
    (MOUNTINFO.replace("24 1 ", "a 1 "), "mount id is not an integer"),
    (MOUNTINFO.replace(" / / rw", " / root rw"), "expected a mount point"),
    (MOUNTINFO.replace(" rw,errors=remount-ro", ""), "expected a mount, got"),
    (MOUNTINFO.replace("- ext4 ", "-  "), "expected a file system type"),
)


test_bad_proc_mounts_raise_with_the_reason = refuses(
    parse_proc_mounts,
    ("\n\n", "no output"),
    ("/dev/vda1 / ext4 rw\n", "expected a mount, got"),
    ("/dev/vda1 / ext4 rw 0 0\n\n", "expected a mount, got"),
    ("/dev/vda1 / ext4  0 0\n", "expected options"),
    ("/dev/vda1 / ext4 rw,nconnect=16", "cut off"),
)


def test_connections_of_nfs_mounts_are_counted() -> None:
    tcp, rdma = parse_mountstats(MOUNTSTATS)
    assert (tcp.source, tcp.mountpoint, tcp.fstype) == ("10.77.0.10:/export", "/mnt/data", "nfs4")
    assert (tcp.connections, tcp.protocol) == (4, "tcp")
    assert tcp.option("nconnect") == "4"
    assert tcp.transports[1].counters[0] == 701
    assert (rdma.mountpoint, rdma.connections, rdma.protocol) == ("/mnt/with blank", 1, "rdma")


def test_options_do_not_prove_connections() -> None:
    lines = [line for line in MOUNTSTATS.splitlines() if "tcp 70" not in line or "tcp 700" in line]
    mount = parse_mountstats("\n".join(lines) + "\n")[0]
    assert (mount.option("nconnect"), mount.connections) == ("4", 1)


def test_transports_of_two_kinds_are_no_single_protocol() -> None:
    assert parse_mountstats(MOUNTSTATS.replace("tcp 700", "rdma 700"))[0].protocol is None


def test_a_node_without_nfs_has_no_nfs_mounts() -> None:
    assert parse_mountstats("device /dev/vda1 mounted on / with fstype ext4\n") == ()


BLOCK = MOUNTSTATS[MOUNTSTATS.index("device 10.77.0.10:/export ") : MOUNTSTATS.index("device /dev/nvme0n1")]


def test_what_became_of_calls() -> None:
    again = MOUNTSTATS.replace("READ: 16 16 0 ", "READ: 16 19 1 ", 1)
    assert again != MOUNTSTATS
    mount = parse_mountstats(again)[0]
    assert mount.operations["READ"] == Operation(calls=16, transmissions=19, timeouts=1)
    assert mount.operations["NULL"] == Operation(calls=1, transmissions=1, timeouts=0)
    whole = "READ: 16 19 1 3072 1050624 0 12 12 0"
    assert whole in again
    for bad in (
        "READ: 16 19 1 3072",
        "read: 16 19 1 1 1 1 1 1 1",
        "READ 16 19 1 1 1 1 1 1 1",
        "READ: 16 -19 1 1 1 1 1 1",
    ):
        with pytest.raises(ParseError):
            parse_mountstats(again.replace(whole, bad, 1))


test_bad_mountstats_raise_with_the_reason = refuses(
    parse_mountstats,
    ("", "no output"),
    ("cat: /proc/self/mountstats: No such file or directory\n", "unexpected first line"),
    (BLOCK[: BLOCK.index("\tper-op")], "statistics of /mnt/data are cut off"),
    (BLOCK[: BLOCK.index("\tRPC iostats")], "statistics of /mnt/data are cut off"),
    (BLOCK.replace("xprt:", "port:"), "has no transport"),
    (BLOCK.replace("\topts:", "\tnops:"), "has no opts"),
    (BLOCK.replace("tcp 700 0 1", "tcp 700 x 1"), "counter of a transport is not an integer"),
    (BLOCK.replace("tcp 700 0 1 0 0 100 100 0 120 0 2 3 4", "tcp 700"), "unknown transport"),
    (BLOCK.replace(" statvers=1.1", ""), "unexpected line"),
    (BLOCK.rstrip(), "cut off"),
)
