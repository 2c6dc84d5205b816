"""Mounts against the architecture: what is mounted in a storage's place is named."""

from __future__ import annotations

import re

import pytest

from rackproof.core.architecture import Storage
from rackproof.parse import ParseError, mounted
from rackproof.parse.mounts import Mount, parse_mountinfo, parse_mountstats

from . import tool_output
from .test_mounts import MOUNTSTATS

NFS = Storage.model_validate(
    {"class": "nfs", "mountpoint": "/mnt/nfs", "fstype": "nfs4", "source": "/srv/nfs", "server_role": "storage",
     "transport": "rdma", "port": 20049}
)  # fmt: skip
LOCAL = Storage.model_validate({"class": "local", "mountpoint": "/mnt/local", "fstype": "ext4", "source": "data"})


def mount(source: str, *options: str, root: str = "/", fstype: str = "nfs4") -> Mount:
    return Mount(source, "/mnt/nfs", fstype, ("rw",), options, root=root)


def test_a_bind_mount_is_named_with_what_it_shows() -> None:
    (fault,) = mounted.bind_faults([mount("/dev/vda1", root="/data", fstype="ext4")])
    assert fault == "/mnt/nfs: expected the whole file system, actual a bind mount of /data of /dev/vda1"
    assert mounted.bind_faults([mount("/dev/vda1", root="/@data", fstype="btrfs"), mount("10.0.0.1:/srv/nfs")]) == []


@pytest.mark.parametrize("source", ["10.0.0.1:/srv/other", "10.0.0.2:/srv/nfs"])
def test_another_export_and_another_server_are_named(source: str) -> None:
    assert mounted.source_faults(NFS, [mount(source)], ["10.0.0.1"]) == [
        f"source: expected 10.0.0.1:/srv/nfs, actual {source}"
    ]
    assert mounted.source_faults(NFS, [mount("10.0.0.1:/srv/nfs")], ["10.0.0.1"]) == []


@pytest.mark.parametrize(
    ("servers", "source", "options", "right"),
    [
        (["nfs.site"], "nfs.site:/srv/nfs", ("addr=10.0.0.7",), True),
        (["nfs.site"], "nfs.other:/srv/nfs", ("addr=10.0.0.7",), False),
        (["nfs.site"], "10.0.0.7:/srv/nfs", ("addr=10.0.0.7",), False),
        (["nfs.site"], "nfs.site:/srv/other", ("addr=10.0.0.7",), False),
        (["10.0.0.7"], "nfs.site:/srv/nfs", ("addr=10.0.0.7",), True),
        (["10.0.0.7"], "10.0.0.7:/srv/nfs", ("addr=10.0.0.9",), False),
        (["10.0.0.6", "nfs.site"], "nfs.site:/srv/nfs", ("addr=10.0.0.7",), True),
        (["fd00:0::1"], "[fd00::1]:/srv/nfs", ("addr=fd00::1",), True),
        (["fd00::2"], "[fd00::1]:/srv/nfs", ("addr=fd00::1",), False),
    ],
)
def test_a_server_outside_is_declared_by_its_address_or_by_its_name(
    servers: list[str], source: str, options: tuple[str, ...], right: bool
) -> None:
    outside = NFS.model_copy(update={"servers": tuple(servers), "server_role": None})
    assert (mounted.source_faults(outside, [mount(source, *options)], servers) == []) is right


def test_the_address_of_the_inventory_may_be_of_ipv6() -> None:
    assert mounted.source_faults(NFS, [mount("[fd00::1]:/srv/nfs")], ["fd00::1"]) == []
    assert mounted.source_faults(NFS, [mount("[fd00::2]:/srv/nfs")], ["fd00::1"]) == [
        "source: expected [fd00::1]:/srv/nfs, actual [fd00::2]:/srv/nfs"
    ]


