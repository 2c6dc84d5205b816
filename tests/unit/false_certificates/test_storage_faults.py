"""What goes wrong with one client of several: it is named, and no sum counts it."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.relay import socket_of
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.judging.judge import judge
from rackproof.core.status import Status
from rackproof.evidence.folder import node_infos
from rackproof.remote.command import CommandResult
from tests.unit.benchmarked import Bench, commands
from tests.unit.fakes import lab_rack, reply, virtual_rack
from tests.unit.judging import info_of_nodes
from tests.unit.storage_nodes import Document, StorageNodes

ARCHITECTURE = virtual_rack()
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
