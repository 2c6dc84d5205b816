"""Answers to the validators' own commands: what they say, and which are none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rackproof.parse import (
    ParseError,
    accounts,
    answer,
    ceph,
    kernel,
    limits,
    nfs_server,
    nvidia_smi,
    packages,
    ping,
    programs,
    rdma_ports,
    slurm,
    ssh,
    statfs,
    sysfs,
    systemctl,
)
from rackproof.parse.answer import Answer
from rackproof.parse.ceph import CephStatus
from rackproof.parse.nfs_server import Export, Nfsd
from rackproof.parse.ping import Ping
from rackproof.parse.text import version_begins, whole_lines

PING = """\
PING 10.77.0.11 (10.77.0.11) from 10.77.0.21 fabric0: 8972(9000) bytes of data.

--- 10.77.0.11 ping statistics ---
2 packets transmitted, 1 received, 50% packet loss, time 1006ms
"""
UNITS = "Id=a.timer\nActiveState=inactive\n\nId=b.timer\nUnitFileState=\nDescription=x=y\n"
NFSD = "threads 16\nport rdma 20049\nport tcp 2049\nport tcp 2049\nversions -3 +4 -4.0 +4.1 +4.2\n"
EXPORT = "/srv/nfs  10.77.0.0/24(sync,wdelay,fsid=1,rw)\n/srv/old\t*(ro,async)\nend of exports\n"
CEPH = """\
{"health":{"status":"HEALTH_WARN","checks":{"OSD_DOWN":{"severity":"HEALTH_WARN",
"summary":{"message":"1 osds down","count":1}},"OLD":{"summary":{"message":"old"},"muted":true}}},
"osdmap":{"num_osds":2,"num_up_osds":1,"num_in_osds":2},
"pgmap":{"num_pgs":25,"num_pools":2,"pgs_by_state":[{"state_name":"active+clean","count":25}]},
"fsmap":{"by_rank":[{"name":"a","status":"up:active"},{"name":"b","status":"up:standby-replay"}]}}
"""


def package_list(text: str) -> dict[str, tuple[str, ...]]:
    return packages.parse_package_list(whole_lines("dpkg-query", text))


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (lambda t: answer.parse_answer("x", t), "a\nb\nstatus 0\n", Answer("a\nb\n", 0, "x")),
        (lambda t: answer.parse_answer("x", t), "status 124\n", Answer("", 124, "x")),
        (lambda t: answer.parse_answer("x", t), "no newlinestatus 1\n", Answer("no newline\n", 1, "x")),
        (systemctl.parse_systemctl_show, UNITS, ({"Id": "a.timer", "ActiveState": "inactive"},
                                     {"Id": "b.timer", "UnitFileState": "", "Description": "x=y"})),
        (kernel.parse_sysctl, "net.ipv4.tcp_rmem = 4096\t131072\t6291456\nkernel.domainname = \n",
         {"net.ipv4.tcp_rmem": "4096 131072 6291456", "kernel.domainname": ""}),
        (package_list, "installed fio\nconfig-files nano\nhalf-configured vim\ninstalled libstdc++6\n",
         {"fio": (), "libstdc++6": ()}),
        (package_list, "installed kernel 0:5.14-1\ninstalled kernel 0:5.14-2\nnot-installed awk \n"
         "package nvlsm is not installed\n", {"kernel": ("0:5.14-1", "0:5.14-2")}),
        (packages.parse_apt_config, 'APT "";\nAPT::Periodic::Enable "0";\nA::B:: "x y";\n',
         {"APT": "", "APT::Periodic::Enable": "0", "A::B::": "x y"}),
        (sysfs.parse_choice, "always [madvise] never\n", "madvise"),
        (systemctl.parse_unit_list, "a.service loaded failed failed A\n", ("a.service",)),
        (slurm.parse_srun_help, "Usage: srun [OPTIONS]\n  -A, --account=name  charge\n      --help\n",
         frozenset({"--account", "--help"})),
        (lambda t: rdma_ports.traffic_class_of(t.splitlines()), "Global tclass=106\n", 106),
        (lambda t: rdma_ports.traffic_class_of(t.splitlines()), "tclass=106\n", None),
        (ssh.login_refused, "root@gpu-02: Permission denied (publickey).\n", True),
        (ssh.login_refused, "ssh: connect to host gpu-02: No route to host\n", False),
        (accounts.public_key, 'from="10.0.0.0/8" ssh-ed25519 AAAA ada@desk',
         ('from="10.0.0.0/8"', "ssh-ed25519", "AAAA")),
        (lambda t: version_begins(t, "24.1"), "24.11.1", False),
        (lambda t: version_begins(t, "24.11"), "24.11.1", True),
        (kernel.parse_release, "6.8.0-51-generic\n", "6.8.0-51-generic"),
        (limits.parse_login_memlock, "Last login\nunlimited\n", "unlimited"),
        (nvidia_smi.parse_refusal, "x\nFailed to initialize NVML: Driver/library version mismatch\n",
         "'Failed to initialize NVML: Driver/library version mismatch'"),
        (ping.parse_ping, PING, Ping(2, 1)),
        (ping.parse_ping, PING + "rtt min/avg/max/mdev = 1.250/2.500/9.125/0.300 ms, pipe 2\n",
         Ping(2, 1, 1.25, 2.5, 9.125)),
        (ping.parse_ping, PING.replace("1 received", "1 received, +3 duplicates, +2 corrupted"),
         Ping(2, 1, duplicates=3)),
        (nfs_server.parse_nfsd, NFSD, Nfsd(16, frozenset({"rdma 20049", "tcp 2049"}), frozenset({"4", "4.1", "4.2"}))),
        (nfs_server.parse_nfsd, "no nfsd\n", Nfsd(0, frozenset(), frozenset())),
        (nfs_server.parse_nfsd, "threads 0\nversions\n", Nfsd(0, frozenset(), frozenset())),
        (nfs_server.parse_exports, EXPORT, (Export("/srv/nfs", "10.77.0.0/24", ("sync", "wdelay", "fsid=1", "rw")),
                                      Export("/srv/old", "*", ("ro", "async")))),
        (nfs_server.parse_exports, "end of exports\n", ()),
        (statfs.parse_statfs, "4096 1000 500\n", statfs.FileSystemSize(4096 * 500, 4096 * 1000)),
        (ceph.parse_ceph_status, CEPH,
         CephStatus("HEALTH_WARN", {"OSD_DOWN": "1 osds down", "OLD": "old"}, frozenset({"OLD"}),
                    2, 1, 2, {"active+clean": 25}, ("a",), 2)),
        (ceph.parse_ceph_pool_sizes, '{"pools":[{"pool_name":"fs_data","size":3}]}\n', {"fs_data": 3}),
        (lambda t: programs.parse_programs(t, ("fio", "mpirun")), "fio /usr/bin/fio\nmpirun \n",
         {"fio": "/usr/bin/fio", "mpirun": None}),
    ],
)  # fmt: skip
def test_what_an_answer_says(parse: Callable[[str], object], text: str, expected: object) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (lambda t: answer.parse_answer("x", t), "a\nb\n"),
        (lambda t: answer.parse_answer("x", t), "a\nstatus 0"),
        (lambda t: answer.parse_answer("x", t), "status 0\nb\n"),
        (systemctl.parse_systemctl_show, "Failed to connect to bus\n"),
        (kernel.parse_sysctl, "sysctl: cannot stat\n"),
        (kernel.parse_sysctl, "vm.swappiness = 1"),
        (package_list, "dpkg-query: error\n"),
        (packages.parse_apt_config, "E: Syntax error\n"),
        (sysfs.parse_choice, "always madvise never\n"),
        (slurm.parse_srun_help, "srun: error: unknown option\n"),
        (kernel.parse_release, "uname: error\n"),
        (limits.parse_login_memlock, "ulimit: error\n"),
        (sysfs.parse_choice, "[always] [madvise] never\n"),
        (sysfs.parse_choice, "always [madvise] ne"),
        (ping.parse_ping, "ping: connect: Network is unreachable\n"),
        (ping.parse_ping, PING + PING),
        (ping.parse_ping, "0 packets transmitted, 0 received, time 0ms\n"),
        (nfs_server.parse_nfsd, "threads 16\nport tcp 2049\n"),
        (nfs_server.parse_nfsd, "threads many\nversions +4\n"),
        (nfs_server.parse_nfsd, "threads 16\nport\nversions +4\n"),
        (nfs_server.parse_nfsd, "threads 16\nversions\n"),
        (nfs_server.parse_exports, "/srv/nfs 10.77.0.0/24(rw)\n"),
        (nfs_server.parse_exports, "/srv/nfs\nend of exports\n"),
        (statfs.parse_statfs, "4096 1000\n"),
        (statfs.parse_statfs, "4096 1000 x\n"),
        (ceph.parse_ceph_status, CEPH[:200]),
        (ceph.parse_ceph_status, '{"health":{"status":"HEALTH_OK"}}\n'),
        (ceph.parse_ceph_pool_sizes, '{"pools":[{"pool_name":"fs_data"}]}\n'),
        (lambda t: programs.parse_programs(t, ("fio", "mpirun")), "fio /usr/bin/fio\n"),
        (lambda t: programs.parse_programs(t, ("fio",)), "fio: aliased\n"),
    ],
)
def test_what_is_no_answer(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ParseError):
        parse(text)


@pytest.mark.parametrize(
    ("client", "address", "admitted"),
    [
        ("10.77.0.0/24", "10.77.0.21", True),
        ("10.77.0.0/24", "10.77.1.21", False),
        ("10.77.0.0/255.255.255.0", "10.77.0.21", True),
        ("10.77.0.21", "10.77.0.21", True),
        ("*", "192.0.2.1", True),
        ("<world>", "192.0.2.1", True),
        ("gpu-01", "10.77.0.21", False),
        ("@netgroup", "10.77.0.21", False),
    ],
)
def test_whom_an_export_admits(client: str, address: str, admitted: bool) -> None:
    assert Export("/x", client, ("rw",)).admits(address) is admitted


def test_how_a_command_ended() -> None:
    assert Answer("", 124).timed_out
    assert Answer("", 137).timed_out
    assert Answer("", 127).not_run
    assert not Answer("", 1).timed_out
    assert not Answer("", 1).not_run
