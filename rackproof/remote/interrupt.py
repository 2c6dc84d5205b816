"""Signals: the first one ends a run in order, the second one ends the program at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from rackproof.errors import EXIT_INTERRUPTED

STOPPING = threading.Event()
"""Set by the first signal: no further command is sent to a node, and nothing waits for one that runs."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def handle_signals() -> None:
    """Handle SIGINT, SIGTERM and SIGHUP; one that the parent process ignores (nohup) stays ignored."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    if STOPPING.is_set():
        os.write(2, b"rackproof: ended at once; commands on the nodes end with their time limits\n")
        os._exit(EXIT_INTERRUPTED)
    STOPPING.set()
    raise KeyboardInterrupt
