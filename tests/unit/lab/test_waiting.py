"""Waiting for guests that boot."""

from __future__ import annotations

import socket
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rackproof.lab import rack
from rackproof.lab.rack import Lab


@pytest.mark.parametrize(("login", "answers"), [(0, True), (255, False), (None, False)])
def test_a_login_that_takes_too_long_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, login: int | None, answers: bool
) -> None:
    def run(command: list[str], timeout: float, **more: Any) -> subprocess.CompletedProcess[bytes]:
        if login is None:
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, login)

    monkeypatch.setattr(rack.subprocess, "run", run)
    monkeypatch.setattr(Lab, "ssh_command", lambda *rest: ["ssh"])
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            guest, _ = server.accept()
            with guest:
                guest.sendall(b"SSH-2.0-x\r\n")

        greeter = threading.Thread(target=greet, daemon=True)
        greeter.start()
        spec: Any = SimpleNamespace(wiring=SimpleNamespace(ssh_port={"gpu-01": server.getsockname()[1]}))
        assert Lab(tmp_path)._answers(spec, "gpu-01") is answers
        greeter.join(60)
