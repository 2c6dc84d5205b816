"""From a rack to a certificate, through what can go wrong on the way."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackproof import architectures
from rackproof.core.evidence import CheckOutcome, Kind, Record
from rackproof.core.judging.again import starved_steps
from rackproof.core.rack import Rack
from rackproof.evidence.store import read_records
from rackproof.lab.rack import Lab, UpOptions
from rackproof.remote.fleet import Fleet
from rackproof.report.document import plain
from tests.conftest import Empty
from tests.lab.conftest import INVENTORY, ROOT, Command

ARCHITECTURE = ROOT / "architectures" / "virtual-rack.yaml"
INSTALLED_INVENTORY = "rack.py"
FILES = (
    "evidence.jsonl",
    "verdicts.json",
    "certificate.json",
    "certificate.html",
    "junit.xml",
    "metrics.prom",
    "run.log",
)


def verdicts(folder: Path) -> list[dict[str, Any]]:
    judged: list[dict[str, Any]] = plain(json.loads((folder / "verdicts.json").read_text()))["verdicts"]
    return judged


def the_run(output: Path) -> Path:
    (folder,) = output.iterdir()
    return folder


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The same architecture with a benchmark of one storage and two workloads, long enough to be interrupted."""
    document = yaml.safe_load(ARCHITECTURE.read_text())
    document["metadata"]["id"] = "virtual-rack-small"  # the published file may not be weakened under its own id
    lab = document["profiles"]["lab"]
    jobs = lab["storage"]["jobs"]
    lab.clear()
    lab["storage"] = {
        "storages": ["local"],
        "jobs": {"write": {**jobs["write"], "runtime_s": 12}, "read": {**jobs["read"], "runtime_s": 3}},
    }
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def repeated_steps(records: Sequence[Record]) -> list[str]:
    """Steps that were executed again although no starved machine had spoilt them.

    Which steps are spoilt is decided for several at once: one of them may be whole again through another, whose number
    its bar is a share of.
    """
    architecture = architectures.load("virtual-rack").model
    ends = [index for index, record in enumerate(records) if record.kind is Kind.STEP]
    finished: set[str] = set()
    spoilt: set[str] = set()
    repeated = []
    for before, end in pairwise([-1, *ends]):
        step = records[end].body["step"]
        spoilt.update(starved_steps(architecture, records[: before + 1]))
        if step in finished and step not in spoilt:
            repeated.append(step)
        finished.add(step)
        spoilt.discard(step)
    return repeated


def inventory_text(rack: Rack) -> str:
    """A Python inventory of the rack that reads no other file: with the data of its groups, and absolute paths."""
    groups: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for node in rack.nodes:
        (group,) = node.groups
        groups.setdefault(group, []).append((node.name, dict(node.data)))
    return "".join(f"{group} = {members!r}\n" for group, members in groups.items())


