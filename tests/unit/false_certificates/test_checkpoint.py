"""Checkpoints: the slowest rank counts, and no run that lacks a byte, its fsync or its read gives a number."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rackproof.bench.relay import socket_of
from rackproof.core.architecture import CheckpointProfile, Gate
from rackproof.core.evidence import Measurement
from rackproof.core.judging.gates import fault_of
from rackproof.evidence.store import read_records
from rackproof.remote.command import CommandResult
from tests.unit.benchmarked import commands, of_storage
from tests.unit.fakes import Answer as Replies
from tests.unit.fakes import reply
from tests.unit.storage_nodes import Document, StorageNodes

SIZES = CheckpointProfile(model="small", ranks=4, block_bytes=1048576, file_bytes=16777216, runs=2)
BENCH = of_storage(checkpoint=SIZES)
ARCHITECTURE = BENCH.architecture
Change = Callable[[Document], None]


def measure(folder: Path, answer: Replies) -> dict[str, Measurement]:
    return {m.metric: m for m in BENCH.measure(folder, answer)}


def slow(document: Document) -> None:
    """gpu-02's slowest rank takes twice as long."""
    for entry in document["client_stats"]:
        if entry["hostname"] == socket_of("gpu-02"):
            for way in ("read", "write"):
                entry[way]["runtime"] *= 2
                entry[way]["bw_bytes"] //= 2
                entry[way]["iops"] /= 2


def test_the_slowest_rank_counts(tmp_path: Path) -> None:
    measured = measure(tmp_path, StorageNodes(ARCHITECTURE, change=slow).answer)
    write, read = (measured[f"checkpoint.{way}_bandwidth"] for way in ("write", "read"))
    assert len(write.samples) == len(read.samples) == 2
    assert write.samples[0] == pytest.approx(2 * 0.05 / 2, rel=0.01)  # 50 and 60 MB/s of each client, halved
    assert read.samples[0] == pytest.approx(2 * 0.06 / 2, rel=0.01)
    assert write.labels == {"storage": "nfs-tcp", "model": "small"}
    assert write.conditions["ranks"] == 8
    assert write.companions["dataset_bytes"] == (8 * SIZES.file_bytes,) * 2
    assert BENCH.faults(tmp_path) == {}
    other = of_storage(checkpoint=SIZES.model_copy(update={"ranks": 2}))
    assert set(other.faults(tmp_path).values()) == {"ranks: the profile asks for 2, the run had 4"}


def late(document: Document, share: float = 0.25) -> None:
    """gpu-02 begins when gpu-01 has run for a share of its time."""
    first, second, *_ = document["client_stats"]
    second["job_start"] = first["job_start"] + int(share * max(first[way]["runtime"] for way in ("read", "write")))


def one_after_another(document: Document) -> None:
    late(document, 1.0)
    document["client_stats"][1]["job_start"] += 1


def without_start(document: Document) -> None:
    """As fio 3.33 prints it."""
    del document["client_stats"][1]["job_start"]


def without_time(document: Document) -> None:
    for entry in document["client_stats"]:
        entry["job_start"] = 0


def test_a_late_client_lowers_the_rate(tmp_path: Path) -> None:
    measured = measure(tmp_path, StorageNodes(ARCHITECTURE, change=late).answer)
    assert measured["checkpoint.write_bandwidth"].samples[0] == pytest.approx(2 * 0.05 / 1.25, rel=0.01)
    assert measured["checkpoint.read_bandwidth"].samples[0] == pytest.approx(2 * 0.06 / 1.25, rel=0.01)
    assert BENCH.faults(tmp_path) == {}


@pytest.mark.parametrize("change", [one_after_another, without_start])
def test_on_local_drives_the_slowest_client_counts_whenever_each_began(tmp_path: Path, change: Change) -> None:
    def changed(document: Document) -> None:
        slow(document)
        change(document)

    local = of_storage(checkpoint=SIZES, storages=("local",))
    nodes = StorageNodes(local.architecture, change=changed)
    measured = {m.metric: m for m in local.measure(tmp_path, nodes.answer)}
    assert measured["checkpoint.write_bandwidth"].samples[0] == pytest.approx(2 * 0.05 / 2, rel=0.01)
    assert measured["checkpoint.read_bandwidth"].samples[0] == pytest.approx(2 * 0.06 / 2, rel=0.01)
    assert local.faults(tmp_path) == {}


def test_a_checkpoint_that_was_not_read_back_is_disproven(tmp_path: Path) -> None:
    measure(tmp_path, StorageNodes(ARCHITECTURE).answer)
    records = [record for record in read_records(tmp_path) if "-small-read]" not in str(record.body.get("command"))]
    assert set(BENCH.faults(tmp_path, records).values()) == {
        "its outputs do not give it: fio: expected nfs-tcp-checkpoint-small-read, actual nfs-tcp-checkpoint-small-write"
    }


