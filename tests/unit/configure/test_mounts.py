from __future__ import annotations

from dataclasses import replace

import pytest

from rackproof.configure.mounts import (
    Mount,
    Mounted,
    apply_script,
    client_mount,
    mount_differences,
    parse_mounts,
    plan_mounts,
    shared_transport,
    systemd_escape,
)
from tests.unit.configure.rack import architecture, site


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/mnt/local", "mnt-local"),
        ("/mnt/nfs-tcp", "mnt-nfs\\x2dtcp"),
        ("/", "-"),
        ("//a//b/", "a-b"),
        ("/.hidden/x y", "\\x2ehidden-x\\x20y"),
        ("/mnt/é", "mnt-\\xc3\\xa9"),
    ],
)
def test_unit_names_are_systemds(path: str, unit: str) -> None:
    assert systemd_escape(path) == unit


def mount(name: str) -> Mount:
    return next(each for each in site().client_mounts() if each.name == name)


def test_nfs_over_tcp_adds_what_the_architecture_left_out_and_repeats_nothing() -> None:
    nfs = mount("nfs-tcp")
    assert (nfs.what, nfs.type, nfs.fstype) == ("10.77.0.11:/srv/nfs", "nfs", "nfs4")
    assert nfs.options.count("proto=tcp") == nfs.options.count("nconnect=4") == 1
    assert {"nofail", "_netdev", "retry=0", "port=2049"} <= set(nfs.options)


def test_nfs_over_rdma_has_no_nconnect() -> None:
    rdma = mount("nfs-rdma")
    assert {"proto=rdma", "port=20049"} <= set(rdma.options)
    assert not any(option.startswith("nconnect") for option in rdma.options)


def test_cephfs_names_cluster_user_and_monitor_and_not_the_key() -> None:
    ceph = mount("cephfs")
    assert ceph.what.startswith("rackproof@")
    assert ceph.what.endswith(".rackfs=/")
    assert {"mon_addr=10.77.0.11:3300", "secretfile=/etc/ceph/rackproof.secret"} <= set(ceph.options)


def test_the_local_drive_is_found_by_label() -> None:
    assert (mount("local").what, mount("local").network) == ("/dev/disk/by-label/rp-local", False)


def test_a_client_without_a_server_is_refused() -> None:
    with pytest.raises(ValueError, match="nfs-tcp: no node of its server role"):
        client_mount("nfs-tcp", architecture().storage["nfs-tcp"], None, None)
    with pytest.raises(ValueError, match="cephfs: a Ceph file system needs"):
        client_mount("cephfs", architecture().storage["cephfs"], "10.77.0.11", None)


def test_two_transports_to_one_server_need_two_minor_versions() -> None:
    tcp, rdma = mount("nfs-tcp"), mount("nfs-rdma")
    assert shared_transport([tcp, rdma]) is None
    same = replace(rdma, options=tuple(o.replace("vers=4.1", "vers=4.2") for o in rdma.options))
    assert (shared_transport([tcp, same]) or "").startswith("nfs-tcp and nfs-rdma: NFS 4.2 from one server")
    elsewhere = replace(same, what="10.77.0.12:/srv/nfs")
    assert shared_transport([tcp, elsewhere]) is None


LINE = (
    "10.77.0.11:/srv/nfs /mnt/nfs-tcp nfs4 rw,noatime,vers=4.2,rsize=524288,wsize=524288,namlen=255,hard,proto=tcp,"
    "nconnect=4,timeo=600,retrans=2,sec=sys,clientaddr=10.77.0.21,local_lock=none,addr=10.77.0.11 0 0"
)


def test_the_kernels_table_is_read_and_the_upper_mount_wins() -> None:
    table = parse_mounts(["/dev/nvme0n1 /mnt/a\\040b ext4 rw 0 0", "none /mnt/nfs-tcp tmpfs rw 0 0", LINE])
    assert table["/mnt/a b"].fstype == "ext4"
    assert mount_differences(mount("nfs-tcp"), table["/mnt/nfs-tcp"]) == ()
    with pytest.raises(ValueError, match="not a line"):
        parse_mounts(["cat: broken"])


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"fstype": "nfs"}, "type: expected nfs4, actual nfs"),
        ({"what": "10.77.0.99:/srv/nfs"}, "source: expected 10.77.0.11:/srv/nfs, actual 10.77.0.99:/srv/nfs"),
        ({"options": ("rw", "hard", "proto=tcp", "vers=4.1")}, "option vers=4.2 is not in force"),
        ({"options": ("ro", "rw", "hard", "proto=tcp", "vers=4.2")}, "option ro is in force"),
    ],
)
def test_every_difference_is_named(change: dict[str, object], wrong: str) -> None:
    actual = replace(parse_mounts([LINE])["/mnt/nfs-tcp"], **change)  # type: ignore[arg-type]
    assert mount_differences(mount("nfs-tcp"), actual) == (wrong,)


def test_missing_and_differing_mounts_are_made_at_once() -> None:
    nfs, ceph, local = mount("nfs-tcp"), mount("cephfs"), mount("local")
    actual = {
        nfs.where: Mounted(nfs.what, nfs.where, "nfs4", ("rw", "soft")),
        local.where: Mounted("/dev/nvme0n1", local.where, "ext4", ("rw", "noatime")),
    }
    plan = plan_mounts([nfs, ceph, local], actual, frozenset())
    assert [each.name for each, _ in plan.changes] == ["nfs-tcp", "cephfs"]
    script = apply_script(plan)
    assert "systemctl restart -- 'mnt-nfs\\x2dtcp.mount' mnt-cephfs.mount || failed=1" in script
    assert "daemon-reload" not in script


def test_a_changed_unit_is_read_and_mounted_again() -> None:
    nfs = mount("nfs-tcp")
    actual = parse_mounts([LINE])
    assert not plan_mounts([nfs], actual, frozenset())
    plan = plan_mounts([nfs], actual, frozenset({f"restart:{nfs.unit}", "daemon-reload"}))
    assert plan.changes == ((nfs, ("its unit changed",)),)
    script = apply_script(plan)
    assert script.index("systemctl daemon-reload") < script.index("systemctl restart")
