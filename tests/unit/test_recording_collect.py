"""Reading in one round trip; a shell on this machine plays every node."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.remote import batch, collect
from rackproof.remote.batch import script, unpack
from rackproof.remote.collect import PATIENCE, QuestionsNeeded, RecordingReader, fetch, gather
from rackproof.remote.command import GRACE_S, OUTPUT_LIMIT, CommandResult, bounded, timed_out
from tests.unit.shell import executable

pytestmark = pytest.mark.few(8)

TOLD = """printf 'a\\0b\\377\\n'; echo complaint >&2; exit 3"""


class Shell:
    """A connection to this machine; same wrapping as over ssh."""

    def __init__(self, name: str) -> None:
        self.node = type("Node", (), {"name": name})()
        self.commands: list[str] = []

    def run(self, command: str, timeout_s: float, stdin: bytes | None = None) -> CommandResult:
        self.commands.append(command)
        began = time.monotonic()
        result = subprocess.run(
            ["sh", "-c", bounded(command, timeout_s)], input=stdin or b"", capture_output=True, timeout=300, check=False
        )
        elapsed = time.monotonic() - began
        if timed_out(result.returncode):
            error = f"not finished within {timeout_s:g} s"
            return CommandResult(self.node.name, command, None, result.stdout, result.stderr, elapsed, timeout_s, error)
        return CommandResult(
            self.node.name, command, result.returncode, result.stdout, result.stderr, elapsed, timeout_s
        )


class Unreachable(Shell):
    def run(self, command: str, timeout_s: float, stdin: bytes | None = None) -> CommandResult:
        self.commands.append(command)
        return CommandResult(self.node.name, command, None, timeout_s=timeout_s, error="no connection within 20 s")


class Shells:
    """Fleet's ``each`` over such connections."""

    def __init__(self, *connections: Shell) -> None:
        self.connections = {connection.node.name: connection for connection in connections}

    def __getitem__(self, node: str) -> Shell:
        return self.connections[node]

    def each(self, nodes: Iterable[str], action: Callable[[Any], Any], what: str = "") -> dict[str, Any]:
        return {name: action(self.connections[name]) for name in nodes}


def facts(result: CommandResult) -> tuple[object, ...]:
    """Everything that must not depend on the way of reading."""
    return result.node, result.command, result.rc, result.stdout, result.stderr, result.timeout_s, result.error


COMMANDS = [
    "true",
    TOLD,
    "cat",  # reads its input to the end: there is none
    "no-such-program --version",
    'echo "$LC_ALL" \'quoted\' "$((1 + 1))"',
    "printf 'no newline'",
    "printf 'line\\n\\n\\nline\\n'",
    "echo | cat -A; exit 1",
    "head -c 300000 /dev/zero",
    "kill -TERM $$",
]


def test_a_batch_gives_what_single_commands_give() -> None:
    shell = Shell("gpu-01")
    single = [facts(shell.run(command, 10)) for command in COMMANDS]
    answer = shell.run("sh -s", 60, script(COMMANDS, 10))
    assert [facts(result) for result in unpack("gpu-01", COMMANDS, 10, answer.stdout)] == single


def on_a_server(text: bytes, loadavg: str = "/dev/null") -> bytes:
    """The script of a node with 64 processors, whatever this machine has and is busy with."""
    assert b"/proc/loadavg" in text
    assert b"getconf _NPROCESSORS_ONLN" in text
    return text.replace(b"/proc/loadavg", loadavg.encode()).replace(b"getconf _NPROCESSORS_ONLN", b"echo 64")


def ask(commands: list[str], timeout_s: float = 60, shell: str = "sh") -> dict[str, CommandResult]:
    text = on_a_server(script(commands, timeout_s))
    answer = subprocess.run([shell, "-s"], input=text, capture_output=True, check=False)
    return {result.command: result for result in unpack("gpu-01", commands, timeout_s, answer.stdout)}


LIMIT_S = 5
"""Long enough for the quick commands of a slow host."""
OVER = f"not finished within {LIMIT_S} s"
QUICK = [f"echo quick; : {k}" for k in range(9)]


