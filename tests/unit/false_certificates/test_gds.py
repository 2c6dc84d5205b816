"""Reads into GPU memory: gdsio's figures with the counters of the mount, or no number."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.forecast import spaces
from rackproof.bench.plan import plan_steps
from rackproof.bench.storage.gds_reader import MARK, PROGRAM, SIMULATED
from rackproof.bench.storage.program_runs import configs_of
from rackproof.core.architecture import Architecture, GdsProfile
from rackproof.core.evidence import Measurement
from rackproof.core.judging.members import Members
from rackproof.core.rack import Rack
from rackproof.evidence.folder import node_infos
from rackproof.remote.command import CommandResult
from tests.unit.benchmarked import Bench, of_storage
from tests.unit.fakes import lab_rack, reply
from tests.unit.storage_nodes import StorageNodes

RACK = lab_rack(gpu=2)
SIZES = GdsProfile(threads=4, file_bytes=1073741824, runtime_s=10, runs=2)
RATE = 2.0
"""GiB/s of each GPU."""


ARCHITECTURE = of_storage(storages=("nfs-rdma",), gds=SIZES).architecture


@dataclass
class GdsNodes(StorageNodes):
    """Clients with two GPUs. ``word`` is a word of gdsio's line and another in its place."""

    word: tuple[str, str] = ("", "")
    row: dict[str, Any] = field(default_factory=dict)
    rc_of_program: int = 0
    heading: str = ""
    """Output of gdsio before its line."""
    runs: int = 0
    name: str = "nfs-rdma"

    def answer(self, node: str, command: str) -> CommandResult | None:
        for config in configs_of(command, PROGRAM):
            return self._program(node, command, config)
        return super().answer(node, command)

    def _program(self, node: str, command: str, config: dict[str, Any]) -> CommandResult:
        self.runs += 1
        reads = config["action"] == "read"
        seconds = 9.8 + self.runs / 1000
        moved = int(RATE * seconds * 1024)  # MiB of each GPU
        line = (
            f"IoType: {config['action'].upper()} XferType: GPUD Threads: {config['threads']}"
            f" DataSetSize: {moved * 1024}/4194304(KiB) IOSize: 1024(KiB) Throughput: {RATE:.6f} GiB/sec,"
            f" Avg_Latency: 500.000000 usecs ops: {moved} total_time {seconds:.6f} secs\n"
        )
        line = self.heading + line
        row: dict[str, Any] = {"status": 0, "text": line, "sizes": [config["file_bytes"]] * config["threads"]}
        if reads:
            row |= {"text": line.replace(*self.word)} | self.row
            counters = self.moved.setdefault((node, "/mnt/nfs-rdma"), [0, 0])
            counters[0] += int(2 * moved * 1048576 * self.counted)
        document = {MARK: 1, "job": config["job"], "folder": config["folder"]}
        document["gpus"] = [{"gpu": gpu, **row} for gpu in (0, 1)]
        return reply(node, command, json.dumps(document) + "\n", self.rc_of_program if reads else 0)


def measure(folder: Path, nodes: GdsNodes, answer: Any = None, rack: Rack = RACK) -> dict[str, Measurement]:
    return {m.subject: m for m in Bench(nodes.architecture, rack).measure(folder, answer or nodes.answer)}


def faults(folder: Path, architecture: Architecture = ARCHITECTURE, leave_out: str = "") -> set[str]:
    return set(Bench(architecture, RACK).faults(folder, leave_out=leave_out).values())


def test_the_sum_of_all_gpus_of_a_node(tmp_path: Path) -> None:
    measured = measure(tmp_path, GdsNodes(ARCHITECTURE))
    assert set(measured) == {"gpu-01", "gpu-02"}
    for measurement in measured.values():
        assert measurement.samples == pytest.approx((2 * RATE * 1024**3 / 1e9,) * 2), measurement.reason
        assert measurement.labels == {"storage": "nfs-rdma", "block_bytes": "1048576", "clients": "1"}
        assert measurement.conditions["gpus"] == 2
        assert measurement.conditions["bytes"] == "by the mount and the node's ports"
    assert faults(tmp_path) == set()
    other = of_storage(storages=("nfs-rdma",), gds=SIZES.model_copy(update={"threads": 8})).architecture
    assert faults(tmp_path, other) == {"threads: the profile asks for 8, the run had 4"}
    assert any("nothing wrote its files" in why for why in faults(tmp_path, leave_out='"job": "write"'))


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"word": ("GPUD", "CPU_GPU")}, "expected ('READ', 'GPUD', 4, 1048576) on GPU 0, actual ('READ', 'CPU_GPU'"),
        ({"word": ("Threads: 4", "Threads: 3")}, "actual ('READ', 'GPUD', 3"),
        ({"word": (" 1024(KiB)", " 64(KiB)")}, "its requests"),
        ({"word": (" secs", "")}, "cut off"),
        ({"word": ("Throughput: 2", "Throughput: 4")}, "its rate × time"),
        ({"row": {"status": 1, "text": "file register error"}}, "exit status 1 on GPU 0: file register error"),
        ({"row": {"sizes": [1073741824] * 3}}, "expected 4 files of 1073741824 B on GPU 0"),
        ({"rc_of_program": 139}, "exit status 139"),
        ({"counted": 0.5}, "the mount counted"),
        ({"mountinfo": lambda text: text.replace(" / /mnt/nfs-rdma ", " /x /mnt/nfs-rdma ")}, "a bind mount of /x"),
    ],
    ids=["bounce", "threads", "blocks", "cut", "rate", "status", "files", "crash", "memory", "mount"],
)
def test_a_run_without_proof_is_no_number(tmp_path: Path, fault: dict[str, Any], why: str) -> None:
    measurement = measure(tmp_path, GdsNodes(ARCHITECTURE, **fault))["gpu-01"]
    assert not measurement.samples
    assert why in (measurement.reason or "")


