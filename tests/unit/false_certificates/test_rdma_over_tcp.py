"""NFS by RDMA against TCP: each on a mount of its own, with the transport that was asked for, or there is no ratio."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.forecast import spaces
from rackproof.bench.plan import plan_steps
from rackproof.bench.storage.connections import mount_command
from rackproof.bench.storage.connections_reader import RDMA_GAIN, Leg, tcp_port
from rackproof.bench.user import OWN_MOUNT
from rackproof.core.architecture import ConnectionsProfile, StorageProfile, TransportsProfile
from rackproof.remote.command import CommandResult
from tests.unit.benchmarked import of_storage
from tests.unit.fakes import reply, virtual_rack
from tests.unit.false_certificates.test_connections import (
    NODES,
    RACK,
    ConnectionNodes,
    faults,
    measure,
    shared,
)

NAME = "nfs-rdma"
SIZES = TransportsProfile(block_bytes=1048576, iodepth=16, file_bytes=33554432, runtime_s=5, runs=2)


ARCHITECTURE = of_storage(storages=(NAME,), transports=SIZES).architecture


def nodes_with(**fault: Any) -> ConnectionNodes:
    return ConnectionNodes(ARCHITECTURE, name=NAME, **fault)


def test_the_ratio_is_of_two_mounts_in_one_version_of_nfs(tmp_path: Path) -> None:
    nodes = nodes_with()
    measured = measure(tmp_path, nodes)
    assert {node: m.samples for node, m in measured.items()} == dict.fromkeys(
        NODES, pytest.approx((0.25, 0.25), rel=0.02)
    )
    first = measured["gpu-01"]
    assert first.companions["tcp_mb_per_s"] == pytest.approx((40.0, 40.0), rel=0.02)
    assert first.companions["rdma_mb_per_s"] == pytest.approx((10.0, 10.0), rel=0.02)
    assert (first.conditions["tcp_port"], first.conditions["connections"]) == (2049, 1)
    assert [f"nfs4, {name}, 1 connections" in first.conditions["mount"] for name in ("tcp", "rdma")] == [True, True]
    assert [re.findall(r"vers=[\d.]+|proto=\w+|nconnect=\d+|port=\d+", pipe) for pipe in nodes.pipes] == [
        ["vers=4.2", "proto=tcp", "nconnect=1", "port=2049"], ["vers=4.2", "proto=rdma", "port=20049"],
    ] * 4  # fmt: skip
    assert faults(tmp_path, ARCHITECTURE) == set()
    other = of_storage(storages=(NAME,), transports=SIZES.model_copy(update={"count": 4})).architecture
    assert faults(tmp_path, other) == {"count: the profile asks for 4, the run had 1"}


def on(leg: str, edit: Callable[[str], str]) -> Callable[[str], str]:
    """An edit of the statistics of a mount by this transport."""
    return lambda text: edit(text) if f"xprt:\t{leg}" in text else text


def idle(text: str) -> str:
    """The connection sends nothing."""
    return re.sub(r"(xprt:\t\w+) .*", r"\1 0 0 1 0 0 31 31 0 31 0 2 3 4", text)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"protocol": "tcp"}, "transport in use: expected rdma, actual tcp"),
        ({"protocol": "rdma"}, "transport in use: expected tcp, actual rdma"),
        ({"stats": on("rdma", shared)}, "/mnt/other shares its connections"),
        ({"stats": on("tcp", shared)}, "/mnt/other shares its connections"),
        ({"stats": on("rdma", idle)}, "its connections carried 0 requests"),
        ({"stats": on("tcp", idle)}, "its connections carried 0 requests"),
        ({"connections": 2}, "connections in use: expected 1, actual 2"),
        ({"mountinfo": lambda text: text.replace("port=2049,", "port=2050,")}, "port: expected 2049, actual 2050"),
        ({"mountinfo": lambda text: text.replace("port=20049", "port=20050")}, "port: expected 20049, actual 20050"),
    ],
    ids=[
        "merged-rdma", "merged-tcp", "rdma-shared", "tcp-shared", "rdma-idle", "tcp-idle", "count", "tcp-port",
        "rdma-port",
    ],
)  # fmt: skip
def test_a_run_without_proof_is_no_ratio(tmp_path: Path, fault: dict[str, Any], why: str) -> None:
    measurement = measure(tmp_path, nodes_with(**fault))["gpu-01"]
    assert not measurement.samples
    assert why in (measurement.reason or "")


def test_mounts_in_different_versions_are_no_ratio(tmp_path: Path) -> None:
    nodes = nodes_with()

    def answer(node: str, command: str) -> CommandResult | None:
        result = nodes.answer(node, command)
        if result is None or OWN_MOUNT not in command or "proto=rdma" not in nodes.pipes[-1]:
            return result
        return reply(node, command, result.text.replace("vers=4.2", "vers=4.1"), result.rc or 0)

    measurement = measure(tmp_path, nodes, answer)["gpu-01"]
    assert measurement.reason is not None
    assert "expected one version of NFS, actual 4.1, 4.2" in measurement.reason


@pytest.mark.parametrize("leg", ["over-tcp-1", "over-rdma-1"])
def test_half_a_pair_is_disproven(tmp_path: Path, leg: str) -> None:
    measure(tmp_path, nodes_with())
    (why,) = faults(tmp_path, ARCHITECTURE, leave_out=f"-{leg}]")
    assert "expected pairs of nfs-rdma-over-tcp-1 and nfs-rdma-over-rdma-1, actual" in why


class OneAfterTheOther(ConnectionNodes):
    """The declared mount of NFS over TCP during its step, then that over RDMA."""

    @property
    def declared(self) -> Any:
        return self.architecture.storage["nfs-tcp" if len(self.pipes) < 4 else NAME]


def test_each_storage_has_files_of_its_own_at_the_same_mount_point(tmp_path: Path) -> None:
    connections = ConnectionsProfile(**SIZES.model_dump() | {"count": 8, "runs": 1})
    sizes = SIZES.model_copy(update={"runs": 1})
    architecture = of_storage(storages=("nfs-tcp", NAME), transports=sizes, connections=connections).architecture
    steps = ["storage/nfs-tcp/connections", "storage/nfs-rdma/transports"]
    assert [step.id for step in plan_steps(architecture, "depth", RACK)] == steps
    measured = measure(tmp_path, OneAfterTheOther(architecture))
    assert measured["gpu-01"].metric == RDMA_GAIN
    assert all(measurement.samples for measurement in measured.values())
    assert faults(tmp_path, architecture) == set()


def test_only_nfs_over_rdma_is_compared_with_tcp() -> None:
    every = of_storage(storages=("local", "nfs-tcp", NAME, "cephfs"), transports=SIZES).architecture
    assert [step.id for step in plan_steps(every, "depth", RACK)] == ["storage/nfs-rdma/transports"]
    assert {space.storage: space.bytes_each for space in spaces(every, "depth", RACK)} == {NAME: 33554432}
    assert "transports" not in StorageProfile(jobs={}).model_dump()


def test_the_port_of_tcp_is_that_of_the_same_server_and_export() -> None:
    rack = virtual_rack()
    storage = rack.storage[NAME]

    def port(**changes: Any) -> int:
        others = {name: other for name, other in rack.storage.items() if name not in ("nfs-tcp", "nfs-paths")}
        others["other"] = rack.storage["nfs-tcp"].model_copy(update={"port": 2050, **changes})
        return tcp_port(rack.model_copy(update={"storage": others}), storage)

    assert port() == 2050
    assert [port(source="/srv/b"), port(server_role="gpu"), port(servers=("10.0.0.9",)), port(port=None)] == [2049] * 4


def test_a_mount_by_tcp_does_not_take_over_what_asks_for_rdma() -> None:
    options = ("vers=3", "nolock", "rdma", "hard")
    storage = virtual_rack().storage[NAME].model_copy(update={"options": options, "port": None})
    command = mount_command(Leg("x", storage, 1, ""), "4.1", ["10.0.0.1:/srv/nfs"])
    assert "options=hard,vers=4.1,proto=rdma,retry=0 " in command.replace("\n", " ")
    over_tcp = storage.model_copy(update={"transport": "tcp", "port": 2049})
    command = mount_command(Leg("x", over_tcp, 1, ""), "3", ["10.0.0.1:/srv/nfs"])
    assert "options=hard,vers=3,proto=tcp,nconnect=1,retry=0,port=2049,nolock,mountproto=tcp" in command
