"""Mounts against the architecture: what is mounted in a storage's place is named."""

from __future__ import annotations

import pytest

from rackproof.core.architecture import Storage
from rackproof.parse import mounted
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
