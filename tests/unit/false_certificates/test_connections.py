"""One connection against several: on a mount of its own, with connections of its own, or there is no ratio."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.forecast import spaces
from rackproof.bench.plan import plan_steps
from rackproof.bench.storage.connections import mount_command
from rackproof.bench.storage.connections_reader import Leg
from rackproof.bench.storage.fio_launch import is_launch
from rackproof.bench.user import OWN_MOUNT
from rackproof.core.architecture import Architecture, ConnectionsProfile, Storage
from rackproof.core.evidence import Kind, Measurement
from rackproof.core.rack import Rack
from rackproof.evidence.store import read_records
from rackproof.remote.command import CommandResult
from tests.unit.benchmarked import Bench, of_storage
from tests.unit.fakes import Answer, FakePipe, lab_rack, reply
from tests.unit.storage_nodes import StorageNodes, mountinfo, mountstats

RACK = lab_rack(gpu=2)
NODES = ("gpu-01", "gpu-02")
SIZES = ConnectionsProfile(block_bytes=1048576, iodepth=16, file_bytes=33554432, runtime_s=5, runs=2, count=8)


ARCHITECTURE = of_storage(connections=SIZES).architecture
DECLARED = ARCHITECTURE.storage["nfs-tcp"]


@dataclass
class ConnectionNodes(StorageNodes):
    """Clients with the declared mount, and for the length of a run with one of the step's own."""

    per_connection: float = 40e6
    """B/s; the server gives 120 MB/s."""
    others: str = ""
    """Further lines of mountinfo."""
    stats: Callable[[str], str] = lambda text: text
    """Edits the statistics of the step's own mount."""
    pipes: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Why there is no mount, by node."""
    connections: int | None = None
    """Connections of the step's own mount; None: as many as asked for."""
    protocol: str | None = None
    """Version of the step's own mount; None: the one asked for."""
    name: str = "nfs-tcp"

    @property
    def declared(self) -> Storage:
        return self.architecture.storage[self.name]

    @property
    def asked(self) -> list[str]:
        """Addresses of the step's own mounts."""
        return re.findall(r"([\d.]+):/srv", self.pipes[-1])

    @property
    def own(self) -> Storage | None:
        pattern = r"vers=([\d.]+),proto=(\w+)(?:,nconnect=(\d+))?.*,port=(\d+)"
        asked = re.findall(pattern, self.pipes[-1]) if self.pipes else []
        for version, protocol, count, port in asked:
            place = {"transport": self.protocol or protocol, "port": int(port)}
            mounts = len(self.asked)
            storage, connections = self.declared.model_copy(update=place), self.connections or int(count or 1)
            return Leg("x", storage, connections, "", mounts).own_mounts(version)
        return None

    def answer(self, node: str, command: str) -> CommandResult | None:
        if own := self.own:
            share = 0.25 if own.transport == "rdma" else (own.connections or 1) * len(own.mountpoints)
            self.rates = {"write": 50e6, "read": min(120e6, self.per_connection * share)}
        return super().answer(node, command)

    def _storage(self, text: str) -> Storage:
        return self.own if OWN_MOUNT in text and self.own else self.declared

    def _state(self, node: str, command: str, when: str, addresses: tuple[str, ...]) -> str:
        text, own = super()._state(node, command, when, addresses), self.own
        if own is None or OWN_MOUNT not in command:
            return text.replace("-- mountstats\n", f"{self.others}-- mountstats\n")
        declared = mountinfo(self.declared, addresses).splitlines()[1].replace("2 1 0:47", "9 1 0:48")
        text = text.replace("-- mountstats\n", f"{declared}\n{self.others}-- mountstats\n")
        moved = self.moved.get((node, own.mountpoints[0]), [0, 0])
        old, count = mountstats(own, addresses, *moved), (own.connections or 0) * len(own.mountpoints)
        line = f"\txprt:\t{own.transport} 700 0 1 0 0 100 100 0 120 0 2 3 4\n"
        assert old.count(line) == count
        new = old
        for number in range(count):
            sends = 30 + number + moved[0] // 1048576 // count
            new = new.replace(line, f"\txprt:\t{own.transport} 0 0 1 0 0 {sends} {sends} 0 {sends} 0 2 3 4\n", 1)
        return text.replace(old, self.stats(new) + mountstats(self.declared, addresses, 7, 7))


