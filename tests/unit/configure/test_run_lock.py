"""One run at a time: the scripts run for real, in files of this machine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.configure.rollback import run
from rackproof.configure.rollback.journal import Journal, value_line
from rackproof.configure.run_lock import (
    LEFT_S,
    LIMIT_S,
    Holder,
    held_command,
    left_in,
    parse_held,
    refusal,
    take_script,
)
from tests.unit.shell import sh

FIRST = Holder("20261121T180000-aaaa", "alice", "control01")
SECOND = Holder("20261121T181500-bbbb", "bob", "control02")


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "run/rackproof/run"


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shell that the kernel knows as sshd-session: what a connection's process is called."""
    path = tmp_path_factory.mktemp("bin") / "sshd-session"
    shutil.copy(shutil.which("dash") or "/bin/sh", path)
    return path


@contextmanager
def connection(sshd: Path, holder: Holder, lock: Path, take_over: str | None = None) -> Iterator[int]:
    """A connection that has run the script, and stays open. Yields the script's exit status."""
    process = subprocess.Popen(
        [str(sshd), "-c", 'sh -c "$1"; echo $?; read -r _', "sshd-session", take_script(holder, take_over, str(lock))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.communicate("\n", timeout=30)


def take(
    sshd: Path, holder: Holder, lock: Path, take_over: str | None = None, shell: str = "sh"
) -> subprocess.CompletedProcess[str]:
    """Over a connection that is closed again at once."""
    script = take_script(holder, take_over, str(lock))
    command = [str(sshd), "-c", f'{shell} -c "$1"; exit $?', "sshd-session", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def held(lock: Path) -> Holder | None:
    done = sh(held_command(str(lock)), check=True)
    return parse_held(done.stdout.splitlines())


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_a_second_run_is_refused_while_the_first_is_connected(sshd: Path, lock: Path, shell: str) -> None:
    assert held(lock) is None
    with connection(sshd, FIRST, lock) as status:
        assert status == 0
        holder = held(lock)
        assert holder is not None
        assert (holder.run, holder.who, holder.host) == (FIRST.run, "alice", "control01")
        before = lock.read_text()
        done = take(sshd, SECOND, lock, shell=shell)
        assert done.returncode == 1
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"run {FIRST.run} of alice on control01 works on this node since 20")
        assert line.endswith(f"--data take_over={FIRST.run}")
        assert lock.read_text() == before
    assert held(lock) is None  # released by the end of the process
    assert take(sshd, SECOND, lock, shell=shell).returncode == 0


def test_a_run_takes_the_node_as_often_as_it_likes(sshd: Path, lock: Path) -> None:
    with connection(sshd, FIRST, lock) as status:
        assert status == 0
        since = held(lock)
        with connection(sshd, FIRST, lock) as again:  # another connection of the same run
            assert again == 0
            assert held(lock) == since


def test_a_node_is_taken_from_the_run_that_is_named_only(sshd: Path, lock: Path) -> None:
    with connection(sshd, FIRST, lock):
        assert take(sshd, SECOND, lock, take_over="20200101T000000-0000").returncode == 1
        with connection(sshd, SECOND, lock, take_over=FIRST.run) as status:
            assert status == 0
            # The run that lost the node changes nothing any more.
            done = take(sshd, FIRST, lock)
            assert done.returncode == 1
            assert SECOND.run in done.stderr


def test_a_connection_that_is_killed_holds_nothing(sshd: Path, lock: Path) -> None:
    command = 'sh -c "$1"; echo $?; read -r _'
    process = subprocess.Popen(
        [str(sshd), "-c", command, "sshd-session", take_script(FIRST, None, str(lock))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "0\n"
    process.kill()
    process.wait(300)
    process.stdin.close()
    process.stdout.close()
    assert held(lock) is None


def test_a_command_that_an_interrupted_run_left_is_waited_for(sshd: Path, lock: Path) -> None:
    script = take_script(FIRST, None, str(lock)) + "\necho $$; exec sleep 300"
    process = subprocess.Popen(
        [str(sshd), "-c", 'sh -c "$1"; :', "sshd-session", script], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    left = int(process.stdout.readline())
    try:
        process.kill()
        process.wait(300)
        assert held(lock) is None
        done = take(sshd, SECOND, lock)
        assert done.returncode == 1
        assert left_in(done.stderr)
        assert refusal(done.stderr) == done.stderr.strip()
        assert f"run {FIRST.run} of alice on control01 has ended" in done.stderr
        assert f"(process {left})" in done.stderr
    finally:
        os.kill(left, signal.SIGKILL)
        process.stdout.close()
    while take(sshd, SECOND, lock).returncode:  # until init has reaped it
        time.sleep(0.1)


@pytest.mark.parametrize(("times", "taken"), [(3, True), (10_000, False)])
def test_a_deploy_waits_for_what_the_one_before_left(monkeypatch: pytest.MonkeyPatch, times: int, taken: bool) -> None:
    left = "run r1 of ann on desk has ended and left a command that still runs (process 42), so nothing was changed; x"
    answers = iter([(False, SimpleNamespace(output=f"{left}\n"))] * times + [(True, SimpleNamespace(output=""))])
    logged: list[str] = []
    clock = iter(range(0, 1_000_000, 6))
    node = SimpleNamespace(
        current_op_global_arguments=None, data={}, run_shell_command=lambda *_, **__: next(answers),
        log=lambda text, _: logged.append(text),
    )  # fmt: skip
    monkeypatch.setattr(run, "host", node)
    monkeypatch.setattr(run, "_holder", lambda: SECOND)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    assert run.take_node() == (None if taken else left)
    assert set(logged) == {"waiting: run r1 of ann on desk has ended and left a command that still runs (process 42)"}
    assert 2 <= len(logged) <= LEFT_S / 10


def test_another_process_of_the_same_number_is_another_connection(sshd: Path, lock: Path) -> None:
    lock.parent.mkdir(parents=True)
    lock.write_text(f"run=r1\nwho=a\nfrom=b\nsince=c\npid={os.getpid()}\nbegun=1\n")
    assert held(lock) is None


@pytest.mark.parametrize(("age_s", "holds"), [(0, True), (LIMIT_S - 60, True), (LIMIT_S + 60, False)])
def test_without_a_connection_it_holds_until_it_is_old(lock: Path, age_s: int, holds: bool) -> None:
    lock.parent.mkdir(parents=True)
    lock.write_text("run=r1\nwho=a\nfrom=b\nsince=c\n")
    then = time.time() - age_s
    os.utime(lock, (then, then))
    assert (held(lock) == Holder("r1", "a", "b", "c")) is holds


@pytest.mark.parametrize("content", ["", "\n", "run=\n", "garbage", "pid=1\nbegun=2\n"])
def test_half_a_file_holds_nothing(sshd: Path, lock: Path, content: str) -> None:
    lock.parent.mkdir(parents=True)
    lock.write_text(content)
    assert held(lock) is None
    assert take(sshd, FIRST, lock).returncode == 0
    assert f"run={FIRST.run}\n" in lock.read_text()


def test_of_two_that_come_at_once_one_gets_it(sshd: Path, lock: Path) -> None:
    holders = [Holder(f"r{number}", "a", "b") for number in range(8)]
    processes = [
        subprocess.Popen(
            [str(sshd), "-c", 'sh -c "$1" 2>/dev/null; echo $?; read -r _', "s", take_script(holder, None, str(lock))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for holder in holders
    ]  # fmt: skip
    statuses = []
    for process in processes:
        assert process.stdout is not None
        statuses.append(process.stdout.readline())
    for process in processes:
        process.communicate("\n", timeout=30)
    assert sorted(statuses) == ["0\n"] + ["1\n"] * 7


def test_what_cannot_be_locked_is_not_changed(sshd: Path, lock: Path) -> None:
    lock.parent.parent.mkdir(parents=True)
    lock.parent.write_text("a file where the folder should be")
    assert take(sshd, FIRST, lock).returncode != 0


@given(st.text(max_size=20), st.text(max_size=20))
def test_names_are_words_and_nothing_else(who: str, host: str) -> None:
    script = take_script(Holder("r1", who, host), None, "/x")
    (line,) = [line for line in script.splitlines() if line.startswith("rp_lock /x r1 ")]
    assert re.fullmatch(r"rp_lock /x r1( ([\w.@:+-]+|'')){2} '' \|\| exit 1", line, re.ASCII)


def test_unexpected_answers_are_none() -> None:
    assert parse_held([]) is None
    for lines in (["held"], ["held a b c"], ["x a b c d"], ["held a b c d", "more"]):
        with pytest.raises(ValueError, match="the holder of the run lock"):
            parse_held(lines)


def test_a_journal_keeps_and_changes_nothing_on_a_node_that_another_run_has(
    sshd: Path, lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value, kept = tmp_path / "value", tmp_path / "kept"
    value.write_text("old\n")
    monkeypatch.setattr("rackproof.configure.rollback.journal.take_script", lambda h, t: take_script(h, t, str(lock)))
    journal = Journal(SECOND.run, root=str(kept), holder=SECOND)
    script = journal.before([value_line(str(value), "new")], f"echo new >{value}")
    with connection(sshd, FIRST, lock):
        command = [str(sshd), "-c", 'sh -c "$1"; exit $?', "sshd-session", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert FIRST.run in done.stderr
        assert value.read_text() == "old\n"
        assert not kept.exists()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, value.read_text()) == (0, "new\n")
    assert [path.name for path in kept.iterdir()] == [f"000001.{SECOND.run}"]
