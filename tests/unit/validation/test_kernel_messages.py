"""The kernel's log from its own buffer and from the journal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rackproof.validation.kernel_messages import KERNEL_LOG, kernel_messages

FIRST = "[    0.000000] Linux version 6.8.0"
ERROR = "mlx5_core 0000:1a:00.0: TX timeout detected"


def host(buffer: list[str], journal: list[str]) -> Any:
    def run(command: str) -> Any:
        lines = buffer if command == KERNEL_LOG else journal
        return SimpleNamespace(rc=0, stdout="".join(f"{line}\n" for line in [*lines, "status 0"]), stderr="")

    return SimpleNamespace(run=run, backend=SimpleNamespace(announce=lambda *commands: None))


def test_what_buffer_and_journal_both_have_counts_once() -> None:
    buffer = [f"[ 9000.000001] {ERROR}", f"[ 9100.000001] {ERROR}"]
    journal = [FIRST.replace("] ", "] gpu-01 kernel: "), f"[ 9000.000007] gpu-01 kernel: {ERROR}"]
    texts = [message.text for message in kernel_messages(host(buffer, journal))]
    assert texts == ["Linux version 6.8.0", ERROR, ERROR]


def test_the_journal_is_not_asked_where_the_buffer_is_whole() -> None:
    assert len(kernel_messages(host([FIRST, f"[ 12.000001] {ERROR}"], []))) == 2
