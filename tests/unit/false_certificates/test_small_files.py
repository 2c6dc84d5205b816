"""Small files: every file is used once, by every client, and comes from the storage; otherwise there is no number."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.forecast import spaces
from rackproof.bench.plan import plan_steps
from rackproof.bench.storage.commands import BEFORE, server_state
from rackproof.core.architecture import Architecture, FilesProfile
from rackproof.core.evidence import Kind, Measurement
from rackproof.core.metrics import OPERATIONS
from rackproof.evidence.store import read_records
from rackproof.remote.command import CommandResult
from tests.unit.benchmarked import Bench, of_storage
from tests.unit.fakes import Answer, hanging, lab_rack, reply
from tests.unit.file_nodes import FILES_S, SHARDS, FileNodes

pytestmark = pytest.mark.few(6)

RACK = lab_rack(gpu=2)
NODES = ("gpu-01", "gpu-02")
SMALL = FilesProfile(file_bytes=113000, files=100, processes=2, runs=2)
TINY = FilesProfile(file_bytes=4096, files=150, processes=2)
READ, SHARD = "storage.small_file_read_bandwidth", "storage.shard_read_bandwidth"


def with_sizes(tiny: FilesProfile = TINY, storage: str = "nfs-tcp") -> Architecture:
    return of_storage(storages=(storage,), small_files=SMALL, metadata=tiny).architecture


ARCHITECTURE = with_sizes()


def measure(
    folder: Path, answer: Answer, architecture: Architecture = ARCHITECTURE
) -> dict[tuple[str, ...], Measurement]:
    """By metric, or the operation, and subject."""
    measured = Bench(architecture, RACK).measure(folder, answer)
    return {(m.labels.get("op", m.metric), m.subject): m for m in measured}


def faults(folder: Path, architecture: Architecture = ARCHITECTURE, leave_out: str = "") -> set[str]:
    return set(Bench(architecture, RACK).faults(folder, leave_out=leave_out).values())


def test_small_files_and_shards_have_the_same_bytes(tmp_path: Path) -> None:
    measured = measure(tmp_path, FileNodes(ARCHITECTURE).answer)
    assert all(m.samples for m in measured.values())
    size = SMALL.files * SMALL.file_bytes * SMALL.processes
    small, shards = measured[READ, "rack"], measured[SHARD, "rack"]
    assert small.samples == pytest.approx((2 * size / (SMALL.files / FILES_S) / 1e6,) * 2)
    assert shards.samples == pytest.approx((2 * SMALL.processes * SHARDS / 1e6,) * 2)
    assert small.labels == shards.labels == {"storage": "nfs-tcp", "block_bytes": "113000"}
    for measurement in (small, shards):
        assert measurement.companions["dataset_bytes"] == (2 * size,) * 2
        assert measurement.companions["counter_bytes"] == measurement.companions["application_bytes"]
        assert measurement.conditions["cache"] == "cold"
    assert measured[READ, "gpu-01"].samples == pytest.approx((size / (SMALL.files / FILES_S) / 1e6,) * 2)
    assert faults(tmp_path) == set()


@pytest.mark.parametrize("storage", ["nfs-tcp", "nfs-rdma", "local", "cephfs"])
def test_every_use_of_names_has_a_rate(tmp_path: Path, storage: str) -> None:
    architecture = with_sizes(storage=storage)
    nodes = FileNodes(architecture, name=storage)
    measured = measure(tmp_path, nodes.answer, architecture)
    for op in OPERATIONS:
        rack = measured[op, "rack"]
        assert rack.samples == pytest.approx((2 * TINY.files * TINY.processes / (TINY.files / FILES_S),)), op
        counted = "nothing counts them" if storage == "local" else "1 or more for each file, by the client"
        assert rack.conditions["requests"] == counted
    assert faults(tmp_path, architecture) == set()
    used = [config["job"] for node, config in nodes.asked if node == "gpu-01"]
    assert used[-6:] == ["metadata-prepare", *(f"metadata-{op}" for op in OPERATIONS), "clear"]


def test_all_clients_begin_at_one_moment_after_caches_were_dropped(tmp_path: Path) -> None:
    nodes = FileNodes(ARCHITECTURE)
    measure(tmp_path, nodes.answer)
    starts = [config["start_file"] for _, config in nodes.asked if config["job"] == "metadata-stat"]
    assert len(starts) == 2 * len(set(starts)) > 0
    recorded = [str(r.body["command"]) for r in read_records(tmp_path) if r.kind is Kind.COMMAND]
    asked = [command for command in recorded if " told=" not in command]
    place = next(number for number, command in enumerate(asked) if '"metadata-stat"' in command)
    assert asked[place - 1] == server_state(BEFORE)
    assert asked[place - 2] == "sync; echo 3 > /proc/sys/vm/drop_caches"  # of the server
    assert "storage-state before" in asked[place - 3]
    (read,) = {c for c in asked if "storage-state before" in c and "/gpu-01-files/tree" in c and "nfs-tcp" in c}
    assert read.endswith("echo -- end && { sync; echo 3 > /proc/sys/vm/drop_caches; }")


def test_what_the_servers_drives_did_not_read_is_told(tmp_path: Path) -> None:
    measured = measure(tmp_path, FileNodes(ARCHITECTURE, drives=0.6).answer)
    size = 2 * SMALL.files * SMALL.file_bytes * SMALL.processes
    for key in ((READ, "rack"), (READ, "gpu-01"), (SHARD, "rack")):
        own = measured[key]
        assert own.conditions["server_memory"] == "40 % of 45.2 MB that the clients read: the drives read 27.1 MB"
        assert own.conditions["server_ports_sent_bytes"] == [size] * 2
        assert own.companions["clients_read_bytes"] == (size,) * 2
        assert own.companions["server_drives_bytes"] == pytest.approx((0.6 * size,) * 2, abs=1024)
    for op in ("create", "stat", "remove"):
        own = measured[op, "rack"]
        assert own.conditions["server_memory"] == "nothing was read"
        assert own.conditions["server_drives_read_bytes"] == own.conditions["server_ports_sent_bytes"] == [0]
        assert "clients_read_bytes" not in own.companions
    assert faults(tmp_path) == set()
    without = faults(tmp_path, leave_out="storage-server after")
    assert "condition server_drives_read_bytes: recorded 0, its raw output gives nothing" in without
    assert any(why.startswith("clients_read_bytes: recorded 45200000") for why in without)


@pytest.mark.parametrize(("sent", "invalid"), [("1000", True), (r"\g<1>", False)])
def test_files_that_no_server_sent_are_no_rate_and_names_still_are(tmp_path: Path, sent: str, invalid: bool) -> None:
    def server(text: str) -> str:
        return re.sub(r"tx_bytes:(\d+)", f"tx_bytes:{sent}", text)

    many = {"files": 2000}  # for longer than ports may be late
    sizes = {"small_files": SMALL.model_copy(update=many), "metadata": TINY.model_copy(update=many)}
    architecture = of_storage(**sizes).architecture
    measured = measure(tmp_path, FileNodes(architecture, server=server).answer, architecture)
    for key in ((READ, "rack"), (SHARD, "rack"), ("read", "rack"), ("read", "gpu-02")):
        assert measured[key].invalid == (not measured[key].samples) == invalid
        assert ("came from their memory: the servers' ports sent" in (measured[key].reason or "")) == invalid
    assert all(measured[op, "rack"].samples for op in ("create", "stat", "remove"))


def test_a_server_that_does_not_tell_leaves_the_numbers(tmp_path: Path) -> None:
    measured = measure(tmp_path, FileNodes(ARCHITECTURE, server=lambda text: None).answer)
    for measurement in measured.values():
        assert measurement.samples
        assert measurement.conditions["server_memory"] == "unknown: server state: storage-01: no answer"


def fewer(document: dict[str, Any]) -> None:
    document["processes"][0][0] -= 1


def shorter(document: dict[str, Any]) -> None:
    document["processes"][1][1] //= 2


def one_process(document: dict[str, Any]) -> None:
    document["processes"].pop()


def backwards(document: dict[str, Any]) -> None:
    document["processes"][0][3] = document["processes"][0][2]


def not_a_number(document: dict[str, Any]) -> None:
    document["processes"][0][3] = "nan"


def fails(document: dict[str, Any]) -> None:
    document.pop("processes", None)
    document["error"] = "/mnt/nfs-tcp/x: No space left on device"


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"edit": {("gpu-02", "small-read"): fewer}}, "expected 100 files of a process, actual 99"),
        ({"edit": {("gpu-02", "small-read"): shorter}}, "expected 100 files of a process, actual 100 with 5650000 B"),
        ({"edit": {("gpu-02", "small-read"): one_process}}, "expected 2 processes"),
        ({"edit": {("gpu-02", "small-read"): backwards}}, "a process ran from"),
        ({"edit": {("gpu-02", "small-read"): not_a_number}}, "is not a number"),
        ({"edit": {("gpu-01", "small-create"): fails}}, "No space left on device"),
        ({"edit": {("gpu-01", "small-read"): lambda document: document.clear()}}, "0 answers of small-read"),
        ({"exits": {("gpu-02", "small-read"): 139}}, "exit status 139"),
        ({"late": {"gpu-02": 0.7}}, "of the common start"),
        ({"counted": 0.1}, "the mount counted"),
        ({"requested": 0.5}, "files were in the client's memory: the client counted"),
        ({"mountinfo": lambda text: text.replace(" / /mnt/nfs-tcp ", " /srv /mnt/nfs-tcp ")}, "a bind mount of /srv"),
    ],
    ids=["fewer", "half", "process", "time", "text", "full", "nothing", "crash", "late", "memory", "names",
         "mount"],
)  # fmt: skip
def test_a_run_without_proof_is_no_number(tmp_path: Path, fault: dict[str, Any], why: str) -> None:
    nodes = FileNodes(ARCHITECTURE, **fault)
    measurement = measure(tmp_path, nodes.answer)[READ, "rack"]
    assert not measurement.samples
    assert why in (measurement.reason or "")
    assert [node for node, config in nodes.asked if config["job"] == "clear"] in ([], [*NODES, *NODES])


def test_clients_that_hardly_ran_at_once_have_no_common_rate(tmp_path: Path) -> None:
    measured = measure(tmp_path, FileNodes(ARCHITECTURE, late={"gpu-02": 0.4}).answer)
    assert not measured[SHARD, "rack"].samples
    assert "its clients began up to 0.4 s apart, in 0.588 s" in (measured[SHARD, "rack"].reason or "")
    assert measured[SHARD, "gpu-01"].samples
    seconds = SMALL.files / FILES_S + 0.4
    assert measured[READ, "rack"].samples == pytest.approx((4 * SMALL.files * SMALL.file_bytes / seconds / 1e6,) * 2)


@pytest.mark.parametrize("op", OPERATIONS)
def test_names_that_came_from_memory_are_no_rate(tmp_path: Path, op: str) -> None:
    for storage in ("nfs-tcp", "cephfs"):
        architecture = with_sizes(storage=storage)
        nodes = FileNodes(architecture, name=storage, requested=0.9)
        measurement = measure(tmp_path / storage, nodes.answer, architecture)[op, "rack"]
        assert not measurement.samples
        assert "files were in the client's memory: the client counted" in (measurement.reason or "")


@pytest.mark.parametrize("layouts", [0, 7])
def test_reads_of_pnfs_go_to_servers_that_the_mount_does_not_count(tmp_path: Path, layouts: int) -> None:
    nodes = FileNodes(ARCHITECTURE)

    def answer(node: str, command: str) -> CommandResult | None:
        result = nodes.answer(node, command)
        if result is None or b"per-op statistics" not in result.stdout:
            return result
        counted = f"\\1\t LAYOUTGET: {layouts} {layouts} 0 44 24 0 0 0 0\n"
        text = re.sub(r" READ: \d+ \d+", " READ: 0 0", result.text)
        return replace(result, stdout=re.sub(r"(per-op statistics\n)", counted, text).encode())

    measured = measure(tmp_path, answer)
    for name in (READ, "read"):
        assert bool(measured[name, "rack"].samples) is bool(layouts), measured[name, "rack"].reason
        assert not layouts or measured[name, "rack"].conditions["requests"] == "nothing counts them"
    assert all(measured[op, "rack"].samples for op in ("create", "stat", "remove"))
    assert not faults(tmp_path)


def answered(job: str, change: Any) -> Answer:
    nodes = FileNodes(ARCHITECTURE)

    def answer(node: str, command: str) -> CommandResult | None:
        result = nodes.answer(node, command)
        return change(result) if result is not None and node == "gpu-02" and f'"{job}"' in command else result

    return answer


def cut(result: CommandResult) -> CommandResult:
    return reply(result.node, result.command, result.stdout[: len(result.stdout) // 2])


def absent(result: CommandResult) -> CommandResult:
    return reply(result.node, result.command, rc=127, err="env: 'python3': No such file or directory")


@pytest.mark.parametrize(
    ("change", "why"),
    [(cut, "cut off or damaged"), (absent, "python3"), (hanging, "no answer within 153 s")],
    ids=["cut", "absent", "hang"],
)
@pytest.mark.parametrize("job", ["metadata-create", "metadata-stat"])
def test_a_client_that_is_lost_leaves_no_rate(tmp_path: Path, job: str, change: Any, why: str) -> None:
    measured = measure(tmp_path, answered(job, change))
    for op in OPERATIONS:
        assert not measured[op, "rack"].samples
        assert why in (measured[op, "rack"].reason or "")
        assert "gpu-02 missing" in (measured[op, "gpu-01"].reason or "")


def test_other_mounts_after_a_run_are_no_number(tmp_path: Path) -> None:
    nodes = FileNodes(
        ARCHITECTURE, mountinfo_after=lambda text: text.replace(" / /mnt/nfs-tcp ", " /srv /mnt/nfs-tcp ")
    )
    nodes.files = {node: {} for node in NODES}
    assert not any(m.samples for m in measure(tmp_path, nodes.answer).values())


def test_nothing_is_written_on_another_mount(tmp_path: Path) -> None:
    nodes = FileNodes(ARCHITECTURE, mountinfo=lambda text: text.replace(" / /mnt/nfs-tcp ", " /srv /mnt/nfs-tcp "))
    measure(tmp_path, nodes.answer)
    assert nodes.asked == []


def test_the_tree_that_is_read_has_every_file(tmp_path: Path) -> None:
    nodes = FileNodes(ARCHITECTURE)

    def answer(node: str, command: str) -> CommandResult | None:
        result = nodes.answer(node, command)
        if result is None or "echo -- tree" not in command:
            return result
        return reply(node, command, result.stdout.replace(b"-- tree\n200 ", b"-- tree\n199 "))

    measurement = measure(tmp_path, answer)[READ, "rack"]
    assert "files=199" in (measurement.reason or "")


def test_edited_evidence_is_disproven(tmp_path: Path) -> None:
    measure(tmp_path, FileNodes(ARCHITECTURE).answer)
    other = with_sizes(tiny=TINY.model_copy(update={"files": 300}))
    assert faults(tmp_path, other) == {"files: the profile asks for 300, the run had 150"}
    assert "its outputs do not give it: files_node.py: no run of shards-read" in faults(
        tmp_path, leave_out='"shards-read"'
    )
    assert any(
        "caches were not dropped" in why or "was not asked" in why for why in faults(tmp_path, leave_out="drop_caches")
    )


def test_the_files_of_one_step_are_removed_before_the_next() -> None:
    (needed,) = spaces(ARCHITECTURE, "depth", RACK)
    assert needed.bytes_each == 200 * 114688  # in blocks of 4 KiB
    assert needed.shared
    commands = [command for step in plan_steps(ARCHITECTURE, "depth", RACK) for command in step.commands]
    assert len(commands) == 13
    assert all(command.startswith("python3 -I /run/rackproof-bench/files_node.py") for command in commands)