def measure(
    folder: Path, nodes: ConnectionNodes, answer: Answer | None = None, rack: Rack = RACK
) -> dict[str, Measurement]:
    def pipe(connection: Any, command: str, timeout_s: float, user: str = "") -> FakePipe:
        if "rackproof-own-mount" not in command:
            return FakePipe(dead=False)
        nodes.pipes.append(command)
        why = nodes.refused.get(connection.node.name, "")
        return FakePipe(bool(why), why=why)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.unit.fakes.FakeConnection.pipe", pipe)
        return {m.subject: m for m in Bench(nodes.architecture, rack).measure(folder, answer or nodes.answer)}


def faults(folder: Path, architecture: Architecture = ARCHITECTURE, leave_out: str = "", rack: Rack = RACK) -> set[str]:
    return set(Bench(architecture, rack).faults(folder, leave_out=leave_out).values())


def test_the_ratio_is_of_one_client_after_another(tmp_path: Path) -> None:
    nodes = ConnectionNodes(ARCHITECTURE)
    measured = measure(tmp_path, nodes)
    assert {node: m.samples for node, m in measured.items()} == dict.fromkeys(
        NODES, pytest.approx((3.0, 3.0), rel=0.02)
    )
    first = measured["gpu-01"]
    assert first.companions["one_connection_mb_per_s"] == pytest.approx((40.0, 40.0), rel=0.02)
    assert (first.conditions["connections"], first.conditions["clients"]) == (8, 1)
    assert f"on {OWN_MOUNT}, nfs4, tcp, 8 connections" in first.conditions["mount"]
    assert [re.findall(r"vers=[\d.]+|nconnect=\d+", pipe) for pipe in nodes.pipes] == [
        ["vers=4.1", "nconnect=1"], ["vers=4.1", "nconnect=8"],
    ] * 4  # fmt: skip
    assert faults(tmp_path) == set()
    other = of_storage(connections=SIZES.model_copy(update={"count": 4})).architecture
    assert faults(tmp_path, other) == {"count: the profile asks for 4, the run had 8"}


def test_the_declared_mount_is_read_only_by_its_state(tmp_path: Path) -> None:
    measure(tmp_path, ConnectionNodes(ARCHITECTURE))
    asked = [str(r.body["command"]) for r in read_records(tmp_path) if r.kind is Kind.COMMAND]
    assert not [command for command in asked if "/mnt/nfs-tcp" in command]
    assert all(f"{OWN_MOUNT}/rackproof-bench/gpu-0" in command for command in asked if is_launch(command))


RDMA = "10 1 0:49 / /mnt/nfs-rdma rw - nfs4 10.77.0.11:/srv/nfs rw,vers=4.1,proto=rdma,port=20049\n"
OLD = "11 1 0:50 / /mnt/old rw - nfs 10.77.0.11:/srv/nfs rw,vers=3,proto=tcp\n"
FOREIGN = "12 1 0:51 / /home rw - nfs4 10.9.9.9:/home rw,vers=4.1,proto=tcp,addr=10.9.9.9\n"


SECOND = OLD.replace("10.77.0.11", "10.0.0.12")


@pytest.mark.parametrize(
    ("others", "version"),
    [("", "4.1"), (FOREIGN, "4.1"), (RDMA, "3"), (RDMA + SECOND, "3"), (RDMA + OLD, None)],
)
def test_a_version_that_no_mount_of_the_server_uses_is_taken(tmp_path: Path, others: str, version: str | None) -> None:
    nodes = ConnectionNodes(ARCHITECTURE, others=others)
    measurement = measure(tmp_path, nodes)["gpu-01"]
    if version is None:
        assert nodes.pipes == []
        assert "/mnt/nfs-rdma, /mnt/nfs-tcp, /mnt/old use every version of NFS" in (measurement.reason or "")
    else:
        assert measurement.samples
        assert all(f"vers={version}," in pipe for pipe in nodes.pipes)
        assert all(("nolock" in pipe) == (version == "3") for pipe in nodes.pipes)


