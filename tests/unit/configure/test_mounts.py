from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackproof.configure.files import RemoteFile
from rackproof.configure.mounts import (
    MANAGED,
    DesiredMount,
    Table,
    apply_script,
    mount_differences,
    parse_table,
    plan_mounts,
    systemd_escape,
    table_command,
)
from rackproof.configure.storage_client.nfs import shared_transport
from rackproof.configure.storage_client.plan import files
from rackproof.parse.mounts import Mount, parse_proc_mounts, visible_mounts
from rackproof.parse.text import text_from
from tests.unit.configure.rack import site
from tests.unit.shell import executable, is_shell, sh


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


def mount(name: str) -> DesiredMount:
    return next(mount for mount in site().client_mounts() if mount.name == name)


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


def test_two_transports_to_one_server_need_two_minor_versions() -> None:
    tcp, rdma = mount("nfs-tcp"), mount("nfs-rdma")
    assert shared_transport([tcp, rdma]) is None
    same = replace(rdma, options=tuple(o.replace("vers=4.1", "vers=4.2") for o in rdma.options))
    assert (shared_transport([tcp, same]) or "").startswith("nfs-tcp and nfs-rdma: NFS 4.2 from one server")
    elsewhere = replace(same, what="10.77.0.12:/srv/nfs")
    assert shared_transport([tcp, elsewhere]) is None


def read_mounts(lines: Sequence[str]) -> dict[str, Mount]:
    return visible_mounts(parse_proc_mounts(text_from(lines)))


LINE = (
    "10.77.0.11:/srv/nfs /mnt/nfs-tcp nfs4 rw,noatime,vers=4.2,rsize=524288,wsize=524288,namlen=255,hard,proto=tcp,"
    "nconnect=4,timeo=600,retrans=2,sec=sys,clientaddr=10.77.0.21,local_lock=none,addr=10.77.0.11 0 0"
)


def test_the_kernels_table_is_read_and_the_upper_mount_wins() -> None:
    table = read_mounts(["/dev/nvme0n1 /mnt/a\\040b ext4 rw 0 0", "none /mnt/nfs-tcp tmpfs rw 0 0", LINE])
    assert table["/mnt/a b"].fstype == "ext4"
    assert mount_differences(mount("nfs-tcp"), table["/mnt/nfs-tcp"]) == ()
    with pytest.raises(ValueError, match="expected a mount"):
        read_mounts(["cat: broken"])


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"fstype": "nfs"}, "type: expected nfs4, actual nfs"),
        ({"source": "10.77.0.99:/srv/nfs"}, "source: expected 10.77.0.11:/srv/nfs, actual 10.77.0.99:/srv/nfs"),
        ({"options": ("rw", "hard", "proto=tcp", "vers=4.1")}, "option vers=4.2 is not in force"),
        ({"options": ("ro", "rw", "hard", "proto=tcp", "vers=4.2")}, "option ro is in force"),
    ],
)
def test_every_difference_is_named(change: dict[str, object], wrong: str) -> None:
    actual = replace(read_mounts([LINE])["/mnt/nfs-tcp"], **change)  # type: ignore[arg-type]
    assert mount_differences(mount("nfs-tcp"), actual) == (wrong,)


def test_missing_and_differing_mounts_are_made_at_once() -> None:
    nfs, ceph, local = mount("nfs-tcp"), mount("cephfs"), mount("local")
    actual = {
        nfs.where: Mount(nfs.what, nfs.where, "nfs4", ("rw", "soft")),
        local.where: Mount("/dev/nvme0n1", local.where, "ext4", ("rw", "noatime")),
    }
    plan = plan_mounts([nfs, ceph, local], Table(actual))
    assert [mount.name for mount, _ in plan.changes] == ["nfs-tcp", "cephfs"]
    script = apply_script(plan)
    assert "systemctl restart -- 'mnt-nfs\\x2dtcp.mount' mnt-cephfs.mount || failed=1" in script
    assert "daemon-reload" not in script


def test_a_changed_unit_is_read_and_mounted_again() -> None:
    nfs = mount("nfs-tcp")
    actual = read_mounts([LINE])
    assert not plan_mounts([nfs], Table(actual))
    plan = plan_mounts([nfs], Table(actual, frozenset({f"restart:{nfs.unit}", "daemon-reload"})))
    assert plan.changes == ((nfs, ("its unit changed",)),)
    script = apply_script(plan)
    assert script.index("systemctl daemon-reload") < script.index("systemctl restart")


TABLE = [
    LINE,
    "--",
    "daemon-reload",
    "--",
    "mnt-nfs\\x2dtcp.mount /mnt/nfs-tcp",
    "mnt-old.mount /mnt/old",
    "--",
    "device rootfs mounted on / with fstype rootfs",
    "device 10.77.0.11:/srv/nfs mounted on /mnt/nfs-tcp with fstype nfs4 statvers=1.1",
    "\txprt:\ttcp 745 0 2 0 38 32 32 0 36 0 2 0 0",
]


def test_the_table_says_what_is_mounted_by_whom_and_over_what() -> None:
    table = parse_table(TABLE)
    assert table.mounted["/mnt/nfs-tcp"].fstype == "nfs4"
    assert table.pending == {"daemon-reload"}
    assert table.units == {"mnt-nfs\\x2dtcp.mount": "/mnt/nfs-tcp", "mnt-old.mount": "/mnt/old"}
    assert table.transports == {"/mnt/nfs-tcp": {"tcp"}}
    with pytest.raises(ValueError, match="expected 4 sections"):
        parse_table(TABLE[:2])
    with pytest.raises(ValueError, match="expected a mount or one of its connections"):
        parse_table([LINE, "--", "--", "--", "\txprt:\ttcp 745"])


