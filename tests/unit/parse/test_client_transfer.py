"""Counters of parallel file systems' clients and of ports; real forms, and what must not be read as a number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rackproof.core.architecture import Storage
from rackproof.parse import ParseError
from rackproof.parse.answer import Answer, parse_answer
from rackproof.parse.client_transfer import (
    PORTS,
    Moved,
    bytes_command,
    bytes_in,
    fsids_in,
    nfs_ports_command,
    nfs_ports_in,
    port_bytes_in,
    transport_command,
    transports_in,
)
from tests.unit.refusals import refuses_parts
from tests.unit.shell import sh
from tests.unit.transfer_answers import FSID, counters, nfs_ports, ports, source_of, transport


def storage(fstype: str, name: str = "scratch") -> Storage:
    return Storage.model_validate({"class": "parallel", "fstype": fstype, "mountpoint": "/mnt/x", "source": name})


def text_of(fstype: str, read: int = 8192, written: int = 4096, name: str = "scratch") -> str:
    text = counters(fstype, name, read, written)
    assert text is not None
    return text


GPFS = text_of("gpfs")
CEPH = text_of("ceph")
LUSTRE = text_of("lustre")
OLD_CEPH = "".join(
    f"/sys/kernel/debug/ceph/{FSID}.client7/metrics:{line}\n"
    for line in (
        "item                               total", "------------------------------------------",
        "opened files  / total inodes       1 / 3", "",
        "item          total       avg_lat(us)     min_lat(us)     max_lat(us)     stdev(us)",
        "-----------------------------------------------------------------------------------",
        "read          5           2138            1300            3200            12",
        "write         5           914013          824797          1092343         103476",
        "",
        "item          total       avg_sz(bytes)   min_sz(bytes)   max_sz(bytes)  total_sz(bytes)",
        "----------------------------------------------------------------------------------------",
        "read          0           0               0               0               0",
        "write         5           4194304         4194304         4194304         20971520",
        "",
        "item          total           miss            hit",
        "-------------------------------------------------",
        "d_lease       3               0               7",
    )
)  # fmt: skip
"""Before Linux 5.17; its latencies have the names of its sizes."""


@pytest.mark.parametrize("fstype", ["lustre", "ceph", "gpfs"])
def test_bytes_of_each_client(fstype: str) -> None:
    assert bytes_in(storage(fstype), Answer(text_of(fstype), 0))[:2] == (8192, 4096)


def test_lustre_adds_up_its_targets_and_does_not_print_unused_counters() -> None:
    second = LUSTRE.replace("OST0000", "OST0001")
    assert bytes_in(storage("lustre"), Answer(LUSTRE + second, 0)) == Moved(16384, 8192)
    assert bytes_in(storage("lustre"), Answer(text_of("lustre", 0, 0), 0)) == Moved(0, 0)


def test_ceph_before_linux_5_17() -> None:
    assert bytes_in(storage("ceph"), Answer(OLD_CEPH, 2)) == Moved(0, 20971520, 0)


def test_ceph_counts_requests_of_names_beside_its_sizes() -> None:
    path = f"/sys/kernel/debug/ceph/{FSID}.client4242/metrics/latency"
    lines = ["item          total       avg_lat(us)     min_lat(us)     max_lat(us)     stdev(us)", "-" * 83,
             "read          9           2138            1300            3200            12",
             "metadata      314         914             97              1092343         103"]  # fmt: skip
    latency = "".join(f"{path}:{line}\n" for line in lines)
    assert bytes_in(storage("ceph"), Answer(latency + CEPH, 0)) == Moved(8192, 4096, 2, 314)
    assert bytes_in(storage("ceph"), Answer(CEPH, 0)).of_names is None
    with pytest.raises(ParseError, match="requests of names is not an integer"):
        bytes_in(storage("ceph"), Answer(latency.replace("314 ", "N/A ") + CEPH, 0))


def test_ceph_takes_the_client_of_the_mounts_cluster() -> None:
    other = text_of("ceph", 7, 7).replace(FSID, "11111111-2222-3333-4444-555555555555")
    both = Answer(CEPH + other, 0)
    assert bytes_in(storage("ceph"), both, source_of(storage("ceph")))[:2] == (8192, 4096)
    with pytest.raises(ParseError, match="expected the counters of one cluster, actual 2"):
        bytes_in(storage("ceph"), both, "10.0.0.1:6789:/")


def test_the_clusters_of_ceph_are_those_of_the_kernels_clients() -> None:
    other = text_of("ceph", 7, 7).replace(FSID, "1-2")
    assert fsids_in(storage("ceph"), Answer(CEPH + other, 0)) == {FSID, "1-2"}
    assert fsids_in(storage("ceph"), Answer(OLD_CEPH, 2)) == {FSID}
    for untold in (None, Answer("", 2), Answer("grep: not found\n", 127)):
        assert fsids_in(storage("ceph"), untold) == frozenset()
    assert fsids_in(storage("lustre"), Answer(LUSTRE, 0)) == frozenset()
    with pytest.raises(ParseError, match="counters of Ceph"):
        fsids_in(storage("ceph"), Answer("/sys/kernel/debug/x:1\n", 0))


@pytest.mark.parametrize("source", [source_of(storage("ceph")), "10.0.0.1:6789:/"])
def test_ceph_adds_up_the_clients_of_a_cluster_that_is_mounted_twice(source: str) -> None:
    """Each file system and each folder of it has a client of its own."""
    other = text_of("ceph", 1000, 10).replace("client4242", "client4243")
    assert bytes_in(storage("ceph"), Answer(CEPH + other, 0), source)[:2] == (9192, 4106)
    path = f"/sys/kernel/debug/ceph/{FSID}.client4242/metrics/latency"
    names = f"{path}:metadata      314         914             97              1092343         103\n"
    assert bytes_in(storage("ceph"), Answer(names + CEPH, 0), source).of_names == 314
    assert bytes_in(storage("ceph"), Answer(names + CEPH + other, 0), source).of_names is None


def test_gpfs_takes_the_file_system() -> None:
    other = text_of("gpfs", 1, 1, "home")
    assert bytes_in(storage("gpfs"), Answer(other + GPFS, 0)) == Moved(8192, 4096)


@pytest.mark.parametrize(
    ("fstype", "text", "status", "reason"),
    [
        ("lustre", "error: get_param: param_path 'osc/x-*/stats': No such file or directory\n", 2, "exit status 2"),
        (
            "lustre",
            "error: get_param: param_path 'osc/x-*/stats': No such file or directory\n",
            0,
            "expected a counter",
        ),
        ("lustre", LUSTRE.replace(" 4096 4194304 8192 812321231", ""), 0, "expected a sum of bytes"),
        ("lustre", LUSTRE.replace(" 8192 ", " N/A "), 0, "expected a counter"),
        ("lustre", "snapshot_time             1732190000.1 secs.nsecs\n", 0, "lists no target"),
        ("ceph", "", 2, "actual 0"),
        ("ceph", CEPH.replace("read ", "reed "), 0, "expected bytes that were read and written"),
        ("ceph", CEPH.replace("  8192\n", "  N/A\n"), 0, "bytes is not an integer"),
        ("ceph", CEPH.replace("total_sz(bytes)", "total_sz(KiB)"), 0, "expected bytes that were read and written"),
        ("gpfs", GPFS.replace("_rc_ 0", "_rc_ 1"), 0, "actual 0 times"),
        ("gpfs", GPFS.replace("_fs_ scratch", "_fs_ home"), 0, "actual 0 times"),
        ("gpfs", GPFS.replace("_br_ 8192", "_br_ N/A"), 0, "bytes is not an integer"),
        ("gpfs", GPFS + GPFS, 0, "actual 2 times"),
        ("gpfs", "mmpmon: GPFS is down\n", 1, "exit status 1"),
    ],
)
def test_what_is_no_number_is_refused(fstype: str, text: str, status: int, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        bytes_in(storage(fstype), Answer(text, status))


def reader(fstype: str) -> Callable[[str], Moved | None]:
    return lambda text: bytes_in(storage(fstype), parse_answer(fstype, text))


test_no_part_of_an_answer_gives_fewer_bytes = refuses_parts(
    *((reader(fstype), f"{text_of(fstype)}status 0\n") for fstype in ("lustre", "ceph", "gpfs"))
)


def test_ports() -> None:
    assert port_bytes_in(Answer(ports((5, 6), None, None), 1))[:3] == (Moved(5, 6), None, None)
    assert port_bytes_in(Answer(ports((5, 6), (7, 8), (4, 12)), 0))[:3] == (Moved(5, 6), Moved(7, 8), Moved(4, 12))
    unknown = ports((5, 6), None, (4, 12)).replace("port_rcv_data:1", "port_rcv_data:N/A (no PMA)")
    assert port_bytes_in(Answer(unknown, 0)).rdma is None
    with pytest.raises(ParseError, match="no port of hardware"):
        port_bytes_in(Answer("ethtool/eth0/rx_bytes_phy:5\n", 0))


def test_this_machine_answers_the_questions() -> None:
    """The shell accepts them; the exit status shows what the machine lacks."""
    for command in (PORTS, bytes_command(storage("ceph")), transport_command(storage("ceph"))):
        assert command is not None
        done = sh(command, check=True)
        assert done.stderr == ""
        parse_answer("sh", done.stdout)


@pytest.mark.parametrize("fstype", ["lustre", "beegfs", "gpfs", "wekafs", "fuse.daos"])
def test_each_transport(fstype: str) -> None:
    for used in ("rdma", "dpdk" if fstype == "wekafs" else "tcp"):
        assert transports_in(storage(fstype), Answer(transport(fstype, used), 0)) == {used}
    with pytest.raises(ParseError, match="exit status 124"):
        transports_in(storage(fstype), Answer(transport(fstype, "rdma"), 124))


def test_ceph_in_the_kernel_speaks_tcp() -> None:
    assert transports_in(storage("ceph"), Answer("", 0)) == {"tcp"}


def test_names_are_quoted() -> None:
    """The model refuses such a name; the commands would hold it."""
    odd = storage("lustre").model_copy(update={"source": "a b"})
    assert "osc.'a b'-'*'.stats" in (bytes_command(odd) or "")
    assert "osc.'a b'-'*'.import" in transport_command(odd)


PORTS_OF_NFS = f"{nfs_ports((5, 6), (4, 12))}status 2\n"


def carried(text: str) -> dict[str, Moved] | None:
    return nfs_ports_in(parse_answer("ports", text))


def test_ports_of_a_node_with_an_nfs_mount() -> None:
    lo, eth0 = {"lo": Moved(4711, 4711)}, {"device/net/eth0": Moved(5, 6)}
    assert carried(f"{nfs_ports((5, 6), None)}status 2\n") == lo | eth0
    assert carried(PORTS_OF_NFS) == lo | eth0 | {"device/infiniband/mlx5_0/ports/1": Moved(4, 12)}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("port_rcv_data:1", "port_rcv_data:N/A (no PMA)"),
        ("/sys/class/infiniband/mlx5_0/device/infiniband/mlx5_0/ports/1/counters/port_xmit_data:3\n", ""),
        ("status", "/sys/class/infiniband/bnxt_re0/device/infiniband/bnxt_re0/ports/1/link_layer:Ethernet\nstatus"),
        ("status", "/sys/class/net/bonding_masters:bond0\nstatus"),
        ("eth0/statistics/tx_bytes:6", "eth0/statistics/tx_bytes:"),
    ],
    ids=["unknown", "half", "uncounted", "bond", "blank"],
)
def test_ports_that_do_not_count_all_tell_nothing(old: str, new: str) -> None:
    assert old in PORTS_OF_NFS
    assert carried(PORTS_OF_NFS.replace(old, new)) is None


def test_a_node_without_ports_of_hardware_tells_nothing() -> None:
    rows = "".join(line for line in PORTS_OF_NFS.splitlines(keepends=True) if "/device/" not in line)
    assert "lo/statistics" in rows
    assert carried(rows) is None
    assert carried("status 1\n") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [("status 127\n", "exit status 127"), (PORTS_OF_NFS.replace("/statistics/", "/x/"), "a counter of a port")],
)
def test_damaged_counters_of_ports_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        carried(text)


test_no_part_of_the_ports_gives_fewer_bytes = refuses_parts((carried, PORTS_OF_NFS))


@pytest.mark.parametrize("transport", ["tcp", "rdma"])
def test_one_command_reads_the_ports_of_hardware(tmp_path: Path, transport: str) -> None:
    net, device = tmp_path / "class/net", tmp_path / "devices/pci0"
    (device / "net/eth0/statistics").mkdir(parents=True)
    for name in ("eth0", "lo", "docker0"):
        (net / name).mkdir(parents=True)
    (net / "eth0/device").symlink_to(device)
    for folder, count in (("lo", 1), ("docker0", 9)):
        (net / folder / "statistics").mkdir()
        for way in ("rx", "tx"):
            (net / folder / "statistics" / f"{way}_bytes").write_text(f"{count}\n")
    port = device / "infiniband/mlx5_0/ports/1"
    (port / "counters").mkdir(parents=True)
    (tmp_path / "class/infiniband/mlx5_0").mkdir(parents=True)
    (tmp_path / "class/infiniband/mlx5_0/device").symlink_to(device)
    (port / "link_layer").write_text("Ethernet\n")
    for path, count in (("counters/port_rcv_data", 2), ("counters/port_xmit_data", 3)):
        (port / path).write_text(f"{count}\n")
    for way, count in (("rx", 7), ("tx", 8)):
        (device / f"net/eth0/statistics/{way}_bytes").write_text(f"{count}\n")
    mount = {"class": "nfs", "fstype": "nfs4", "mountpoint": "/mnt/x", "source": "/x", "transport": transport}
    command = nfs_ports_command(Storage.model_validate(mount))
    text = sh(command.replace("/sys/", f"{tmp_path}/")).stdout.replace(f"{tmp_path}/", "/sys/")
    of_rdma = {"device/infiniband/mlx5_0/ports/1": Moved(8, 12)} if transport == "rdma" else {}
    assert carried(text) == {"lo": Moved(1, 1), "device/net/eth0": Moved(7, 8)} | of_rdma
