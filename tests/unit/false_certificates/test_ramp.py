"""Bytes of a ramp, which fio does not count, are no proof of those that it counts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.storage.commands import counters_in_ramp, server_in_ramp
from rackproof.bench.storage.runs import RECENT
from rackproof.core.evidence import Measurement
from rackproof.parse import ParseError
from rackproof.parse.timed import parse_timed
from tests.unit.benchmarked import Bench, commands, of_storage
from tests.unit.storage_nodes import JOB, StorageNodes

RAMP = JOB.model_copy(update={"ramp_s": 10, "runtime_s": 60})
SHOWN = ("local", "nfs-tcp", "cephfs")
RUN_BYTES = 60 * 60_000_000
"""Bytes that fio counts of one client."""
IN_RAMP = {"ramp_s": 10, "ramp_bytes": 10 * 60_000_000}


def of(name: str, rw: str = "read", ramp_s: int = 10) -> Bench:
    job = RAMP.model_copy(update={"rw": rw, "ramp_s": ramp_s})
    return of_storage(jobs={rw: job}, storages=(name,))


def measure(folder: Path, name: str, rw: str = "read", **nodes: Any) -> list[Measurement]:
    bench = of(name, rw)
    measured = bench.measure(folder, StorageNodes(bench.architecture, name=name, **{**IN_RAMP, **nodes}).answer)
    assert bench.faults(folder) == {}
    return measured


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("rw", ["read", "write"])
def test_a_run_after_a_ramp_counts(tmp_path: Path, name: str, rw: str) -> None:
    for measurement in measure(tmp_path, name, rw):
        assert measurement.samples, measurement.reason
        assert "not proven" not in measurement.conditions["bytes"]
        if name != "cephfs":
            ratio = measurement.companions["counter_bytes"][0] / measurement.companions["application_bytes"][0]
            assert 1 <= ratio < 1.03


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("rw", ["read", "write"])
def test_a_ramp_hides_no_bytes_that_stayed_in_memory(tmp_path: Path, name: str, rw: str) -> None:
    """A tenth of the run's bytes; with those of the ramp the counter has as many as fio."""
    for measurement in measure(tmp_path, name, rw, counted=0.9):
        assert measurement.invalid
        assert not measurement.samples
        assert "memory: " in (measurement.reason or "")


def test_the_servers_drives_are_compared_without_the_ramp(tmp_path: Path) -> None:
    for measurement in measure(tmp_path, "nfs-tcp", drives=0.9):
        assert measurement.samples
        assert 0.9 <= measurement.companions["server_drives_bytes"][0] / (2 * RUN_BYTES) < 0.92


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({"timed": lambda text: ""}, "client state: the answer is cut off"),
        ({"timed": lambda text: text[:-1]}, "client state: the answer is cut off"),
        ({"timed": lambda text: text.replace("-- time", "-- when")}, "expected the time of a reading, got 0 lines"),
        (
            {"timed": lambda text: text.replace("-- block", "-- blocks")},
            "client state: a reading lacks device_read_bytes",
        ),
        ({"readings_ms": (-100, -600)}, "the node's clock went back between two readings"),
    ],
)
def test_a_client_whose_counters_in_the_ramp_are_unreadable_has_no_number(
    tmp_path: Path, nodes: dict[str, Any], words: str
) -> None:
    for measurement in measure(tmp_path, "local", **nodes):
        assert not measurement.samples
        assert not measurement.invalid
        assert words in (measurement.reason or "")


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({"readings_ms": (400, 900)}, "not proven: they include the ramp, whose end has no reading"),
        (
            {"change": lambda document: [job.pop("job_start") for job in document["client_stats"]]},
            "not proven: they include the ramp, whose end fio before 3.36 does not tell: install 3.36 or newer, or"
            " measure without a ramp (ramp_s: 0)",
        ),
        ({"readings_ms": (-6000, 900)}, "they include the end of the ramp, 10 % of the counted time"),
    ],
)
def test_a_ramp_whose_end_is_not_known_is_told(tmp_path: Path, nodes: dict[str, Any], words: str) -> None:
    for measurement in measure(tmp_path, "local", **nodes):
        assert measurement.samples
        assert words in measurement.conditions["bytes"]
        assert "counter_bytes" not in measurement.companions


@pytest.mark.parametrize("text", ["storage-state ramp", "storage-server ramp"])
def test_evidence_from_which_the_ramp_was_cut_proves_no_number(tmp_path: Path, text: str) -> None:
    measure(tmp_path, "nfs-tcp")
    assert any(text in command for command in commands(tmp_path))
    assert of("nfs-tcp").faults(tmp_path, leave_out=text)


def test_without_a_ramp_nothing_is_asked_in_the_run(tmp_path: Path) -> None:
    bench = of("nfs-tcp", ramp_s=0)
    bench.measure(tmp_path, StorageNodes(bench.architecture, name="nfs-tcp").answer)
    assert not [command for command in commands(tmp_path) if " ramp" in command]


def test_readings_are_close_enough_for_a_run_of_ten_seconds() -> None:
    """Else every other client of a short run would have no bytes after its ramp."""
    storage = of("nfs-tcp").architecture.storage["nfs-tcp"]
    for command in (counters_in_ramp(storage, ["10.77.0.11"], 5, 2), server_in_ramp(5, 2)):
        (pause_s,) = re.findall(r"do sleep ([\d.]+); done", command)
        assert float(pause_s) + 0.2 <= 10 * RECENT


def test_readings_without_an_end_are_refused() -> None:
    reading = b"-- block\n1 2 3\n-- time\n1795314000000\n-- end\n"
    assert [one.time_ms for one in parse_timed("t", 2 * reading)] == [1795314000000] * 2
    for cut in range(2 * len(reading)):
        if cut != len(reading):
            with pytest.raises(ParseError):
                parse_timed("t", (2 * reading)[:cut])


@pytest.mark.parametrize(("missing", "ramp_s", "counts"), [(0, 10, True), (4, 10, True), (5, 10, False), (4, 0, False)])
def test_requests_in_flight_at_the_end_of_a_ramp_are_bytes_without_a_request(
    tmp_path: Path, missing: int, ramp_s: int, counts: bool
) -> None:
    """As fio 3.39 reports them: 104 blocks read, up to 4 of which it sent in the ramp."""
    job = RAMP.model_copy(update={"rw": "read", "ramp_s": ramp_s, "iodepth": 4})
    bench = of_storage(jobs={"read": job}, storages=("local",))

    def change(document: dict[str, Any]) -> None:
        for entry in document["client_stats"]:
            size, ios = 104 * job.block_bytes, 104 - missing
            entry["read"] |= {
                "io_bytes": size, "total_ios": ios, "bw_bytes": size // 60, "iops": ios / 60, "runtime": 60_000,
            }  # fmt: skip

    nodes = StorageNodes(bench.architecture, name="local", change=change, ramp_s=10, ramp_bytes=10_000_000)
    for measurement in bench.measure(tmp_path, nodes.answer):
        assert bool(measurement.samples) is counts, measurement.reason
        assert counts or "expected blocks of" in (measurement.reason or "")
