"""Faults of one client of several: it is named, and no sum counts it."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.relay import socket_of
from rackproof.core.architecture import FioJob
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.judging.judge import judge
from rackproof.core.status import Status
from rackproof.evidence.folder import node_infos
from rackproof.remote.command import CommandResult
from tests.unit.benchmarked import Bench, commands, of_storage
from tests.unit.fakes import lab_rack, reply, virtual_rack
from tests.unit.judging import info_of_nodes
from tests.unit.storage_nodes import Document, StorageNodes, with_long_runs

ARCHITECTURE = with_long_runs(virtual_rack())
BENCH = Bench(ARCHITECTURE, lab_rack(3), "lab")
STEP = "storage/nfs-tcp/read"


def measure(folder: Path, answer: Callable[[str, str], CommandResult | None]) -> dict[str, Measurement]:
    """By client; the sum is the rack's."""
    made = BENCH.measure(folder, answer, BENCH.steps(STEP))
    return {"rack" if m.scope is Scope.RACK else m.members[0]: m for m in made}


def of_second(change: Callable[[dict[str, Any]], object]) -> Callable[[Document], None]:
    def edit(document: Document) -> None:
        for entry in document["client_stats"]:
            if entry["hostname"] == socket_of("gpu-02"):
                change(entry)

    return edit


def slower(entry: dict[str, Any]) -> None:
    read = entry["read"]
    count = read["total_ios"] // 10
    latency = read["lat_ns"] | {"mean": read["lat_ns"]["mean"] * 10}
    read |= {"total_ios": count, "io_bytes": count << 20, "io_kbytes": count << 10, "lat_ns": latency}
    read |= {"iops": count / 5, "bw_bytes": (count << 20) // 5}


def test_a_client_that_the_server_throttles_fails_by_its_name(tmp_path: Path) -> None:
    measured = measure(tmp_path, StorageNodes(ARCHITECTURE, change=of_second(slower)).answer)
    assert measured["gpu-02"].samples[0] == pytest.approx(6.0, rel=0.1)
    info = info_of_nodes(node_infos(BENCH.rack), profile="lab")
    verdicts = judge(ARCHITECTURE, info, measured.values(), ()).verdicts
    (fairness,) = (v for v in verdicts if v.id.startswith("shared.fairness") and v.labels.get("storage") == "nfs-tcp")
    assert fairness.status is Status.FAIL
    assert "gpu-02" in fairness.message


def half_way(entry: dict[str, Any]) -> None:
    for key in ("io_bytes", "io_kbytes", "total_ios", "runtime"):
        entry["read"][key] //= 2


def test_a_client_that_stops_half_way_has_no_number_and_is_in_no_sum(tmp_path: Path) -> None:
    """Its fio is killed and tells what it had read; its rate is as high as that of the others."""
    nodes = StorageNodes(
        ARCHITECTURE, change=of_second(half_way), before="<gpu-02> fio: pid=4711, got signal=9\n"
    )  # fmt: skip
    measured = measure(tmp_path, nodes.answer)
    assert "expected a run of 5 s, actual 2.5 s" in (measured["gpu-02"].reason or "")
    assert "expected a run of 5 s, actual 2.5 s" in (measured["rack"].reason or "")
    assert measured["gpu-01"].samples
    assert not measured["gpu-02"].samples
    assert BENCH.faults(tmp_path) == {}


@pytest.mark.parametrize(
    ("step", "late_ms", "counts"),
    [(STEP, 2500, True), (STEP, 2501, False), (STEP, -5001, False), ("storage/local/read", 5001, True)],
)
def test_clients_that_had_the_storage_for_themselves_have_no_number(
    tmp_path: Path, step: str, late_ms: int, counts: bool
) -> None:
    """Each has the rate of a client alone, in runs of 5 s one after the other; the sum would be of both at once."""

    def late(entry: dict[str, Any]) -> None:
        entry["job_start"] += late_ms

    nodes = StorageNodes(ARCHITECTURE, change=of_second(late))
    made = BENCH.measure(tmp_path, nodes.answer, BENCH.steps(step))
    assert {bool(m.samples) for m in made} == {counts}
    if not counts:
        words = f"its clients began up to {abs(late_ms) / 1000:g} s apart, and the shortest one took 5 s"
        assert all(words in (m.reason or "") for m in made)


@pytest.mark.parametrize("storage", ["nfs-tcp", "cephfs", "local"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda line: re.sub(r" rw\b", " ro", line), "rw in force before it only; ro in force after it"),
        (lambda line: re.sub(r" \d+:\d+ ", " 7:77 ", line), "before it, 7:77 after it"),
        (lambda line: f"{line},lazytime", "changed during the run: lazytime in force after it only"),
    ],
)  # fmt: skip
def test_a_mount_that_changes_during_a_run_gives_no_number(
    tmp_path: Path, storage: str, change: Callable[[str], str], words: str
) -> None:
    """Each of both mounts is as the architecture asks, which does not ask for a mount that can be written here."""
    rack = virtual_rack()
    plain = rack.storage[storage].model_copy(update={"options": (), "options_required": (), "options_forbidden": ()})
    architecture = rack.model_copy(update={"storage": {**rack.storage, storage: plain}})

    def changed(text: str) -> str:
        lines = text.splitlines()
        return "\n".join(change(line) if plain.mountpoint in line else line for line in lines) + "\n"

    bench = Bench(architecture, lab_rack(2), "lab")
    nodes = StorageNodes(architecture, mountinfo_after=changed)
    made = bench.measure(tmp_path, nodes.answer, bench.steps(f"storage/{storage}/read"))
    assert made
    assert all(words in (m.reason or "") for m in made), made[0].reason


@pytest.mark.parametrize("known", [True, False])
def test_a_long_run_whose_clients_began_apart_has_no_number(tmp_path: Path, known: bool) -> None:
    """fio before 3.36 does not tell when a client began."""
    job = FioJob(rw="read", block_bytes=1048576, iodepth=4, file_bytes=33554432, runtime_s=60)
    bench = of_storage(jobs={"read": job})

    def late(entry: dict[str, Any]) -> None:
        entry["job_start"] = entry["job_start"] + 13_000 if known else None

    made = bench.measure(tmp_path, StorageNodes(bench.architecture, change=of_second(late)).answer)
    assert {bool(m.samples) for m in made} == {not known}


@pytest.mark.parametrize("status", [0, 1])
def test_a_full_file_system_is_named_and_the_others_are_measured(tmp_path: Path, status: int) -> None:
    """fio cannot write the files of one client."""
    full = "<gpu-02> fio: io_u error on file /mnt/nfs-tcp/x: No space left on device: write offset=0, buflen=1048576\n"
    nodes = StorageNodes(ARCHITECTURE)

    def answer(node: str, command: str) -> CommandResult | None:
        result = nodes.answer(node, command)
        if result is None or "-layout]" not in command or "gpu-02" not in command:
            return result
        document = json.loads(result.stdout)
        for entry in document["client_stats"]:
            if entry["hostname"] == socket_of("gpu-02"):
                entry["error"] = errno.ENOSPC
        return reply(node, command, full + json.dumps(document), rc=status)

    measured = measure(tmp_path, answer)
    for name in ("gpu-02", "rack"):
        assert not measured[name].samples
        assert "No space left on device" in (measured[name].reason or "")
    assert "gpu-02: fio error 28" in (measured["gpu-02"].reason or "")
    assert measured["gpu-01"].samples
    assert measured["gpu-01"].conditions["clients"] == 2
    assert not [c for c in commands(tmp_path) if "[nfs-tcp-read]" in c and "gpu-02.fio" in c]
