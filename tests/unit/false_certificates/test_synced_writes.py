"""Writes with fsync: as many fsyncs as writes, or no number."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from rackproof.bench.plan import plan_steps
from rackproof.bench.reread import disproven
from rackproof.bench.runner import run_steps
from rackproof.core.architecture import Architecture, FioJob, Profile, StorageProfile
from rackproof.core.evidence import Kind, Measurement
from rackproof.evidence.folder import node_infos
from rackproof.evidence.store import read_raw, read_records
from tests.unit.fakes import lab_rack, scripted, virtual_rack
from tests.unit.storage_nodes import StorageNodes

RACK = lab_rack(gpu=2)
JOB = FioJob(rw="write", block_bytes=4096, iodepth=1, file_bytes=33554432, runtime_s=5)


def with_job(job: FioJob) -> Architecture:
    sizes = StorageProfile(jobs={}, storages=("nfs-tcp",), synced_writes=job)
    return virtual_rack().model_copy(update={"profiles": {"depth": Profile(storage=sizes)}})


ARCHITECTURE = with_job(JOB)


def measure(folder: Path, nodes: StorageNodes) -> dict[str, Measurement]:
    with scripted(folder, nodes.answer, RACK, ARCHITECTURE) as session:
        run_steps(session, plan_steps(ARCHITECTURE, "depth", RACK), set(), lambda text: None)
    bodies = [record.body for record in read_records(folder) if record.kind is Kind.MEASUREMENT]
    return {m.subject: m for m in map(Measurement.model_validate, bodies)}


def faults(folder: Path, architecture: Architecture) -> set[str]:
    records = read_records(folder)
    return set(disproven(records, partial(read_raw, folder), architecture, "depth", node_infos(RACK)).values())


def test_each_write_is_followed_by_an_fsync(tmp_path: Path) -> None:
    measured = measure(tmp_path, StorageNodes(ARCHITECTURE))
    assert set(measured) == {"gpu-01", "gpu-02", "rack"}
    assert measured["rack"].metric == "storage.synced_write_iops"
    assert measured["rack"].samples[0] == pytest.approx(2 * 50e6 / 4096, rel=0.01)
    commands = [str(r.body["command"]) for r in read_records(tmp_path) if r.kind is Kind.COMMAND]
    (launch,) = (command for command in commands if "[nfs-tcp-synced]" in command)
    assert launch.count("\nfsync=1\n") == 2
    assert faults(tmp_path, ARCHITECTURE) == set()
    other = with_job(JOB.model_copy(update={"block_bytes": 8192}))
    assert faults(tmp_path, other) == {"block_bytes: the profile asks for 8192, the run had 4096"}


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
    (step,) = plan_steps(ARCHITECTURE, "depth", RACK)
    assert "fsync=1" in step.commands[0]