def test_an_installed_wheels_certify_is_killed_continues_and_ends_with_a_certificate(
    converged: Rack, empty: Empty
) -> None:
    """The whole path from an empty folder with an inventory: killed after its first measurements, then resumed."""
    (empty.folder / INSTALLED_INVENTORY).write_text(inventory_text(converged))
    output = empty.folder / "reports"
    certify = ("rackproof", "certify", INSTALLED_INVENTORY)
    process = empty.start(*certify)
    deadline = time.monotonic() + 1500
    steps_done: list[str] = []
    while len(steps_done) < 2 and time.monotonic() < deadline:
        time.sleep(0.5)
        assert process.poll() is None
        evidence = list(output.glob("*/evidence.jsonl"))
        steps_done = (
            [r.body["step"] for r in read_records(evidence[0].parent) if r.kind is Kind.STEP] if evidence else []
        )
    process.kill()
    process.wait()
    folder = the_run(output)
    before = read_records(folder)

    resumed = empty(*certify, "--resume", folder.name, timeout=2400)
    certificate = plain(json.loads((folder / "certificate.json").read_text()))
    open_verdicts = [v for v in certificate["verdicts"] if v["required"] and v["status"] not in ("PASS", "WARN")]
    # Of a host that other programs keep busy, numbers below their bar are invalid; nothing else may be wrong.
    wrong = [
        f"{v['id']} on {v['subject']}: {v['status']}, {v['message']}"
        for v in open_verdicts
        if v["status"] != "INVALID" or "starved" not in v["message"]
    ]
    assert wrong == []
    assert resumed.returncode == (2 if open_verdicts else 0), resumed.stdout + resumed.stderr
    after = read_records(folder)
    assert after[: len(before)] == before
    assert repeated_steps(after) == []
    assert [r.body["stage"] for r in after if r.kind is Kind.STAGE and r.body["event"] == "begin"].count("deploy") == 1
    checks = [r.body for r in after if r.kind is Kind.CHECK]
    assert {check["node"] for check in checks} == {node.name for node in converged.nodes}
    assert [check for check in checks if check["outcome"] != CheckOutcome.PASSED.value] == []
    for name in FILES:
        assert (folder / name).stat().st_size > 0, name
    assert certificate["outcome"] == ("INCOMPLETE" if open_verdicts else "CERTIFIED")
    assert certificate["simulated"]
    assert "simulated" in (folder / "certificate.html").read_text()

    judged = empty("rackproof", "judge", str(folder), timeout=300)
    assert judged.returncode == resumed.returncode
    assert plain(json.loads((folder / "certificate.json").read_text())) == certificate


@pytest.fixture
def fio_is_gone(converged: Rack) -> Iterator[None]:
    with Fleet(converged) as fleet:
        assert fleet["gpu-02"].run("mv /usr/bin/fio /usr/bin/fio.away", 300).ok
        yield
        assert fleet["gpu-02"].run("mv /usr/bin/fio.away /usr/bin/fio", 300).ok


def test_a_node_without_fio_is_unmeasured_and_the_other_is_measured(
    fio_is_gone: None, small: Path, tmp_path: Path, command: Command
) -> None:
    output = tmp_path / "reports"
    command("rackproof", "bench", INVENTORY, "--architecture", str(small), "--output", str(output), "--quiet")
    records = read_records(the_run(output))
    measurements = {(r.body["metric"], tuple(r.body["members"])): r.body for r in records if r.kind is Kind.MEASUREMENT}
    assert measurements["storage.read_bandwidth", ("gpu-01",)]["samples"]
    lost = measurements["storage.read_bandwidth", ("gpu-02",)]
    assert lost["samples"] == []
    assert "fio" in lost["reason"]


@pytest.mark.long
def test_a_node_killed_in_the_middle_of_a_benchmark_is_unmeasured_and_the_others_finish(
    lab: Lab, converged: Rack, small: Path, tmp_path: Path
) -> None:
    output = tmp_path / "reports"
    arguments = [
        sys.executable,
        "-m",
        "rackproof",
        "certify",
        INVENTORY,
        "--no-deploy",
        "--architecture",
        str(small),
        "--output",
        str(output),
    ]
    process = subprocess.Popen(
        arguments, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        deadline = time.monotonic() + 900
        while time.monotonic() < deadline and process.poll() is None:
            logs = list(output.glob("*/run.log"))
            if logs and "step storage/local/write" in logs[0].read_text():
                time.sleep(12)  # into the measurement
                break
            time.sleep(0.5)
        lab.kill("gpu-02")
        out, _ = process.communicate(timeout=1500)
    finally:
        lab.up(UpOptions())
    assert process.returncode == 2, out
    folder = the_run(output)
    by = {(v["id"], v["subject"]): v["status"] for v in verdicts(folder) if v["metric"] == "storage.write_bandwidth"}
    records = read_records(folder)
    measurements = {(r.body["metric"], tuple(r.body["members"])): r.body for r in records if r.kind is Kind.MEASUREMENT}
    assert measurements["storage.write_bandwidth", ("gpu-01",)]["samples"]
    assert measurements["storage.read_bandwidth", ("gpu-01",)]["samples"]
    assert not measurements["storage.write_bandwidth", ("gpu-02",)]["samples"]
    assert "FAIL" not in {status for (_, subject), status in by.items() if subject == "gpu-02"}