def sent(share: float, *, rdma: bool = True) -> Callable[[str], str]:
    """A server that sends a share of what is read, on an adapter that counts RDMA or not."""

    def server(text: str) -> str:
        bytes_sent = int(int(re.findall(r"tx_bytes:(\d+)", text)[0]) * share)
        device = "/sys/class/infiniband/mlx5_0/ports/1/counters"
        counters = f"{device}/port_xmit_data:{bytes_sent // 4}\n{device}/port_rcv_data:9\n" if rdma else ""
        return re.sub(r"tx_bytes:\d+\n", f"tx_bytes:7\n{counters}", text)

    return server


def test_what_the_servers_read_and_sent_is_told(tmp_path: Path) -> None:
    for measurement in measure(tmp_path, GdsNodes(ARCHITECTURE, drives=0.5, server=sent(1.0))).values():
        read = measurement.companions["clients_read_bytes"]
        assert read == pytest.approx(tuple(s * 9.8e9 for s in measurement.samples), rel=0.01)
        assert measurement.companions["server_drives_bytes"] == pytest.approx([r / 2 for r in read], abs=1024)
        assert measurement.conditions["server_ports_sent_bytes"] == pytest.approx(read)
        assert measurement.conditions["server_memory"].startswith("50 % of 42.")
    assert faults(tmp_path) == set()


@pytest.mark.parametrize(
    ("server", "invalid"),
    [(sent(0.5), True), (sent(0.5, rdma=False), False), (sent(1.0), False), (lambda text: None, False)],
    ids=["half", "not-counted", "all", "silent"],
)
def test_reads_that_no_server_sent_are_no_number(tmp_path: Path, server: Any, invalid: bool) -> None:
    for measurement in measure(tmp_path, GdsNodes(ARCHITECTURE, server=server)).values():
        assert measurement.invalid == (not measurement.samples) == invalid, measurement.reason
        assert ("came from their memory: the servers' ports sent" in (measurement.reason or "")) == invalid


def test_the_stand_in_of_simulated_gpus_is_labelled(tmp_path: Path) -> None:
    nodes = GdsNodes(ARCHITECTURE, heading=f"{SIMULATED}: no GPU took part\n")
    measurement = measure(tmp_path / "a", nodes)["gpu-01"]
    assert measurement.samples, measurement.reason
    assert measurement.conditions["io"] == SIMULATED
    assert faults(tmp_path / "a") == set()
    judged = Members(ARCHITECTURE, node_infos(RACK))
    assert judged.replayed(measurement.metric, measurement.scope, measurement.members)
    real = lab_rack(2)
    for node in real.nodes:
        node.data["simulated_gpus"] = False
    refused = measure(tmp_path / "b", nodes, rack=real)["gpu-01"]
    assert not refused.samples
    assert "a stand-in, but the inventory does not say simulated_gpus" in (refused.reason or "")


def test_a_hanging_gdsio_is_no_number_and_the_next_client_is_measured(tmp_path: Path) -> None:
    nodes = GdsNodes(ARCHITECTURE)

    def answer(node: str, command: str) -> CommandResult | None:
        if node == "gpu-01" and '"job": "read"' in command:
            return CommandResult(node, command, None, error="no answer within 130 s")
        return nodes.answer(node, command)

    measured = measure(tmp_path, nodes, answer)
    assert "no answer within 130 s" in (measured["gpu-01"].reason or "")
    assert measured["gpu-02"].samples


def test_its_files_need_space_for_every_gpu() -> None:
    (needed,) = spaces(ARCHITECTURE, "depth", RACK)
    assert ARCHITECTURE.gpu is not None
    assert needed.bytes_each == 4 * 1073741824 * ARCHITECTURE.gpu.count
    (step,) = plan_steps(ARCHITECTURE, "depth", RACK)
    assert len(step.commands) == 2
