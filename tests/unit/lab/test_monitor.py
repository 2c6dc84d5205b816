"""Requests to QEMU, with a server in the place of one."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rackproof.errors import LabError
from rackproof.lab import monitor

GREETING: object = {"QMP": {"version": {}}}
EVENT: object = {"event": "RTC_CHANGE", "data": {}}
Qemu = Callable[..., list[str]]


@pytest.fixture
def qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Qemu:
    """Starts a server that greets and then gives these answers, one a request; returns the requests."""
    node = tmp_path / "gpu-01"
    node.mkdir()
    monkeypatch.chdir(node)  # a unix socket's path may have 108 bytes only

    def start(*answers: list[object]) -> list[str]:
        asked: list[str] = []
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(monitor.SOCKET)
        listener.listen()

        def serve() -> None:
            with listener, listener.accept()[0] as client, client.makefile("rwb") as stream:
                stream.write(json.dumps(GREETING).encode() + b"\r\n")
                stream.flush()
                for lines in answers:
                    asked.append(json.loads(stream.readline())["execute"])
                    for line in lines:
                        stream.write(json.dumps(line).encode() + b"\r\n")
                    stream.flush()

        threading.Thread(target=serve, daemon=True).start()
        return asked

    return start


def test_events_between_question_and_answer_are_skipped(tmp_path: Path, qemu: Qemu) -> None:
    asked = qemu([EVENT, {"return": {}}], [EVENT, EVENT, {"return": {}}])
    monitor.ask(tmp_path / "gpu-01", {"execute": "set_link"})
    assert asked == ["qmp_capabilities", "set_link"]


@pytest.mark.parametrize(
    ("answers", "complaint"),
    [
        ([[{"return": {}}], [{"error": {"desc": "Device 'x' not found"}}]], "gpu-01: set_link: Device 'x' not found"),
        ([[{"return": {}}], [EVENT]], "gpu-01: QEMU's monitor does not answer"),
        ([[{"return": {}}]], "gpu-01: QEMU's monitor does not answer"),
    ],
)
def test_a_refusal_and_a_silence_are_errors_that_name_the_node(
    tmp_path: Path, qemu: Qemu, answers: list[list[object]], complaint: str
) -> None:
    qemu(*answers)
    with pytest.raises(LabError, match=complaint):
        monitor.ask(tmp_path / "gpu-01", {"execute": "set_link"})


def test_a_node_without_a_monitor_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="gpu-01: QEMU's monitor does not answer"):
        monitor.ask(tmp_path / "gpu-01", {"execute": "set_link"})
