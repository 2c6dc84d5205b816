"""The first and the second signal end commands on nodes, waiting, and the program."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from rackproof.core.rack import Node, Rack
from rackproof.remote import fleet as fleets
from rackproof.remote.command import CommandResult, bounded, ending
from rackproof.remote.fleet import Fleet
from rackproof.remote.interrupt import STOPPING
from rackproof.remote.ssh import Connection

PROGRAM = """
import signal
import time
signal.signal({number}, signal.SIG_DFL)
from rackproof.remote.interrupt import handle_signals
handle_signals()
try:
    print("ready", flush=True)
    time.sleep(300)
except KeyboardInterrupt:
    print("in order", flush=True)
    time.sleep(0 if {once} else 300)
    raise SystemExit(7)
"""


UNNOTICED = """
import signal, threading, time
from rackproof.remote.interrupt import handle_signals
signal.signal({number}, signal.SIG_DFL)
handle_signals()
threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [{number}])
print("ready", flush=True)
time.sleep(300)
"""
"""Another thread gets the signal, so that no system call of the main thread is interrupted by it."""


BLOCKED = """
import os, signal, time
from rackproof.remote import interrupt
interrupt.LIMIT_S, interrupt.LAST_S = 0.1, 0.5
signal.signal(signal.SIGTERM, signal.SIG_DFL)
interrupt.handle_signals(lambda: os.write(2, b"x" * 10**7))
try:
    print("ready", flush=True)
    time.sleep(300)
except KeyboardInterrupt:
    time.sleep(300)
"""


@pytest.fixture
def stopping() -> Iterator[None]:
    STOPPING.set()
    yield
    STOPPING.clear()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("once", [True, False])
def test_the_first_signal_ends_in_order_and_the_second_at_once(number: signal.Signals, once: bool) -> None:
    program = PROGRAM.format(number=number.value, once=once)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.stdout.readline() == "in order\n"
    if not once:
        process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "ended at once" in err) == ((7, False) if once else (128 + number, True))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_interrupts_no_wait_is_handled_at_once(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", UNNOTICED.format(number=number.value)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in err


def test_an_output_that_nothing_reads_does_not_hold_the_program() -> None:
    process = subprocess.Popen([sys.executable, "-c", BLOCKED], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    try:
        assert process.wait(60) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.communicate()


def test_a_node_that_does_not_answer_delays_the_end_once(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection(Node("gpu-01", ("gpu",), {}))
    connection._connection = object()
    asked: list[str] = []

    def run(command: str, timeout_s: float, clean_up: bool) -> CommandResult:
        asked.append(command)
        return CommandResult("gpu-01", command, None, error="it did not start a command within 4 s")

    monkeypatch.setattr(connection, "_run", run)
    connection.clean_up("true")
    connection.end_commands()
    assert asked == ["true"]


def test_marked_commands_end_with_their_children_and_others_go_on() -> None:
    def start(mark: str) -> subprocess.Popen[bytes]:
        command = bounded("trap '' TERM; echo up; sleep 300 & wait; sleep 300", 300, "", mark)
        process = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    mine, other = start("aa11"), start("bb22")
    try:
        subprocess.run(["sh", "-c", ending("aa11")], timeout=60, check=False)
        mine.communicate(timeout=30)
        assert other.poll() is None
        left = subprocess.run(
            ["sh", "-c", "grep -lszxF RACKPROOF_COMMAND=aa11 /proc/[0-9]*/environ"],
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert left.stdout == b""
    finally:
        subprocess.run(["sh", "-c", ending("bb22")], timeout=60, check=False)
        other.communicate(timeout=30)


def test_after_an_interrupt_no_command_begins(stopping: None) -> None:
    connection = Connection(Node("gpu-01", ("gpu",), {"ssh_hostname": "192.0.2.1"}))
    assert connection._run("id", 30).error == "interrupted"
    assert connection._connection is None  # no connection was tried


def test_a_line_names_the_nodes_that_have_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleets, "WAIT_LINE_S", 0.05)
    fleet = Fleet(Rack("x.py", tuple(Node(f"gpu-0{k}", ("gpu",), {}) for k in (1, 2, 3))))
    named = threading.Event()

    def line(text: str) -> None:
        if re.fullmatch(r"waiting for gpu-\[02-03\]: nvidia-smi, \d+ s", text):
            named.set()

    def slow(connection: Connection) -> str:
        assert connection.node.name == "gpu-01" or named.wait(60)
        return connection.node.name

    fleet.on_wait = line
    names = [node.name for node in fleet.rack.nodes]
    assert fleet.each(names, slow, "nvidia-smi") == {name: name for name in names}
