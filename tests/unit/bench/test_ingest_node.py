"""The input pipeline, run for real on a small data set: what it counts, and that each damage is an error by name."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rackproof.bench.ingest.series import PIPELINE
from tests.unit.bench import node_programs

pytestmark = pytest.mark.few(5)

SPEC = {
    "format": "tfrecord", "samples": 24, "copies": 1, "per_shard": 4, "mean_bytes": 3000, "large": False, "seed": 7,
}  # fmt: skip
CONFIG = {
    "job": "j", "mountpoints": [], "data": "storage", "node": 0, "nodes": 1, "accelerators": 1, "workers": 2,
    "slots": 2, "batch": 4, "step_s": 0.05, "crop": 32, "warmup_s": 0, "seconds": 2, "preload": 8, "seed": 3,
    "arrivals": 0, "local": False,
}  # fmt: skip

LATE_S = 0.25


def dataset(folder: Path, form: str = "tfrecord") -> Path:
    text = json.dumps({**SPEC, "format": form, "folder": str(folder)})
    for action in ("state", "distinct", "seal"):
        more = ("0", "1", "1") if action == "distinct" else ()
        assert "error" not in node_programs.document("dataset_node.py", action, text, *more)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It is copied, never changed."""
    return dataset(tmp_path_factory.mktemp("dataset") / "photos")


@pytest.fixture
def photos(whole: Path, tmp_path: Path) -> Path:
    """Files with their times: the index has them."""
    return shutil.copytree(whole, tmp_path / "photos")


def ran(folder: Path, **changes: Any) -> dict[str, Any]:
    """The program's answer."""
    return node_programs.started("ingest_node.py", {**CONFIG, "folders": [str(folder)], **changes})


@pytest.mark.parametrize("form", ["tfrecord-gz", "tar", "files"])
def test_one_pass_reads_each_sample_of_every_format_once(tmp_path: Path, form: str) -> None:
    folder = dataset(tmp_path / form, form)
    answer = ran(folder, seconds=0)
    assert "error" not in answer, answer
    assert answer["pipeline"]["samples"] == 24
    assert answer["pipeline"]["bytes"] == answer["dataset"]["bytes"]
    assert answer["pipeline"]["passes"] == 1
    assert answer["busy_s"][0] == pytest.approx(0.05 * answer["steps"][0])
    assert answer["steps"] == [6]
    first, last = answer["series"][0], answer["series"][-1]
    assert (first[0] <= LATE_S, first[PIPELINE], last[PIPELINE]) == (True, 0, answer["dataset"]["bytes"])


def test_nodes_share_a_pass_without_a_sample_in_common(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "files", "files")
    answers = [ran(folder, seconds=0, nodes=2, node=node) for node in (0, 1)]
    assert [answer["pipeline"]["samples"] for answer in answers] == [12, 12]
    assert sum(answer["pipeline"]["bytes"] for answer in answers) == answers[0]["dataset"]["bytes"]


def test_accelerators_alone_are_always_busy(photos: Path) -> None:
    answer = ran(photos, data="synthetic")
    assert answer["busy_s"] == [pytest.approx(2.0)]
    assert answer["pipeline"]["bytes"] == 0


@pytest.mark.parametrize(
    ("damage", "cause"),
    [("cut", "changed since it was indexed: expected"), ("rewritten", "changed since it was indexed: it was written"),
     ("garbled", "rackproof.00000"), ("gone", "No such file"), ("unindexed", "no index")],
)  # fmt: skip
def test_no_damaged_data_set_gives_a_number(photos: Path, damage: str, cause: str) -> None:
    for path in sorted(photos.glob("rackproof.*")):
        whole, status = path.read_bytes(), path.stat()
        if damage == "cut":
            path.write_bytes(whole[:-100])
        elif damage == "rewritten":
            path.write_bytes(whole)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
        elif damage == "garbled":
            path.write_bytes(whole.replace(b"\xff\xd8\xff", b"\x00\x00\x00"))
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        elif damage == "gone":
            path.unlink()
    if damage == "unindexed":
        (photos / "index.json").unlink()
    answer = ran(photos, seconds=0)
    assert set(answer) == {"rackproof_ingest", "job", "error"}
    assert cause in answer["error"]
    if damage == "garbled":
        assert "not a JPEG that can be decoded" in answer["error"]