def test_a_server_that_only_the_source_names_is_mounted_again(tmp_path: Path) -> None:
    source = {"server_role": None, "source": f"10.77.0.11:{DECLARED.source}"}
    storage = ARCHITECTURE.storage | {"nfs-tcp": DECLARED.model_copy(update=source)}
    nodes = ConnectionNodes(ARCHITECTURE.model_copy(update={"storage": storage}))
    assert measure(tmp_path, nodes)["gpu-01"].samples
    assert faults(tmp_path, nodes.architecture) == set()


def shared(text: str) -> str:
    """Another mount prints the same connections."""
    return text + text.replace(OWN_MOUNT, "/mnt/other")


def one_works(text: str) -> str:
    """Only the first connection carries requests."""
    lines = [line for line in text.splitlines() if "xprt:" in line]
    idle = "\txprt:\ttcp 0 0 1 0 0 31 31 0 31 0 2 3 4"
    for line in lines[1:]:
        text = text.replace(line, idle, 1)
    return text


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"stats": shared}, "/mnt/other shares its connections"),
        ({"stats": one_works}, "its connections carried"),
        ({"connections": 4}, "connections in use: expected 1, actual 4"),
        ({"counted": 0.1}, "the mount counted"),
        ({"rc": 139}, "exit status 139"),
        ({"mountinfo": lambda text: text.replace(f" / {OWN_MOUNT} ", f" /x {OWN_MOUNT} ")}, "a bind mount of /x"),
        ({"mountinfo": lambda text: text.replace(" / /mnt/nfs-tcp ", " /x /mnt/nfs-tcp ")}, "a bind mount of /x"),
        ({"change": lambda document: document["client_stats"].clear()}, "document reports no job"),
    ],
    ids=["shared", "idle", "count", "memory", "crash", "bind", "declared", "nothing"],
)  # fmt: skip
def test_a_run_without_proof_is_no_ratio(tmp_path: Path, fault: dict[str, Any], why: str) -> None:
    measurement = measure(tmp_path, ConnectionNodes(ARCHITECTURE, **fault))["gpu-01"]
    assert not measurement.samples
    assert why in (measurement.reason or "")


def test_a_client_that_cannot_mount_says_why_and_the_next_is_measured(tmp_path: Path) -> None:
    nodes = ConnectionNodes(ARCHITECTURE, refused={"gpu-01": "mount.nfs: access denied by server"})
    measured = measure(tmp_path, nodes)
    assert measured["gpu-01"].reason == "gpu-01: no mount with 1 connection of TCP: mount.nfs: access denied by server"
    assert measured["gpu-02"].samples


def test_a_mount_that_stays_is_no_ratio(tmp_path: Path) -> None:
    nodes = ConnectionNodes(ARCHITECTURE)

    def answer(node: str, command: str) -> CommandResult | None:
        return reply(node, command, rc=1) if "/proc/self/mounts || exit 0" in command else nodes.answer(node, command)

    measurement = measure(tmp_path, nodes, answer)["gpu-01"]
    assert measurement.reason == f"gpu-01: {OWN_MOUNT} could not be unmounted"


def test_half_a_pair_is_disproven(tmp_path: Path) -> None:
    measure(tmp_path, ConnectionNodes(ARCHITECTURE))
    (why,) = faults(tmp_path, leave_out="-connections-8]")
    assert "actual nfs-tcp-connections-1, nfs-tcp-connections-1" in why


def test_only_nfs_over_tcp_has_several_connections() -> None:
    every = of_storage(storages=("local", "nfs-tcp", "nfs-rdma", "cephfs"), connections=SIZES).architecture
    assert [step.id for step in plan_steps(every, "depth", RACK)] == ["storage/nfs-tcp/connections"]
    assert {space.storage: space.bytes_each for space in spaces(every, "depth", RACK)} == {"nfs-tcp": 33554432}
    with pytest.raises(ValueError, match="iodepth × numjobs must be at least count"):
        ConnectionsProfile.model_validate(SIZES.model_dump() | {"iodepth": 4})


def test_options_of_the_declared_mount_are_quoted_and_kept() -> None:
    storage = DECLARED.model_copy(update={"options": ("vers=4.2", "hard", "rsize=1048576", "nofail")})
    command = mount_command(Leg("x", storage, 8, ""), "3", ["10.0.0.1:/srv/it's"])
    assert "options=hard,rsize=1048576,vers=3,proto=tcp,nconnect=8,retry=0,port=2049,nolock,mountproto=tcp" in command
    assert command.startswith("exec env -u ")
