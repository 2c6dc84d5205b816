"""Writes with fsync: as many fsyncs as writes, or no number."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackproof.core.architecture import FioJob, StorageProfile
from rackproof.core.evidence import Measurement
from tests.unit.benchmarked import commands, of_storage
from tests.unit.storage_nodes import StorageNodes

JOB = FioJob(rw="write", block_bytes=4096, iodepth=1, file_bytes=33554432, runtime_s=5)


BENCH = of_storage(synced_writes=JOB)
ARCHITECTURE = BENCH.architecture


def measure(folder: Path, nodes: StorageNodes) -> dict[str, Measurement]:
    return {m.subject: m for m in BENCH.measure(folder, nodes.answer)}


def test_each_write_is_followed_by_an_fsync(tmp_path: Path) -> None:
    measured = measure(tmp_path, StorageNodes(ARCHITECTURE))
    assert set(measured) == {"gpu-01", "gpu-02", "rack"}
    assert measured["rack"].metric == "storage.synced_write_iops"
    assert measured["rack"].samples[0] == pytest.approx(2 * 50e6 / 4096, rel=0.01)
    (launch,) = (command for command in commands(tmp_path) if "[nfs-tcp-synced]" in command)
    assert launch.count("\nfsync=1\n") == 2
    assert BENCH.faults(tmp_path) == {}
    other = of_storage(synced_writes=JOB.model_copy(update={"block_bytes": 8192}))
    assert set(other.faults(tmp_path).values()) == {"block_bytes: the profile asks for 8192, the run had 4096"}


@pytest.mark.parametrize(("unsynced", "counts"), [(1, True), (2, False), (14, False)])
def test_the_end_of_a_run_may_lack_an_fsync_of_each_process(tmp_path: Path, unsynced: int, counts: bool) -> None:
    """14 large writes in 5 s."""
    bench = of_storage(synced_writes=JOB.model_copy(update={"block_bytes": 16777216}))
    nodes = StorageNodes(bench.architecture, unsynced=unsynced)
    measured = {m.subject: m for m in bench.measure(tmp_path, nodes.answer)}
    assert bool(measured["rack"].samples) is counts, measured["rack"].reason


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_writes_without_their_fsync_are_no_number(tmp_path: Path, share: float) -> None:
    measured = measure(tmp_path, StorageNodes(ARCHITECTURE, synced=share))
    assert not any(m.samples for m in measured.values())
    assert "expected an fsync after each of" in (measured["rack"].reason or "")


def test_a_fio_that_ignores_fsync_is_no_number(tmp_path: Path) -> None:
    nodes = StorageNodes(ARCHITECTURE, change=lambda document: [
        entry["job options"].pop("fsync") for entry in document["client_stats"]
    ])  # fmt: skip
    measured = measure(tmp_path, nodes)
    assert not any(m.samples for m in measured.values())
    assert "expected fsync=1, actual not set" in (measured["rack"].reason or "")


def test_a_job_that_reads_is_refused() -> None:
    with pytest.raises(ValueError, match="must be write"):
        StorageProfile.model_validate({"jobs": {}, "synced_writes": JOB.model_dump() | {"rw": "read"}})


def test_a_dry_run_shows_the_fsync() -> None:
    (step,) = BENCH.steps()
    assert "fsync=1" in step.commands[0]