def half(document: Document) -> None:
    write = document["client_stats"][1]["write"]
    write["iops"] /= 2
    for key in ("io_bytes", "total_ios", "bw_bytes"):
        write[key] //= 2


def without_fsync(document: Document) -> None:
    for entry in document["client_stats"]:
        entry["job options"].pop("end_fsync", None)


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        (StorageNodes(ARCHITECTURE, change=half), "expected 67108864 B of gpu-02's files, actual 33554432 B"),
        (StorageNodes(ARCHITECTURE, change=without_fsync), "expected end_fsync=1, actual not set"),
        (StorageNodes(ARCHITECTURE, change=one_after_another), "its clients began up to"),
        (StorageNodes(ARCHITECTURE, change=without_start), "does not report when each client began"),
        (StorageNodes(ARCHITECTURE, change=without_time), "nothing shows that they ran at once; 3.36 and newer do"),
        (StorageNodes(ARCHITECTURE, rc=139), "exit status 139"),
        (StorageNodes(ARCHITECTURE, counted=0.1), "the mount counted"),
        (StorageNodes(ARCHITECTURE, change=lambda document: document["client_stats"].pop()), "gpu-02 missing"),
    ],
    ids=["half", "fsync", "one-after-another", "no-start", "no-time", "crash", "cache", "client"],
)
def test_a_run_that_does_not_prove_its_bytes_is_no_number(tmp_path: Path, nodes: StorageNodes, why: str) -> None:
    write = measure(tmp_path, nodes.answer)["checkpoint.write_bandwidth"]
    assert not write.samples
    assert why in (write.reason or "")


class FromMemory(StorageNodes):
    """The clients' memory, or the server's, answers 60 % of the bytes that are read back."""

    of_server = False

    def answer(self, node: str, command: str) -> CommandResult | None:
        reads = "-small-read]" in command
        self.counted = 0.4 if reads and not self.of_server else 1.0
        self.drives = 0.4 if self.of_server else 1.0
        return super().answer(node, command)


@pytest.mark.parametrize(
    ("storage", "counter"),
    [("local", "the device"), ("nfs-tcp", "the mount"), ("nfs-rdma", "the mount"), ("cephfs", "the client")],
)
def test_a_checkpoint_read_back_from_memory_is_invalid_with_its_share(
    tmp_path: Path, storage: str, counter: str
) -> None:
    bench = of_storage(checkpoint=SIZES, storages=(storage,))
    measured = {m.metric: m for m in bench.measure(tmp_path, FromMemory(bench.architecture).answer)}
    write, read = (measured[f"checkpoint.{way}_bandwidth"] for way in ("write", "read"))
    assert (read.samples, read.invalid) == ((), True)
    why = f"60 % of 67.1 MB that it read came from the client's memory: {counter} counted 26.8 MB"
    assert why in (read.reason or "")
    assert write.samples
    assert bench.faults(tmp_path) == {}


def test_the_bytes_of_a_checkpoint_are_recorded_with_their_counters(tmp_path: Path) -> None:
    nodes = FromMemory(ARCHITECTURE)
    nodes.of_server = True
    measured = measure(tmp_path, nodes.answer)
    read = measured["checkpoint.read_bandwidth"]
    assert read.companions["application_bytes"] == read.companions["counter_bytes"] == (8 * SIZES.file_bytes,) * 2
    assert read.conditions["server_memory"].startswith("60 % of 134 MB that the clients read")
    assert read.companions["clients_read_bytes"] == (8 * SIZES.file_bytes,) * 2
    fault = fault_of([Gate.SERVER_DRIVES], read.companions, len(read.samples))
    assert "from the servers' drives, actual 40 %: the servers' memory answered the rest" in (fault or "")
    assert "clients_read_bytes" not in measured["checkpoint.write_bandwidth"].companions
    assert BENCH.faults(tmp_path) == {}


def test_a_full_file_system_ends_the_step_with_its_words(tmp_path: Path) -> None:
    nodes = StorageNodes(ARCHITECTURE)

    def answer(node: str, command: str) -> CommandResult | None:
        result = nodes.answer(node, command)
        if result is None or "-small-write]" not in command:
            return result
        document: Document = json.loads(result.stdout)
        document["client_stats"][0]["error"] = 28
        words = "<gpu-01> fio: io_u error on file x: No space left on device: write\n"
        return reply(node, command, words + json.dumps(document), 1)

    measured = measure(tmp_path, answer)
    assert not any(m.samples for m in measured.values())
    assert "No space left on device" in (measured["checkpoint.read_bandwidth"].reason or "")
    assert not any("-small-read]" in command for command in commands(tmp_path))