def test_commands_that_hang_cost_only_their_own_time() -> None:
    hanging = ["sleep 600", "sleep 601"]
    began = time.monotonic()
    results = ask([*hanging, *QUICK], LIMIT_S)
    assert time.monotonic() - began < 300
    for command in hanging:
        assert results[command].error == OVER
        assert results[command].rc is None
        assert results[command].elapsed_s >= LIMIT_S
    assert [results[command].stdout for command in QUICK] == [b"quick\n"] * 9


def test_a_program_that_hung_once_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "vendor-smi", "sleep 600")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(batch, "MOST_WORKERS", 2)
    hanging = [f"timeout -k 2 300 vendor-smi -q {k}" for k in range(8)]
    began = time.monotonic()
    results = ask([*hanging, *QUICK], LIMIT_S)
    assert time.monotonic() - began < 300
    errors = [results[command].error for command in hanging]
    assert errors[0] == OVER
    assert errors[-1] == "vendor-smi is not asked again: it did not finish before"
    assert set(errors) == {errors[0], errors[-1]}
    assert [results[command].stdout for command in QUICK] == [b"quick\n"] * 9


def waiting(folder: Path, number: int, company: int) -> str:
    """A command that ends when ``company`` of its kind have been started."""
    return f"mkdir {folder}/{number}; until [ $(ls {folder} | grep -c '^[0-9]') -ge {company} ]; do sleep 0.2; done"


def test_many_that_hang_at_once_do_not_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "MOMENT_S", 1)
    commands = [waiting(tmp_path, number, 6) for number in range(6)]
    results = ask([*commands, *QUICK], 120)
    assert [results[command].rc for command in [*commands, *QUICK]] == [0] * 15


def test_a_worker_starts_beside_slow_commands_if_a_processor_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "MOMENT_S", 1)
    (tmp_path / "loadavg").write_text("0.50 0.4 0.3 1/212 5\n")
    commands = [waiting(tmp_path, number, 4) for number in range(4)]
    text = on_a_server(script(commands, 120), str(tmp_path / "loadavg"))
    answer = subprocess.run(["sh", "-s"], input=text, capture_output=True, check=True)
    assert [result.rc for result in unpack("gpu-01", commands, 120, answer.stdout)] == [0] * 4