@pytest.mark.parametrize(("shown", "right"), [("rdma6", True), ("rdma", True), ("tcp6", False), ("tcp", False)])
def test_a_transport_over_ipv6_is_the_same_transport(shown: str, right: bool) -> None:
    sizes = ("rsize=1048576", "wsize=1048576")
    faults = mounted.option_faults(NFS, [mount("[fd00::1]:/srv/nfs", f"proto={shown}", *sizes)])
    assert faults == (
        [] if right else [f"proto=rdma: expected in force, actual {', '.join(sorted({'proto=tcp', f'proto={shown}'}))}"]
    )


FSID = "bf0a7d78-3e21-543f-8c64-e0c9716d0784"
MONITOR = "mon_addr=10.0.0.1:3300"


@pytest.mark.parametrize(
    ("fstype", "source", "options", "fault"),
    [
        ("ceph", f"u@{FSID}.data=/", (MONITOR,), ""),
        ("ceph", f"u@{FSID}.data=/", ("mon_addr=10.0.0.2:3300/[fd00::1]:3300",), ""),
        ("ceph", f"u@{FSID}.data=/home", (MONITOR,), "expected data, actual data/home"),
        ("ceph", f"u@{FSID}.other=/", (MONITOR,), "expected data, actual other"),
        ("ceph", f"u@{FSID}.data=/", ("mon_addr=10.0.0.1:3300/10.9.9.9:3300",), "10.0.0.2, fd00::1, actual 10.9.9.9"),
        ("ceph", f"u@{FSID}.data=/", ("mon_addr=[fd00::2]:3300",), "actual fd00::2"),
        ("ceph", "10.0.0.1:6789,10.0.0.2:6789:/", ("mds_namespace=data",), ""),
        ("ceph", "10.0.0.1:6789:/home", ("mds_namespace=data",), "expected data, actual data/home"),
        ("ceph", "10.9.9.9:6789:/", ("mds_namespace=data",), "actual 10.9.9.9"),
        ("lustre", "10.0.0.1@o2ib,10.0.0.2@o2ib:/data", (), ""),
        ("lustre", "10.0.0.1@o2ib:10.0.0.2@o2ib:/data/", (), ""),
        ("lustre", "10.0.0.1@o2ib:/data/home", (), "expected data, actual data/home"),
        ("lustre", "10.0.0.1@o2ib:10.9.9.9@o2ib:/data", (), "actual 10.9.9.9"),
        ("wekafs", "data", (), ""),
        ("wekafs", "10.0.0.2,backend-3/data", (), ""),
        ("wekafs", "10.9.9.9/data", (), "actual 10.9.9.9"),
    ],
)
def test_a_parallel_file_system_is_that_of_the_declared_servers(
    fstype: str, source: str, options: tuple[str, ...], fault: str
) -> None:
    """Another cluster may have a file system of the same name."""
    storage = Storage.model_validate({"class": "parallel", "mountpoint": "/mnt/p", "fstype": fstype, "source": "data"})
    own = [mount(source, *options, fstype=fstype)]
    faults = mounted.source_faults(storage, own, ["10.0.0.1", "10.0.0.2", "fd00::1"])
    assert [line.endswith(fault) for line in faults] == ([True] if fault else [])
    folder = storage.model_copy(update={"source": "data/home"})
    assert bool(mounted.source_faults(folder, own)) == (not source.endswith("home"))
    named = mounted.source_faults(storage, own, ["server-1"])
    assert bool(named) == ("expected data" in fault), "a name may stand for any address"


