"""DCGM's daemon starts the program of a diagnosis: a dcgmi that is killed must not leave it on the GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackproof.bench.gpu import diagnosis_end
from rackproof.bench.gpu.diagnosis_end import LISTED, ended_diagnoses, ending
from rackproof.remote.command import CommandResult, bounded
from tests.unit.fakes import lab_rack, reply, scripted

NVVS = f"nvvs-{os.getpid()}"
DAEMON = """
import subprocess, sys
running = []
for line in sys.stdin:
    if line == "diagnose\\n":
        running.append(subprocess.Popen([sys.argv[1]], start_new_session=True))
        print(running[-1].pid, flush=True)
    else:
        running[-1].terminate()
"""
PROGRAM = """#!{python}
import signal, time
{prepare}
time.sleep(300)
"""


class Daemon:
    """A daemon that starts a program when it is asked to, and never waits for its end."""

    def __init__(self, folder: Path, prepare: str = "") -> None:
        (folder / NVVS).write_text(PROGRAM.format(python=sys.executable, prepare=prepare))
        (folder / NVVS).chmod(0o755)
        self._process = subprocess.Popen(
            [sys.executable, "-c", DAEMON, str(folder / NVVS)], stdin=-1, stdout=-1, text=True
        )
        self.pids: list[int] = []

    def ask(self, what: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()

    def start(self) -> int:
        """Start one; returns its process id once it runs under its name."""
        self.ask("diagnose")
        assert self._process.stdout is not None
        pid = int(self._process.stdout.readline())
        self.pids.append(pid)
        until = time.monotonic() + 30
        while Path(f"/proc/{pid}/comm").read_text().strip() != NVVS and time.monotonic() < until:
            time.sleep(0.02)
        return pid

    def close(self) -> None:
        for pid in filter(runs, self.pids):
            os.kill(pid, 9)
        self._process.kill()
        self._process.communicate()


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path)
    yield made
    made.close()


def end(*before: int, patience_s: int = 0) -> subprocess.CompletedProcess[str]:
    command = ending([str(pid) for pid in before], patience_s, NVVS)
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)


def test_a_program_that_outlives_dcgmi_is_ended_and_named(daemon: Daemon, tmp_path: Path) -> None:
    """``dcgmi`` reaches its limit, and the daemon does not end what it started."""
    other = daemon.start()
    pid = daemon.start()
    (tmp_path / "dcgmi").write_text("#!/bin/sh\nexec sleep 300\n")
    (tmp_path / "dcgmi").chmod(0o755)
    late = subprocess.run(["sh", "-c", bounded(f"{tmp_path}/dcgmi diag -r memtest -j", 0.2)], check=False)
    assert late.returncode == 124
    assert runs(pid)
    done = end(other)
    assert (done.returncode, done.stdout) == (
        0,
        f"DCGM's {NVVS} (process {pid}) still ran after dcgmi, and was ended\n",
    )
    assert not runs(pid)
    assert runs(other)  # it ran before


def test_one_that_the_daemon_ends_gets_no_signal(daemon: Daemon) -> None:
    pid = daemon.start()
    daemon.ask("end")
    done = end(patience_s=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not runs(pid)
    assert end().stdout == ""


def test_one_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    made = Daemon(tmp_path, f"signal.signal(signal.SIGTERM, signal.SIG_IGN); open({str(tmp_path / 'ready')!r}, 'w')")
    try:
        pid = made.start()
        while not (tmp_path / "ready").exists():
            time.sleep(0.02)
        assert end().returncode == 0
        assert not runs(pid)
    finally:
        made.close()


LEFT = "DCGM's nvvs (process 47) still ran after dcgmi, and was ended"


def ended(folder: Path, listed: CommandResult, last: CommandResult) -> tuple[list[str], list[str]]:
    """Lines for the user, and the commands that end programs."""
    told: list[str] = []

    def answer(node: str, command: str) -> CommandResult | None:
        return listed if command == LISTED else last

    with scripted(folder, answer, lab_rack()) as session:
        with ended_diagnoses(session, ["gpu-01"], told.append):
            pass
        asked = session.fleet.asked  # type: ignore[attr-defined]
    return told, [command for _, command in asked if command != LISTED]


def test_the_run_tells_what_it_ended_and_leaves_what_ran_before(tmp_path: Path) -> None:
    listed = reply("gpu-01", LISTED, "    5\n 4711\n")
    told, commands = ended(tmp_path, listed, reply("gpu-01", "", f"{LEFT}\n"))
    assert told == [f"gpu-01: {LEFT}"]
    assert commands == [ending(["5", "4711"], diagnosis_end.PATIENCE_S)]


@pytest.mark.parametrize(
    "listed",
    [
        reply("gpu-01", LISTED, rc=127, err="sh: ps: not found"),
        reply("gpu-01", LISTED, "PID\n"),
        reply("gpu-01", LISTED, rc=None, error="connection lost"),
    ],
)
def test_nothing_is_ended_where_it_is_unknown_what_ran_before(tmp_path: Path, listed: CommandResult) -> None:
    assert ended(tmp_path, listed, reply("gpu-01", ""))[1] == []


def test_one_that_may_still_run_is_told(tmp_path: Path) -> None:
    lost = reply("gpu-01", "", rc=None, error="connection lost")
    assert ended(tmp_path, reply("gpu-01", LISTED, rc=1), lost)[0] == [
        "gpu-01: DCGM's nvvs may still run: connection lost"
    ]


def test_after_an_interrupt_nothing_waits_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned: list[str] = []
    with scripted(tmp_path, lambda node, command: None, lab_rack()) as session:
        kind = type(session.fleet["gpu-01"])
        monkeypatch.setattr(kind, "clean_up", lambda self, command: cleaned.append(command), raising=False)
        with ended_diagnoses(session, ["gpu-01"], print):
            monkeypatch.setattr(diagnosis_end.STOPPING, "is_set", lambda: True)
    assert cleaned == [ending([], diagnosis_end.SHORT_S)]
