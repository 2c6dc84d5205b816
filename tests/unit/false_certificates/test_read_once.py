"""Reads of each byte once: what shows it, and runs that read bytes twice, which never claim it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.step import expected
from rackproof.bench.storage.reader import read_storage
from rackproof.core.architecture import ContainerProfile, FioJob, Gate, StorageProfile
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.judging.gates import fault_of, small_data_set
from tests.unit.benchmarked import commands, of_storage
from tests.unit.storage_nodes import JOB, Document, StorageNodes, recorded_run

ONCE = JOB.model_copy(update={"once": True})
LARGE = ONCE.model_copy(update={"file_bytes": 1 << 30})
BENCH = of_storage(jobs={"read": ONCE})
ARCHITECTURE = BENCH.architecture


def gate(measurement: Measurement) -> str | None:
    return fault_of([Gate.DATASET_SIZE], measurement.companions, len(measurement.samples))


@pytest.mark.parametrize(
    ("job", "read"),
    [
        (ONCE, 33554432),
        (LARGE, 286 * 1048576),
        (ONCE.model_copy(update={"rw": "randread", "block_bytes": 4096, "numjobs": 2}), 4882 * 4096),
    ],
    ids=["to the end of the files", "until the time is over", "random"],
)
def test_bytes_that_are_read_once_need_no_files_larger_than_memory(tmp_path: Path, job: FioJob, read: int) -> None:
    bench = of_storage(jobs={job.rw: job})
    measurements = bench.measure(tmp_path, StorageNodes(bench.architecture).answer)
    assert {m.subject for m in measurements} == {"gpu-01", "gpu-02", "rack"}
    for measurement in measurements:
        clients = len(measurement.members)
        assert measurement.companions["bytes_read"] == (float(read * clients),)
        assert measurement.companions["dataset_bytes"] == (float(job.file_bytes * job.numjobs * clients),)
        assert measurement.conditions["reads"] == "each byte once at most"
        assert measurement.conditions["workload"]["once"] is True
        assert gate(measurement) is None
    (launch,) = (command for command in commands(tmp_path) if f"[nfs-tcp-{job.rw}]" in command)
    assert not [option for option in ("time_based", "norandommap", "ramp_time") if option in launch]
    assert bench.faults(tmp_path) == {}
    again = of_storage(jobs={job.rw: job.model_copy(update={"once": False})})
    assert set(again.faults(tmp_path).values()) == {"once: the profile asks for None, the run had True"}


@pytest.mark.parametrize(
    ("data", "ram", "read", "words"),
    [
        (16.0, 64.0, (160.0,), "0.25 times the clients' memory, read more than once"),
        (16.0, 64.0, (8.0, 9.0), "0.25 times the clients' memory, read more than once"),
        (16.0, 64.0, (16.0,), "0.25 times the clients' memory, read once at most"),
        (320.0, 64.0, (3200.0,), None),
        (16.0, 0.0, (16.0,), None),
    ],
)
def test_files_that_memory_could_hold_say_so(
    data: float, ram: float, read: tuple[float, ...], words: str | None
) -> None:
    numbers = {"dataset_bytes": (data,) * len(read), "client_ram_bytes": (ram,) * len(read)}
    assert small_data_set(numbers | {"application_bytes": read}) == words
    assert small_data_set({}) is None


def test_runs_that_begin_their_files_again_do_not_pass(tmp_path: Path) -> None:
    bench = of_storage(jobs={"read": JOB})
    for measurement in bench.measure(tmp_path, StorageNodes(ARCHITECTURE).answer):
        assert "bytes_read" not in measurement.companions
        assert "reads" not in measurement.conditions
        assert "5 times the clients' memory" in (gate(measurement) or "")
    assert {fault.partition(":")[0] for fault in BENCH.faults(tmp_path).values()} == {"once"}


def test_a_run_that_ends_before_its_files_is_no_number(tmp_path: Path) -> None:
    def short(document: Document) -> None:
        for entry in document["client_stats"]:
            read = entry["read"]
            read |= {key: read[key] // 2 for key in ("io_bytes", "io_kbytes", "total_ios", "runtime")}

    for measurement in BENCH.measure(tmp_path, StorageNodes(ARCHITECTURE, change=short).answer):
        assert measurement.samples == ()
        assert "expected a run of 5 s" in (measurement.reason or "")


def test_a_second_run_of_a_step_reads_the_same_bytes_again() -> None:
    """As after a client was lost."""
    nodes = StorageNodes(ARCHITECTURE)
    first, second = (recorded_run(nodes, "nfs-tcp", LARGE, {"gpu-01": "10.77.0.21"}) for _ in range(2))
    labels = {"storage": "nfs-tcp", "block_bytes": "1048576"}
    place = expected("storage.read_bandwidth", Scope.NODE, ["gpu-01"], labels, "storage/nfs-tcp/read")
    assert "bytes_read" in read_storage(first, ARCHITECTURE)(place).companions
    reading = read_storage([*first, *second], ARCHITECTURE)(place)
    assert len(reading.samples) == 2
    assert "bytes_read" not in reading.companions
    assert "reads" not in reading.conditions


@pytest.mark.parametrize("change", [{"rw": "write"}, {"runs": 2}, {"ramp_s": 1}, {"file_bytes": 1048577}])
def test_a_job_that_reads_bytes_twice_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="once"):
        FioJob.model_validate(ONCE.model_dump() | change)


def test_what_reads_its_files_several_times_is_refused() -> None:
    job = ONCE.model_dump()
    for key, more in (
        ("shared_file", {}),
        ("connections", {"count": 2}),
        ("beside_collectives", {"engine": "mpi", "message_bytes": 8}),
    ):
        with pytest.raises(ValueError, match="once"):
            StorageProfile.model_validate({"jobs": {}, key: job | more})
    with pytest.raises(ValueError, match="once false"):
        ContainerProfile.model_validate({"job": job})
