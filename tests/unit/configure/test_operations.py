"""Operations against a host that answers from a table: what they send, what they refuse, and when they do nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.exceptions import ConnectError, FactProcessError

from rackproof.configure import facts, operations, rack_operations
from rackproof.configure.ceph.cluster import CephState
from rackproof.configure.drives import Drive, DriveState
from rackproof.configure.files import FileState, RemoteFile
from rackproof.configure.mounts import CEPH_SECRET, Table
from rackproof.configure.network import Link, Port
from rackproof.configure.nic import operations as nic_operations
from rackproof.configure.trust import AUTHORIZED_KEYS, KNOWN_HOSTS, Identity
from rackproof.configure.units import SystemState, Unit, UnitState
from rackproof.parse.mounts import Mount
from tests.unit.configure.rack import site
from tests.unit.configure.stub import StubHost, run
from tests.unit.shell import executable, sh

DRIVE = Drive("/dev/nvme0n1", "rp-local")
PORT = Port("fabric0", "rxe0", "10.77.0.21/24", 9000, mac="52:54:77:20:00:0b")
LINK = Link("fabric0", "52:54:77:20:00:0b", 9000, True, (PORT.address,))
MOUNT = Mount("storage-01:/a", "/mnt/a", "nfs4", ())
CEPH_PLAN = site("storage-01").ceph_plan()

EVERY: list[tuple[Any, dict[str, Any], list[type]]] = [
    (operations.packages, {"names": ["fio"]}, [facts.InstalledPackages]),
    (operations.files, {"entries": [RemoteFile("/etc/a", "x")]}, [facts.FileStates]),
    (operations.kernel_values, {"sysctl": {"vm.swappiness": "1"}, "patterns": {}}, [facts.KernelValues]),
    (operations.units, {"wanted": [Unit("a.service")]}, [facts.UnitStates]),
    (nic_operations.rail_ports, {"wanted": [PORT]}, [facts.Links]),
    (operations.time_followed, {}, [facts.Synchronised]),
    (operations.filesystem, {"drive": DRIVE}, [facts.DriveState]),
    (operations.mounted, {"wanted": site().client_mounts()}, [facts.MountTable]),
    (operations.ceph_cluster, {"plan": CEPH_PLAN}, [facts.CephState]),
    (operations.programs, {"names": ["fio"]}, [facts.Programs]),
    (operations.programs_needed, {"names": ["slurmd"], "by": "deploys/slurm.py"}, [facts.Programs]),
    (operations.mounts_needed, {"paths": ["/mnt/a"]}, [facts.MountTable]),
    (operations.addressed, {"wanted": [PORT]}, [facts.Links]),
    (rack_operations.ssh_trust, {"names": {}, "mpi_nodes": []}, [facts.FileStates]),
]


@pytest.mark.parametrize(("operation", "arguments", "asked"), EVERY, ids=[o[0]._inner.__name__ for o in EVERY])
def test_a_node_that_cannot_be_read_is_not_changed(
    operation: Any, arguments: dict[str, Any], asked: list[type]
) -> None:
    host = StubHost(dict.fromkeys(asked))
    (command,) = run(operation, host, **arguments)
    assert command.endswith("exit 1")
    assert "nothing was changed" in command


FILE = FileState("regular file", "644", "root", "root", hashlib.sha256(b"x").hexdigest())
CONVERGED: list[tuple[Any, dict[str, Any], dict[type, Any]]] = [
    (operations.packages, {"names": ["fio"]}, {facts.InstalledPackages: frozenset({"fio"})}),
    (operations.files, {"entries": [RemoteFile("/etc/a", "x")]}, {facts.FileStates: {"/etc/a": FILE}}),
    (
        operations.kernel_values,
        {"sysctl": {"vm.swappiness": "1"}, "patterns": {}},
        {facts.KernelValues: {"/proc/sys/vm/swappiness": "1"}},
    ),
    (
        operations.units,
        {"wanted": [Unit("a.service")]},
        {
            facts.UnitStates: SystemState(
                {"a.service": UnitState("loaded", "active", "enabled", False)}, frozenset(), {}
            )
        },
    ),
    (
        nic_operations.rail_ports,
        {"wanted": [PORT]},
        {facts.Links: (LINK,)},
    ),
    (
        operations.filesystem,
        {"drive": DRIVE},
        {facts.DriveState: DriveState(("/dev/nvme0n1",), "", "disk", "ext4", "rp-local")},
    ),
    (operations.mounted, {"wanted": ()}, {facts.MountTable: Table()}),
    (operations.time_followed, {}, {facts.Synchronised: True}),
    (operations.programs, {"names": ["fio"]}, {facts.Programs: frozenset({"fio"})}),
    (operations.programs_needed, {"names": ["fio"], "by": "x"}, {facts.Programs: frozenset({"fio"})}),
    (operations.mounts_needed, {"paths": ["/mnt/a"]}, {facts.MountTable: Table({"/mnt/a": MOUNT})}),
    (operations.addressed, {"wanted": [PORT]}, {facts.Links: (LINK,)}),
]


@pytest.mark.parametrize(
    ("operation", "arguments", "answers"), CONVERGED, ids=[o[0]._inner.__name__ for o in CONVERGED]
)
def test_a_converged_node_is_asked_once_and_sent_nothing(
    operation: Any, arguments: dict[str, Any], answers: dict[type, Any]
) -> None:
    host = StubHost(answers)
    assert run(operation, host, **arguments) == []
    assert len(host.asked) == 1
    assert len(host.noops) == 1


@pytest.mark.parametrize(
    ("operation", "arguments", "answers", "refusal"),
    [
        (
            operations.programs_needed, {"names": ["slurmd", "a"], "by": "deploys/slurm.py"},
            {facts.Programs: frozenset({"a"})}, "not installed: slurmd: run deploys/slurm.py first",
        ),
        (
            operations.mounts_needed, {"paths": ["/mnt/a", "/mnt/b"]},
            {facts.MountTable: Table({"/mnt/a": MOUNT})}, "not mounted: /mnt/b: run deploys/storage_client.py first",
        ),
        (
            operations.addressed, {"wanted": [PORT]}, {facts.Links: ()},
            "the fabric's addresses are missing (fabric0 10.77.0.21/24): run deploys/fabric.py first",
        ),
    ],
)  # fmt: skip
def test_a_node_without_what_another_deploy_sets_up_is_refused_with_its_name(
    operation: Any, arguments: dict[str, Any], answers: dict[type, Any], refusal: str
) -> None:
    host = StubHost(answers)
    (command,) = run(operation, host, **arguments)
    assert command.endswith("exit 1")
    assert any(refusal in line for line in host.logged)


@pytest.mark.parametrize(("chronyc", "ends"), [("exit 0", 0), ("exit 1", 1)])
def test_a_clock_that_follows_nothing_ends_the_run_on_its_node(tmp_path: Path, chronyc: str, ends: int) -> None:
    (script,) = run(operations.time_followed, StubHost({facts.Synchronised: False}))
    executable(tmp_path / "chronyc", f"[ \"$*\" = 'waitsync 12 0 0 5' ] || exit 7\n{chronyc}")
    done = sh(script, programs=tmp_path)
    assert done.returncode == ends
    assert ("time_upstreams" in done.stderr) is bool(ends)


def test_only_missing_packages_are_installed() -> None:
    (script,) = run(
        operations.packages, StubHost({facts.InstalledPackages: frozenset({"fio"})}), names=["chrony", "fio"]
    )
    assert "set -- chrony\n" in script


def test_a_foreign_drive_ends_the_operation_on_this_node_only() -> None:
    foreign = DriveState(("/dev/nvme0n1",), "", "disk", "ext4", "data")
    host = StubHost({facts.DriveState: foreign})
    (command,) = run(operations.filesystem, host, drive=DRIVE)
    assert "mkfs" not in command
    assert command.endswith("exit 1")
    assert host.logged == [
        command.removeprefix("echo ").removesuffix(" >&2; exit 1").strip("'\"").replace("'\"'\"'", "'")
    ]


def test_a_mount_that_came_out_differently_than_declared_fails() -> None:
    (nfs,) = [mount for mount in site().client_mounts() if mount.name == "nfs-rdma"]
    wrong = Mount(nfs.what, nfs.where, "nfs4", ("rw", "hard", "vers=4.1", "proto=tcp"))
    script, refusal = run(operations.mounted, StubHost({facts.MountTable: Table({nfs.where: wrong})}), wanted=[nfs])
    assert "systemctl restart" in script
    assert "option proto=rdma is not in force" in refusal
    assert refusal.endswith("exit 1")


def identity_host(name: str, key: str | None, files: dict[str, FileState] | None = None) -> StubHost:
    identity = Identity((f"ssh-ed25519 HOST{name}",), key)
    return StubHost({facts.Identity: identity, facts.FileStates: files or {}}, name=name)


def test_a_node_makes_its_own_key_once() -> None:
    (script,) = run(rack_operations.own_key, identity_host("gpu-01", None))
    assert "ssh-keygen -q -t ed25519" in script
    assert run(rack_operations.own_key, identity_host("gpu-01", "ssh-ed25519 user")) == []


def test_trust_is_written_from_what_the_nodes_answered_and_each_is_asked_once() -> None:
    here, other = identity_host("gpu-01", "ssh-ed25519 one"), identity_host("gpu-02", "ssh-ed25519 two")
    other.state = here.state
    names = {"gpu-01": ["10.77.0.21"], "gpu-02": ["10.77.0.22"]}
    (script,) = run(rack_operations.ssh_trust, here, other, names=names, mpi_nodes=["gpu-01", "gpu-02"])
    assert KNOWN_HOSTS in script
    assert AUTHORIZED_KEYS in script
    assert run(rack_operations.ssh_trust, here, other, names=names, mpi_nodes=[]) != []
    assert [fact for fact, _ in other.asked] == [facts.Identity]


def test_a_node_that_cannot_be_reached_is_tried_once_and_left_out() -> None:
    class Dead(StubHost):
        attempts = 0

        def connect(self, **_: Any) -> None:
            self.attempts += 1
            raise ConnectError("no route")

    here, dead = identity_host("gpu-01", "ssh-ed25519 one"), Dead({}, name="gpu-02")
    dead.state, dead.connected = here.state, False
    names: dict[str, list[str]] = {"gpu-01": [], "gpu-02": []}
    for _ in range(2):
        (script,) = run(rack_operations.ssh_trust, here, dead, names=names, mpi_nodes=["gpu-01", "gpu-02"])
        assert KNOWN_HOSTS in script
    assert dead.attempts == 1
    assert here.logged == ["no keys of gpu-02: deploy again when these nodes answer"] * 2


def test_storage_nodes_accept_no_keys() -> None:
    here, other = identity_host("storage-01", None), identity_host("gpu-01", "ssh-ed25519 one")
    other.state = here.state
    (script,) = run(
        rack_operations.ssh_trust, here, other, names={"storage-01": [], "gpu-01": []}, mpi_nodes=["gpu-01"]
    )
    assert AUTHORIZED_KEYS not in script


class Server(StubHost):
    def __init__(self, content: bytes | None, state: Any) -> None:
        super().__init__({}, name="storage-01")
        self.content, self.state = content, state

    def get_file(self, path: str, buffer: Any) -> bool:
        if self.content is None:
            raise FileNotFoundError(path)
        buffer.write(self.content)
        return True


def test_the_ceph_key_is_copied_without_ever_being_in_a_command() -> None:
    client = StubHost({facts.FileStates: {}})
    (script,) = run(rack_operations.ceph_secret, client, Server(b"AQBsecret==\n", client.state), server="storage-01")
    assert CEPH_SECRET in script
    assert "AQBsecret" not in script


def test_without_its_server_a_client_keeps_its_key_or_says_what_is_missing() -> None:
    has = StubHost({facts.FileStates: {CEPH_SECRET: FILE}})
    assert run(rack_operations.ceph_secret, has, Server(None, has.state), server="storage-01") == []
    lacks = StubHost({facts.FileStates: {}})
    (command,) = run(rack_operations.ceph_secret, lacks, Server(None, lacks.state), server="storage-01")
    assert "no Ceph client key on storage-01" in command
    planning = StubHost({facts.FileStates: {}}, executing=False)
    (command,) = run(rack_operations.ceph_secret, planning, Server(None, planning.state), server="storage-01")
    assert "no Ceph client key" not in command


@pytest.mark.parametrize("output", [[], ["installed fio"], ["installed fio", "rackproof-en"]])
def test_a_fact_that_was_cut_off_fails(output: list[str]) -> None:
    with pytest.raises(FactProcessError, match="cut off"):
        facts.InstalledPackages().process(output)


def test_a_fact_with_an_unexpected_answer_fails() -> None:
    with pytest.raises(FactProcessError, match="unexpected answer"):
        facts.Links().process(["{", "--", facts.END])


def test_a_complete_fact_is_parsed() -> None:
    assert facts.InstalledPackages().process(["installed fio", facts.END]) == frozenset({"fio"})
    assert facts.CephState().process([facts.END]) == CephState(None, None)