def test_a_worker_that_dies_is_named(photos: Path) -> None:
    with node_programs.starting(["j"], 1) as keys:
        config = json.dumps({**CONFIG, "folders": [str(photos)], "seconds": 60, **keys})
        program = subprocess.Popen(
            [sys.executable, "-I", node_programs.BENCH / "ingest_node.py", config], stdout=subprocess.PIPE
        )
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
        while program.poll() is None and len(children.read_text().split()) < 2:
            time.sleep(0.1)
        os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
        out, _ = program.communicate(timeout=200)
    assert program.returncode == 1
    assert "died: signal 9" in json.loads(out)["error"]


def test_a_run_that_is_ended_leaves_no_process(photos: Path) -> None:
    with node_programs.starting(["j"], 1) as keys:
        config = json.dumps({**CONFIG, "folders": [str(photos)], "seconds": 600, **keys})
        program = subprocess.Popen([sys.executable, "-I", node_programs.BENCH / "ingest_node.py", config])
        while not Path(keys["start_file"]).exists():
            time.sleep(0.1)
        while time.time() < float(Path(keys["start_file"]).read_text()) + 1:
            time.sleep(0.1)
        workers = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
        program.terminate()
        try:
            assert program.wait(60) == 1
        finally:
            program.kill()
    assert len(workers) == 2
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


@pytest.mark.parametrize(("statuses", "expected"), [((0, 0), 0), ((0, 1), 1), ((-9, 0), 9), ((0, -9), 9)])
def test_one_of_several_jobs_that_is_killed_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, statuses: tuple[int, ...], expected: int
) -> None:
    monkeypatch.syspath_prepend(str(node_programs.BENCH))
    import ingest_node

    left = [SimpleNamespace(wait=lambda status=status: status) for status in statuses]
    monkeypatch.setattr(ingest_node.subprocess, "Popen", lambda command: left.pop(0))
    assert ingest_node.main(["{}", "{}"]) == expected
    assert not left


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("not started: gpu-02: worker 1 of 2 died: signal 9", "not started: gpu-02: worker 1 of 2 died: signal 9"),
        ("1000.000", "it was told of the common start "),
        (None, "no common start within 1 s"),
    ],
)
def test_without_a_common_start_there_is_no_number(photos: Path, tmp_path: Path, told: str | None, why: str) -> None:
    start = tmp_path / "start"
    if told is not None:
        start.write_text(told)
    config = {**CONFIG, "folders": [str(photos)], "start_file": str(start), "start_limit_s": 1}
    answer = node_programs.document("ingest_node.py", json.dumps(config))
    assert set(answer) == {"rackproof_ingest", "job", "error"}
    assert why in answer["error"]
    assert answer["error"] == (tmp_path / "start.j").read_text()


def test_more_workers_than_shards_are_refused(photos: Path) -> None:
    assert "6 shards for 8 workers" in ran(photos, workers=8)["error"]


def test_a_run_that_ends_within_a_shard_reads_it_to_its_end(photos: Path) -> None:
    """Samples that were read ahead are read: bytes and samples belong together."""
    answer = ran(photos, data="undecoded", step_s=0.3, seconds=2)
    pipeline, dataset = answer["pipeline"], json.loads((photos / "index.json").read_text())
    sizes = {entry["bytes"] for entry in dataset["shards"]}
    assert pipeline["decode_s"] == 0
    assert (pipeline["samples"] + pipeline["drained"]) % 4 == 0
    assert min(sizes) / 4 <= pipeline["bytes"] / (pipeline["samples"] + pipeline["drained"]) <= max(sizes) / 4


def test_no_worker_reads_before_the_first_counters(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slow node reads its counters after the common start; what workers read meanwhile would be missing."""
    monkeypatch.syspath_prepend(str(node_programs.BENCH))
    import ingest_node  # type: ignore[import-not-found]

    plain = ingest_node.counters
    monkeypatch.setattr(ingest_node, "LATE_S", 60)

    def slow(own: Any) -> Any:
        told = Path(own["start_file"])
        if told.exists():
            time.sleep(max(0.0, float(told.read_text()) + 2 - time.time()))
        return plain(own)

    monkeypatch.setattr(ingest_node, "counters", slow)
    with node_programs.starting(["j"], 1) as keys:
        config = {**CONFIG, "folders": [str(photos)], "seconds": 0, **keys}
        assert ingest_node.main([json.dumps(config)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["series"][0][PIPELINE] == 0
    assert answer["pipeline"]["first_s"] > 2
