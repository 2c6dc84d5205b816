"""Faults of storage, of clients and of fio while the rack is measured: each ends as it should, within its limit, and
leaves nothing behind on any node."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackproof.core.rack import Rack
from rackproof.lab import faults
from rackproof.lab.rack import Lab
from tests.lab.conftest import INVENTORY, ROOT
from tests.lab.running import Running, left_behind, on_node, traces

pytestmark = pytest.mark.long

FILE = 33554432
READS = {"rw": "randread", "block_bytes": 4096, "iodepth": 16, "file_bytes": FILE, "runtime_s": 5}
STREAM = {"rw": "read", "block_bytes": 1048576, "iodepth": 4, "file_bytes": FILE, "runtime_s": 5}
PUBLISHED = ("virtual-rack", "virtual-rack-storage")
IN_JOB = "until [ $(pgrep -cx fio) -gt 1 ]; do sleep 0.2; done; sleep 3"
WRITTEN = "files written completely"
"""Printed before the first measured run."""


def random_reads(runtime_s: int = 5) -> dict[str, Any]:
    return {"jobs": {"randread": {**READS, "runtime_s": runtime_s}}}


@dataclass(frozen=True)
class Trial:
    """A fault that is injected before the run, or when its log matches ``when``."""

    fault: str
    storage: str
    profile: dict[str, Any]
    limit_s: float
    """Seconds of the run, from the fault to its end: limits of its commands, and what a busy host adds."""
    criterion: str = ""
    """The only one: others would be repeated on a busy host."""
    verdict: str = ""
    """Regular expression over ``subject: status: message`` of one of its verdicts."""
    healthy: str = "gpu-01"
    """Node that the fault blames nothing on; empty where none is left."""
    when: str = ""
    in_job: bool = False
    """Not before fio has run its job on the second client for a while."""
    printed: str = ""
    """Regular expression over the output, where the run refuses to begin."""
    status: tuple[int, ...] = (1, 2)


BUSY_S = 240
TRIALS = (
    Trial(
        "direct-ignored", "local", random_reads(10), BUSY_S,
        "local.randread", r"gpu-01: INVALID: .*\d+ % of \S+ [MG]B that it read came from the client's memory",
        healthy="gpu-02",
    ),
    Trial(
        "mount-covered", "nfs-tcp", random_reads(), BUSY_S,
        "nfs-tcp.randread", r"gpu-02: UNMEASURED: .*expected nfs4, actual ext4",
    ),
    *(
        Trial(
            "client-throttled", storage, {"jobs": {"read": STREAM}, "scale_out": ["read"]}, BUSY_S,
            "shared.fairness", r".*: FAIL: .*gpu-02",
        )
        for storage in ("nfs-tcp", "cephfs")
    ),
    *(
        Trial(
            fault, storage,
            {"jobs": {}, "integrity": {"block_bytes": 1048576, "iodepth": 4, "file_bytes": FILE}}, BUSY_S,
            "depth.integrity", rf"gpu-01: FAIL: .*/mnt/{storage}/rackproof-bench/gpu-01/rackproof\.0, offset \d+",
            healthy="",
        )
        for fault, storage in (
            ("byte-flipped", "nfs-tcp"), ("byte-flipped", "nfs-rdma"), ("byte-flipped-cephfs", "cephfs"),
        )
    ),
    Trial(
        "client-stopped", "nfs-tcp", random_reads(20), 20 + 120 + BUSY_S,
        "nfs-tcp.randread", r"gpu-02: UNMEASURED: .*its fio is stopped by a signal", when=WRITTEN,
    ),
    Trial(
        "node-frozen", "nfs-tcp", random_reads(20), 20 + 120 + 2 * BUSY_S,
        "nfs-tcp.randread", r"gpu-02: UNMEASURED: .*lost during the measurement", when=WRITTEN,
        in_job=True,
    ),
    Trial(
        "drive-full", "local", random_reads(), BUSY_S,
        printed=r"gpu-01: /mnt/local needs [\d,]+ B for the benchmarks' files, [\d,]+ B are free", status=(3,),
    ),
    Trial(
        "drive-full", "local", {"jobs": {"randread": {**READS, "file_bytes": 1 << 29}}}, BUSY_S,
        "local.randread", r"gpu-01: UNMEASURED: .*No space left on device", when="step storage/local/randread",
        healthy="gpu-02",
    ),
    Trial(
        "fio-absent", "local", random_reads(), BUSY_S,
        "local.randread", r"gpu-02: UNMEASURED: .*fio is not installed",
    ),
    Trial(
        "fio-hangs", "local", random_reads(), 2 * 150 + BUSY_S,
        "local.randread", r"gpu-01: UNMEASURED: .*not finished within", healthy="",
    ),
    Trial(
        "fio-crashes", "local", random_reads(), BUSY_S,
        "local.randread", r"gpu-01: UNMEASURED: .*fio on gpu-01", healthy="",
    ),
    Trial(
        "fio-version", "local", random_reads(), 150 + BUSY_S,
        "local.randread", r"gpu-02: UNMEASURED: .*client/server version mismatch.*install one version of fio",
    ),
)  # fmt: skip
FAULTS = {trial.fault for trial in TRIALS}


@pytest.fixture
def bench(tmp_path: Path, converged: Rack) -> Iterator[Callable[[Trial], Running]]:
    started: list[Running] = []

    def start(trial: Trial) -> Running:
        documents = [yaml.safe_load((ROOT / "architectures" / f"{name}.yaml").read_text()) for name in PUBLISHED]
        criteria = [criterion for document in documents for criterion in document["criteria"]]
        document = documents[0] | {"criteria": [one for one in criteria if one["id"] == trial.criterion]}
        document["metadata"]["id"] = "virtual-rack-fault"  # the published file may not be weakened under its own id
        document["profiles"] = {"fault": {"storage": {"storages": [trial.storage], **trial.profile}}}
        path = tmp_path / "fault.yaml"
        path.write_text(yaml.safe_dump(document))
        arguments = ("--architecture", str(path), "--profile", "fault")
        started.append(Running(tmp_path / "reports", arguments, ("bench", INVENTORY)))
        return started[-1]

    yield start
    for run in started:
        run.stop()


def lines_of(run: Running) -> list[str]:
    """Statuses of the criterion's verdicts."""
    return [f"{v['subject']}: {v['status']}: {v['message']}" for v in run.verdicts() if not v["id"].startswith("load.")]


