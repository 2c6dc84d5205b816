from __future__ import annotations

from rackproof.configure.packages import declared_packages, install_script, parse_installed
from tests.unit.configure.rack import architecture, rack


def test_a_node_gets_what_its_roles_need_once_and_sorted() -> None:
    gpu = declared_packages(architecture(), rack().node("gpu-01"))
    storage = declared_packages(architecture(), rack().node("storage-01"))
    assert gpu == tuple(sorted(set(gpu)))
    assert {"chrony", "rdma-core", "nfs-common", "ceph-common", "fio", "openmpi-bin"} <= set(gpu)
    assert {"nfs-kernel-server", "ceph-osd"} <= set(storage)
    assert not {"nfs-kernel-server", "ceph-osd"} & set(gpu)


def test_half_installed_is_not_installed() -> None:
    lines = ["installed fio", "half-configured chrony", "not-installed iperf3", "config-files perftest"]
    assert parse_installed(lines) == {"fio"}


def test_installation_asks_nothing_and_ends_with_a_proof() -> None:
    script = install_script(["fio", "chrony"])
    assert "DEBIAN_FRONTEND=noninteractive" in script
    assert "--no-install-recommends -- fio chrony" in script
    assert "still not installed" in script.splitlines()[-1]