def test_a_mount_over_another_transport_than_declared_is_made_again() -> None:
    rdma = mount("nfs-rdma")
    line = LINE.replace("nfs-tcp", "nfs-rdma").replace("vers=4.2", "vers=4.1").replace("proto=tcp", "proto=rdma")
    table = Table(read_mounts([line]), transports={"/mnt/nfs-rdma": frozenset({"tcp"})})
    (change,) = plan_mounts([rdma], table).changes
    assert change == (rdma, ("transport: expected rdma, actual tcp",))
    assert not plan_mounts([rdma], Table(read_mounts([line]), transports={"/mnt/nfs-rdma": frozenset({"rdma"})}))


def test_an_undeclared_mount_is_unmounted_and_its_unit_removed_only_where_all_are_known() -> None:
    nfs, table = mount("nfs-tcp"), parse_table(TABLE)
    assert not plan_mounts([nfs], table)
    plan = plan_mounts([nfs], table, complete=True)
    assert plan.gone == {"mnt-old.mount": "/mnt/old"}
    script = apply_script(plan)
    assert "let_go mnt-old.mount /mnt/old && rm -f -- /etc/systemd/system/mnt-old.mount" in script
    assert "systemctl restart" not in script


@pytest.fixture
def machine(tmp_path: Path) -> Callable[[str, str], subprocess.CompletedProcess[str]]:
    """Runs a script with another /proc/self/mounts, units and systemctl than this machine's."""

    def run(script: str, mounted: str, stops: bool = True, active: bool = True) -> subprocess.CompletedProcess[str]:
        (tmp_path / "mounts").write_text(mounted)
        gone = f"sed -i '/ \\/mnt\\/old /d' {tmp_path}/mounts" if stops else ":"
        executable(
            tmp_path / "bin/systemctl",
            f'echo "$@" >>{tmp_path}/log\ncase "$1" in stop) {gone};; is-active) exit {1 - active};; '
            'status|--no-pager) echo "x.mount: Consumed 1.350s CPU time.";; esac',
        )
        script = script.replace("/proc/self/mounts", f"{tmp_path}/mounts")
        script = script.replace("/etc/systemd/system", f"{tmp_path}/units").replace("/run/rackproof", f"{tmp_path}/run")
        return sh(script, programs=tmp_path / "bin")

    return run


def test_a_mount_is_let_go_and_forgotten(machine: Any, tmp_path: Path) -> None:
    (tmp_path / "units").mkdir()
    (tmp_path / "units" / "mnt-old.mount").write_text("Where=/mnt/old\n")
    plan = plan_mounts([], parse_table(TABLE), complete=True)
    done = machine(apply_script(replace(plan, gone={"mnt-old.mount": "/mnt/old"})), "srv:/x /mnt/old nfs4 rw 0 0\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "units" / "mnt-old.mount").exists()
    assert "daemon-reload" in (tmp_path / "log").read_text()


def test_who_keeps_a_mount_busy_is_named_and_the_unit_stays(machine: Any, tmp_path: Path) -> None:
    where = tmp_path / "data"
    where.mkdir()
    (tmp_path / "units").mkdir()
    (tmp_path / "units" / "x.mount").write_text("Where=\n")
    plan = replace(plan_mounts([], Table()), gone={"x.mount": str(where)})
    sleeper = subprocess.Popen(["sleep", "60"], cwd=where)
    try:
        done = machine(apply_script(plan), f"srv:/x {where} nfs4 rw 0 0\n", stops=False)
    finally:
        sleeper.kill()
        sleeper.wait()
    assert done.returncode == 1
    assert f"{where} is in use by sleep({sleeper.pid})" in done.stderr
    assert (tmp_path / "units" / "x.mount").exists()
    done = machine(apply_script(plan), f"srv:/x {where} nfs4 rw 0 0\n", stops=False)
    assert "does its server answer?" in done.stderr


@pytest.mark.parametrize("printed", ["unable to parse mount source: -22\n", ""])
def test_the_last_line_is_what_mount_printed(machine: Any, tmp_path: Path, printed: str) -> None:
    """systemd 252 logs the unit's processor time after the reason."""
    executable(tmp_path / "bin/journalctl", f"printf '%s' '{printed}'")
    wanted = mount("cephfs")
    plan = plan_mounts([wanted], Table())
    done = machine(apply_script(plan), "", active=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == (f"{wanted.unit}: {printed.strip()}" if printed else "x.mount: Consumed 1.350s CPU time.")


def test_the_question_is_one_shell_command() -> None:
    assert is_shell(table_command())


def test_units_of_network_mounts_are_recognised_in_their_former_wording_too() -> None:
    units = [file.content for file in files(site("gpu-01")) if isinstance(file, RemoteFile)]
    network = [unit for unit in units if "_netdev" in unit and "[Mount]" in unit]
    assert network
    assert all(MANAGED in unit.splitlines()[0] for unit in network)
    assert MANAGED in "No target wants this unit at boot: rackproof-mounts.service starts it until it succeeds."