@pytest.mark.usefixtures("_nothing_is_left_on")
@pytest.mark.parametrize(
    "trial", TRIALS, ids=lambda trial: f"{trial.fault}-{trial.storage}{'-later' if trial.when else ''}"
)
def test_a_fault_is_named_in_time_and_nothing_is_left(
    trial: Trial, bench: Callable[[Trial], Running], converged: Rack, lab: Lab
) -> None:
    before = traces(converged)
    if not trial.when:
        faults.inject(lab, trial.fault)
    began = time.monotonic()
    run = bench(trial)
    if trial.when:
        run.wait_for(trial.when)
        if trial.in_job:
            on_node(converged, "gpu-02", IN_JOB)
        faults.inject(lab, trial.fault)
        began = time.monotonic()
    status = run.ended()
    seconds = time.monotonic() - began
    faults.remove_all(lab)
    left = left_behind(converged, before, "gpu-02" if trial.fault == "node-frozen" else "")
    print(f"{trial.fault}: status {status} after {seconds:.0f} s, left {left}\n{run.text}")
    if trial.printed:
        assert re.search(trial.printed, run.text), run.text
    else:
        lines = lines_of(run)
        print("\n".join(lines))
        assert any(re.match(trial.verdict, line, re.DOTALL) for line in lines), lines
        blamed = [line for line in lines if trial.healthy and line.startswith(f"{trial.healthy}: FAIL")]
        assert blamed == []
    assert status in trial.status, run.text
    assert seconds < trial.limit_s
    assert left == {}