def test_a_mount_of_ceph_is_of_the_declared_cluster() -> None:
    ceph = Storage.model_validate({"class": "parallel", "mountpoint": "/mnt/p", "fstype": "ceph", "source": "a.b"})
    own = [mount(f"u@{FSID}.a.b=/", MONITOR, fstype="ceph")]
    assert mounted.source_faults(ceph, own, ["10.0.0.1"], fsids=[FSID.upper()], seen=["1-2"]) == []
    assert mounted.source_faults(ceph, own, ["10.0.0.1"]) == []
    other = FSID.replace("b", "c")
    (fault,) = mounted.source_faults(ceph, own, ["10.0.0.1"], fsids=[other])
    assert fault == f"source: expected cluster {other}, actual {FSID}"
    unnamed = [mount("10.0.0.1:3300:/", "mds_namespace=a.b", fstype="ceph")]
    for seen in ([], [FSID], [other, FSID]):
        assert mounted.source_faults(ceph, unnamed, ["10.0.0.1"], fsids=[FSID], seen=seen) == []
    assert mounted.source_faults(ceph, unnamed, ["10.0.0.1"], seen=[other]) == []
    (fault,) = mounted.source_faults(ceph, unnamed, ["10.0.0.1"], fsids=[FSID], seen=[other])
    assert fault == f"source: expected cluster {FSID}, actual {other}"


@pytest.mark.parametrize(("source", "right"), [(".gpu.scratch=/", True), (".scratch=/", False), (".gpu=/", False)])
def test_names_of_cephs_file_systems_may_have_dots(source: str, right: bool) -> None:
    ceph = Storage.model_validate(
        {"class": "parallel", "mountpoint": "/mnt/p", "fstype": "ceph", "source": "gpu.scratch"}
    )
    assert (mounted.source_faults(ceph, [mount(f"u.v@{FSID}{source}", MONITOR, fstype="ceph")]) == []) is right


def test_a_mount_of_ceph_without_a_name_may_be_of_any_file_system_of_its_cluster() -> None:
    """The kernel mounts the cluster's default one."""
    ceph = Storage.model_validate(
        {"class": "parallel", "mountpoint": "/mnt/p", "fstype": "ceph", "source": "data/home"}
    )
    with pytest.raises(ParseError, match=re.escape("/mnt/nfs does not name its file system: mount it with fs=data")):
        mounted.source_faults(ceph, [mount("10.0.0.1:6789:/home", fstype="ceph")], ["10.0.0.1"])


def test_a_mount_of_ceph_without_monitors_is_not_proven() -> None:
    ceph = Storage.model_validate({"class": "parallel", "mountpoint": "/mnt/p", "fstype": "ceph", "source": "data"})
    own = [mount(f"u@{FSID}.data=/", fstype="ceph")]
    assert mounted.source_faults(ceph, own) == []
    with pytest.raises(ParseError, match="does not show the monitors"):
        mounted.source_faults(ceph, own, ["10.0.0.1"])


def test_a_local_storage_is_the_device_with_its_label() -> None:
    (fault,) = mounted.source_faults(LOCAL, [mount("/dev/vda1", fstype="ext4")], device="/dev/nvme0n1")
    assert fault == "device labelled data: expected /dev/nvme0n1, actual /dev/vda1"


@pytest.mark.parametrize(("options", "faults"), [(("port=20049",), 0), ((), 0), (("port=2049",), 1)])
def test_the_port_in_force(options: tuple[str, ...], faults: int) -> None:
    assert len(mounted.port_faults(NFS, [mount("10.0.0.1:/srv/nfs", *options)])) == faults


def test_transport_and_connections_are_those_in_use() -> None:
    tcp, rdma = parse_mountstats(MOUNTSTATS)
    assert mounted.transport_faults(NFS, [rdma]) == []
    assert mounted.transport_faults(NFS, [tcp]) == ["transport in use: expected rdma, actual tcp"]
    several = NFS.model_copy(update={"connections": tcp.connections + 1})
    assert len(mounted.connection_faults(several, [tcp])) == 1
    assert mounted.connection_faults(NFS, [tcp]) == []


def test_payload_that_came_from_the_server() -> None:
    assert [m.server_read_bytes for m in parse_mountstats(MOUNTSTATS)] == [1048576, 1048576]
    assert [m.server_written_bytes for m in parse_mountstats(MOUNTSTATS)] == [0, 0]


def test_real_mounts_are_whole_file_systems() -> None:
    assert mounted.bind_faults(parse_mountinfo(tool_output("mountinfo.txt"))[:1]) == []
