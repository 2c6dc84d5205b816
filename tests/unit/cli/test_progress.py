"""Lines in the log of a running run."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from rackproof.cli import progress


def test_a_log_is_never_silent_for_long_and_never_chatty(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    out = io.StringIO()
    plain = progress.Plain(Console(file=out))
    plain.stage("deploy", None)
    for second, title in enumerate(["Files", "Packages", "Mounts", "Services"]):
        now = 20.0 * second
        plain.step(title, 0, 0, None)
    plain.step("nfs-tcp read", 3, 7, 65.0)
    assert out.getvalue().splitlines() == [
        "[ 0:00] deploy",
        "[ 0:40]   Mounts",
        "[ 1:00]   3/7 nfs-tcp read, about 1:05 left",
    ]