def test_no_worker_starts_beside_slow_commands_if_all_processors_are_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each late command starts a worker, and the workers delay all commands."""
    monkeypatch.setattr(batch, "MOMENT_S", 1)
    (tmp_path / "loadavg").write_text("70.20 6.79 4.26 66/212 5\n")
    begun = f"ls {tmp_path} | grep -c '^[0-9]'"
    commands = [*(f"mkdir {tmp_path}/{k}; sleep 4; {begun}; rmdir {tmp_path}/{k}" for k in range(2)), f": 2; {begun}"]
    text = on_a_server(script(commands, 120), str(tmp_path / "loadavg"))
    answer = subprocess.run(["sh", "-s"], input=text, capture_output=True, check=True)
    first, second, third = (int(result.stdout) for result in unpack("gpu-01", commands, 120, answer.stdout))
    assert max(first, second) == 2
    assert third < 2, "it was started before one of the first two had ended"


def test_a_command_that_cannot_be_ended_is_left_behind() -> None:
    stuck = "trap '' TERM; i=0; while [ $i -lt 60 ]; do i=$((i + 1)); sleep 1; done"
    began = time.monotonic()
    results = ask(["echo a", stuck, *QUICK], LIMIT_S)
    assert time.monotonic() - began < 60
    assert results[stuck].error == OVER
    assert all(results[command].rc == 0 for command in ["echo a", *QUICK])


def test_a_command_that_takes_its_shell_down_is_the_only_one_without_an_answer() -> None:
    bad = ["kill 0", "kill -9 $PPID"]
    results = ask([QUICK[0], *bad, *QUICK[1:]])
    assert [results[command].error for command in bad] == ["the command ended its own shell"] * 2
    assert all(results[command].rc == 0 for command in QUICK)


def test_output_without_an_end_costs_neither_space_nor_the_other_answers() -> None:
    endless = ["yes", "yes >&2", f"head -c {batch.STREAM_LIMIT + 1} /dev/zero"]
    commands = [*endless, *QUICK, f"head -c {batch.STREAM_LIMIT} /dev/zero"]
    answer = subprocess.run(["sh", "-s"], input=script(commands, 60), capture_output=True, check=False).stdout
    results = {result.command: result for result in unpack("gpu-01", commands, 60, answer)}
    assert len(answer) < batch.STREAM_LIMIT + 10_000
    for command in endless:
        assert results[command].rc is None
        assert results[command].error == f"printed more than {batch.STREAM_LIMIT} bytes"
        assert results[command].stdout == b""
    assert len(results[commands[-1]].stdout) == batch.STREAM_LIMIT
    assert all(results[command].rc == 0 for command in QUICK)


def test_an_answer_that_is_too_long_is_given_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "ANSWER_LIMIT", 1000)
    commands = [f"head -c 400 /dev/zero; : {k}" for k in range(4)]
    results = ask(commands)
    assert list(results) == commands[:2]  # the rest is asked again


def test_a_node_without_room_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "PLACES", ("/proc", "/no/such/place"))
    result = subprocess.run(["sh", "-s"], input=script(["echo a"], 5), capture_output=True, check=False)
    assert (result.returncode, result.stdout) == (1, b"")
    assert result.stderr == b"no room for answers in /proc /no/such/place\n"


def test_a_batch_without_room_for_an_exit_status_is_discarded() -> None:
    """A full disk cuts outputs off, and the commands need not notice."""
    result = subprocess.run(
        ["sh", "-s"], input=script(["echo a", "mkdir 1.rc", *QUICK], 5), capture_output=True, check=False
    )
    assert (result.returncode, result.stdout) == (1, b"")
    assert result.stderr.startswith(b"there was no more room for answers in /")


SHELLS = {Path(path).resolve(): name for name in ("bash", "dash", "sh") if (path := shutil.which(name))}


@pytest.mark.parametrize("shell", SHELLS.values())
def test_any_posix_shell_runs_a_batch(shell: str) -> None:
    results = ask([*COMMANDS, "sleep 600"], 2, shell)
    assert [results[command].rc for command in COMMANDS[:2]] == [0, 3]
    assert results["sleep 600"].error


def test_time_on_the_node_is_never_negative() -> None:
    head = f"{batch.MAGIC.decode()} complete 5.0\n0.a 8\n0.err 0\n0.out 2\n0.rc 6\n\n"
    (result,) = unpack("gpu-01", ["x"], 5, head.encode() + b"99 50.1\n" + b"ok" + b"0 4.2\n")
    assert (result.rc, result.stdout, result.elapsed_s) == (0, b"ok", 0.0)


def test_nothing_stays_on_the_node() -> None:
    """Folders of other tests beside this one go by themselves."""

    def folders() -> set[Path]:
        return {path for parent in ("/dev/shm", "/tmp") for path in Path(parent).glob("rackproof.*")}

    before = folders()
    Shell("gpu-01").run("sh -s", 60, script(["echo x"], 5))
    left = folders() - before
    deadline = time.monotonic() + 60
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left &= folders()
    assert not left


@pytest.mark.parametrize(
    "damage",
    [
        lambda answer: b"",
        lambda answer: answer[:-1],
        lambda answer: answer + b"x",
        lambda answer: b"motd " + answer,
        lambda answer: answer.replace(b"0.out 6", b"0.out 7"),
        lambda answer: answer.replace(b"0.out 6", b"0.out x"),
        lambda answer: answer.replace(b"rackproof-batch/2", b"rackproof-batch/1"),
        lambda answer: answer.replace(b" complete ", b" perhaps "),
        lambda answer: b"sh: 1: Syntax error\n\n",
    ],
)
def test_a_damaged_answer_answers_nothing(damage: Callable[[bytes], bytes]) -> None:
    commands = ["echo hello"]
    answer = Shell("gpu-01").run("sh -s", 60, script(commands, 5)).stdout
    assert len(unpack("gpu-01", commands, 5, answer)) == 1
    assert unpack("gpu-01", commands, 5, damage(answer)) == []


def test_output_of_a_login_shell_before_the_answer_is_ignored() -> None:
    commands = ["echo hello"]
    answer = Shell("gpu-01").run("sh -s", 60, script(commands, 5)).stdout
    results = unpack("gpu-01", commands, 5, b"Welcome to\n\ngpu-01!\n" + answer)
    assert [result.stdout for result in results] == [b"hello\n"]


# The reader


def reader_of(shell: Shell | None, **options: Any) -> tuple[RecordingReader, list[CommandResult]]:
    seen: list[CommandResult] = []
    return RecordingReader("gpu-01", shell, timeout_s=60, on_result=seen.append, **options), seen


def test_a_recorded_command_is_not_run_again() -> None:
    shell = Shell("gpu-01")
    reader, seen = reader_of(shell, known=[CommandResult("gpu-01", "uname", 0, b"Plan9\n")])
    assert [reader.read("uname").text for _ in range(3)] == ["Plan9\n"] * 3
    assert (shell.commands, reader.misses) == ([], 0)
    assert [result.command for result in seen] == ["uname"]  # evidence once


def test_a_miss_is_asked_once_and_counted() -> None:
    shell = Shell("gpu-01")
    reader, seen = reader_of(shell)
    assert reader.read("echo x").text == "x\n"
    assert reader.read("echo x").text == "x\n"
    assert (shell.commands, reader.misses, len(seen)) == (["echo x"], 1, 1)


def test_a_recording_without_a_node_names_the_missing_command() -> None:
    reader, seen = reader_of(None)
    result = reader.read("uname -r")
    assert (result.rc, result.error) == (None, "not in the recording: uname -r")
    assert seen == []


def test_a_node_on_which_nothing_ends_is_given_up() -> None:
    class Stuck(Shell):
        def run(self, command: str, timeout_s: float, stdin: bytes | None = None) -> CommandResult:
            self.commands.append(command)
            return CommandResult("gpu-01", command, None, b"", b"", 5.1, 5.0, "not finished within 5 s")

    shell = Stuck("gpu-01")
    reader, _ = reader_of(shell)
    results = [reader.read(f"df {k}") for k in range(10)]
    assert len(shell.commands) == PATIENCE
    assert all(result.rc is None for result in results)
    assert results[-1].error == "given up after 3 commands that did not end (not finished within 5 s)"


def test_a_node_that_falls_silent_is_given_up_at_once() -> None:
    class Silent(Shell):
        def run(self, command: str, timeout_s: float, stdin: bytes | None = None) -> CommandResult:
            self.commands.append(command)
            return CommandResult("gpu-01", command, None, b"", b"", 5 + GRACE_S, 5.0, "no answer within 5 s")

    shell = Silent("gpu-01")
    reader, _ = reader_of(shell)
    assert reader.read("a").error == "no answer within 5 s"
    assert reader.read("b").error == "the node fell silent (no answer within 5 s)"
    assert shell.commands == ["a"]


def test_a_question_cannot_swallow_that_it_lacks_an_answer() -> None:
    reader, seen = reader_of(None)

    def question() -> None:
        try:
            reader.read("uname")
        except Exception as error:
            raise AssertionError("caught") from error

    assert reader.missing(question) == ("uname",)
    assert seen == []
    assert not issubclass(QuestionsNeeded, Exception)


# Round trips


def test_questions_are_answered_in_as_few_trips_as_their_chains_are_long() -> None:
    shells = Shells(Shell("gpu-01"), Shell("gpu-02"))
    readers = {name: RecordingReader(name, shells[name], timeout_s=60) for name in shells.connections}
    answers: dict[str, list[str]] = {"gpu-01": [], "gpu-02": []}

    def chain(name: str) -> Callable[[], None]:
        def ask() -> None:
            first = readers[name].read("echo one").text.strip()
            second = readers[name].read(f"echo {first} two").text.strip()
            answers[name].append(second)

        return ask

    def single(name: str, k: int) -> Callable[[], object]:
        return lambda: readers[name].read(f"echo {k % 3}")

    questions = {name: [chain(name), *(single(name, k) for k in range(9))] for name in readers}
    assert gather(shells, readers, questions).trips == 2  # type: ignore[arg-type]
    for name, shell in shells.connections.items():
        assert shell.commands == ["sh -s", "sh -s"]
        chain(name)()
        assert answers[name][-1] == "one two"
        assert readers[name].misses == 0
        assert list(readers[name].used) == ["echo one", "echo one two"]  # trying out leaves no trace


def test_announced_commands_share_one_round_trip() -> None:
    shells = Shells(Shell("gpu-01"))
    reader = RecordingReader("gpu-01", shells["gpu-01"], timeout_s=60)

    def question() -> None:
        reader.announce(["echo 1", "echo 2", "echo 3"])
        for k in (1, 2, 3):
            reader.read(f"echo {k}")

    assert gather(shells, {"gpu-01": reader}, {"gpu-01": [question]}).trips == 1  # type: ignore[arg-type]
    question()
    assert (reader.misses, list(reader.used)) == (0, ["echo 1", "echo 2", "echo 3"])


def test_an_unreachable_node_costs_one_attempt_and_delays_no_other() -> None:
    shells = Shells(Unreachable("gpu-01"), Shell("gpu-02"))
    seen: list[CommandResult] = []
    readers = {n: RecordingReader(n, shells[n], timeout_s=60, on_result=seen.append) for n in shells.connections}
    questions: Any = {n: [lambda n=n, k=k: readers[n].read(f"echo {k}") for k in range(20)] for n in readers}
    gather(shells, readers, questions)  # type: ignore[arg-type]
    assert shells["gpu-01"].commands == ["sh -s"]
    assert readers["gpu-01"].read("echo 7").error == "no connection within 20 s"
    assert readers["gpu-02"].read("echo 7").text == "7\n"
    assert [result.error for result in seen] == ["no connection within 20 s", None]


def test_a_node_without_a_place_for_the_batch_is_asked_command_by_command() -> None:
    class NoSpace(Shell):
        def run(self, command: str, timeout_s: float, stdin: bytes | None = None) -> CommandResult:
            if stdin:
                self.commands.append(command)
                return CommandResult("gpu-01", command, 1, b"", b"mktemp: No space left on device\n", 0.1, timeout_s)
            return super().run(command, timeout_s)

    shells = Shells(NoSpace("gpu-01"))
    readers = {"gpu-01": RecordingReader("gpu-01", shells["gpu-01"], timeout_s=60)}
    gather(shells, readers, {"gpu-01": [lambda: readers["gpu-01"].read("echo x")]})  # type: ignore[arg-type]
    assert readers["gpu-01"].read("echo x").text == "x\n"
    assert (readers["gpu-01"].misses, shells["gpu-01"].commands) == (1, ["sh -s", "true", "echo x"])


def test_questions_without_an_end_stop_after_so_many_rounds() -> None:
    shells = Shells(Shell("gpu-01"))
    reader = RecordingReader("gpu-01", shells["gpu-01"], timeout_s=60)

    def endless() -> None:
        for k in range(100):
            reader.read(f"echo {k}")

    assert gather(shells, {"gpu-01": reader}, {"gpu-01": [endless]}, rounds=3).trips == 3  # type: ignore[arg-type]
    assert shells["gpu-01"].commands == ["sh -s"] * 3


def test_the_reader_gives_the_same_results_from_a_batch() -> None:
    shells = Shells(Shell("gpu-01"))
    batched, single = (RecordingReader("gpu-01", shells["gpu-01"], timeout_s=60) for _ in range(2))
    assert fetch(shells, {"gpu-01": batched}, {"gpu-01": COMMANDS})  # type: ignore[arg-type]
    for command in COMMANDS:
        assert facts(batched.read(command)) == facts(single.read(command))
    assert (batched.misses, single.misses) == (0, len(COMMANDS))


@given(st.integers(30, 10_000), st.integers(0, 500))
def test_the_longest_limit_is_the_inverse_of_a_batchs_budget(budget: int, count: int) -> None:
    limit = batch.longest_limit_s(budget, count)
    assert batch.budget_s(limit, count) <= budget < batch.budget_s(limit + 1, count)


def test_limits_leave_room_for_the_slowest_command() -> None:
    assert batch.budget_s(20, 0) > 20
    assert batch.ANSWER_LIMIT + batch.STREAM_LIMIT <= OUTPUT_LIMIT
    assert collect.TRIP_GRACE_S > 0
