"""The run lock of a run that validates or measures: who is refused, and with which words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rackproof.configure.run_lock import Holder, refusal, take_script
from rackproof.errors import RunError
from rackproof.remote.command import CommandResult
from rackproof.run import rack_lock
from rackproof.run.rack_lock import take_rack
from tests.unit.fakes import FakeFleet, lab_rack, reply

GPU = ("gpu-01", "gpu-02")
HELD = "run 20261122-100000-lab of ann on desk works on this node since 2026-11-22T10:00:00Z, so nothing was changed; x"

LEFT = "run r1 of ann on desk has ended and left a command that still runs (process 42), so nothing was changed; wait"


def test_another_run_is_refused_with_the_words_of_the_lock() -> None:
    def answer(node: str, command: str) -> CommandResult | None:
        return reply(node, command, rc=1, err=HELD) if node == "gpu-02" else None

    with pytest.raises(RunError, match="gpu-02: run 20261122-100000-lab of ann on desk works on this node since"):
        take_rack(FakeFleet(lab_rack(), answer), GPU, "mine", lambda line: None)  # type: ignore[arg-type]


def test_the_connections_of_a_runs_own_deploy_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    left = [HELD, HELD]

    def answer(node: str, command: str) -> CommandResult | None:
        return reply(node, command, rc=1, err=left.pop()) if node == "gpu-02" and left else None

    fleet = FakeFleet(lab_rack(), answer)
    take_rack(fleet, GPU, "mine", lambda line: None, wait_s=60)  # type: ignore[arg-type]
    assert [node for node, _ in fleet.asked] == ["gpu-01", "gpu-02", "gpu-02", "gpu-02"]


def test_a_command_that_an_interrupted_deploy_left_is_waited_for_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 100_000, 4))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    left = [LEFT] * 5
    lines: list[str] = []

    def answer(node: str, command: str) -> CommandResult | None:
        return reply(node, command, rc=1, err=left.pop()) if node == "gpu-02" and left else None

    take_rack(FakeFleet(lab_rack(), answer), GPU, "mine", lines.append)  # type: ignore[arg-type]
    assert left == []
    assert lines == [f"waiting for gpu-02: {LEFT.partition(', so ')[0]}"] * 2


def test_waiting_for_a_command_that_does_not_end_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 100_000, 600))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    fleet = FakeFleet(lab_rack(), lambda node, command: reply(node, command, rc=1, err=LEFT))
    with pytest.raises(RunError, match="left a command that still runs"):
        take_rack(fleet, GPU, "mine", lambda line: None)  # type: ignore[arg-type]
    assert len(fleet.asked) > len(GPU)


def test_a_node_that_cannot_be_locked_is_named() -> None:
    lines: list[str] = []
    fleet = FakeFleet(lab_rack(), lambda node, command: reply(node, command, rc=1, err="mkdir: Permission denied"))
    take_rack(fleet, GPU, "mine", lines.append)  # type: ignore[arg-type]
    assert lines == [
        "gpu-[01-02]: without a run lock: the login may not do this: mkdir: Permission denied (exit status 1)"
    ]


def test_the_words_of_the_script_are_recognised_and_name_the_option(tmp_path: Path) -> None:
    lock = str(tmp_path / "run")
    scripts = [take_script(Holder(run, "ann", "desk"), None, lock, rack_lock.OPTION) for run in ("r1", "r2")]
    # A lock lasts as long as the process that took it: both scripts run in one.
    both = "import subprocess, sys; sys.exit([subprocess.run(['sh', '-c', s]).returncode for s in sys.argv[1:]][-1])"
    done = subprocess.run(
        [sys.executable, "-c", both, *scripts], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert refusal(done.stderr) is not None
    assert done.stderr.strip().endswith("take the node from it: --take-over r1")
