"""Signals: the first one ends a run in an orderly way, the second one ends the program at once.

Imports little: it runs before everything else.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

STOPPING = threading.Event()
"""Set by the first signal: no further command is sent, and nothing waits for running ones."""
LIMIT_S = 6.0
"""Seconds from the first signal until the program stops waiting for an orderly end, and ends itself."""
LAST_S = 9.0
"""Seconds from the first signal until ``os._exit``, which works even if a full pipe or a lock blocks the program."""
WAKE_S = 0.2
"""Seconds between two attempts to wake a main thread that has not begun to handle a signal."""
CHILDREN_S = 1.0
"""Seconds that child processes have between SIGTERM and SIGKILL."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_first = signal.SIGINT
_lost = threading.Event()
"""Set if the KeyboardInterrupt was raised where Python cannot pass it on, such as in a finalizer."""
_Process = tuple[int, str]
"""Process id and start time: an id alone may already be another process's."""
_children: set[_Process] = set()
_last_words: list[Callable[[], None]] = []
_handled = threading.Event()
"""Set when the main thread begins to handle the latest signal."""
_told = threading.Lock()
"""The first thread that takes it prints how to continue, the main thread or the timer's; the other prints nothing."""


def handle_signals(last_words: Callable[[], None] = lambda: None) -> None:
    """Handle SIGINT, SIGTERM and SIGHUP; one that the parent process ignores (nohup) stays ignored.

    ``last_words`` is called when the program does not end in order within ``LIMIT_S``.
    """
    global _told
    _last_words[:], _told = [last_words], threading.Lock()
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _unraisable
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    _wake_main_thread()


def status() -> int:
    """Exit status of an interrupted program: 128 and the signal's number."""
    return 128 + _first


def tells() -> bool:
    """Whether the caller is the first that tells how to go on after a signal."""
    return not STOPPING.is_set() or _told.acquire(blocking=False)


def again() -> str:
    """How to go on if nothing of the run can be continued."""
    return f"start again with: {called()}"


def called() -> str:
    """The command of this process."""
    import shlex

    return shlex.join(["rackproof", *sys.argv[1:]])


def end_now() -> None:
    """End the program and its children, without waiting for threads; temporary folders are removed."""
    with contextlib.suppress(Exception):
        _end_children()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the terminal is closed, or the disk full
            stream.flush()
    os._exit(status())


def _wake_main_thread() -> None:
    """Have the main thread handle each signal at once, also a signal just before the thread begins to wait.

    Python runs a handler between two bytecodes: a system call that begins after the signal is not interrupted by it.
    """
    if signal.getsignal(signal.SIGURG) is _woken:
        return
    arrivals, sent = os.pipe()
    os.set_blocking(sent, False)
    signal.set_wakeup_fd(sent, warn_on_full_buffer=False)
    signal.signal(signal.SIGURG, _woken)
    threading.Thread(target=_wake, args=(arrivals, threading.main_thread()), daemon=True).start()


def _woken(number: int, frame: FrameType | None) -> None:
    """Nothing to do: the system call is interrupted, and Python runs the handler that waits."""


def _wake(arrivals: int, main: threading.Thread) -> None:
    while numbers := os.read(arrivals, 1):
        if numbers[0] in _SIGNALS:
            while not _handled.wait(WAKE_S) and main.ident is not None:
                signal.pthread_kill(main.ident, signal.SIGURG)
            _handled.clear()


def _stop(number: int, frame: FrameType | None) -> None:
    global _first
    _handled.set()
    if _lost.is_set():
        _lost.clear()
        raise KeyboardInterrupt
    if STOPPING.is_set():
        with contextlib.suppress(OSError):
            os.write(2, b"rackproof: ended at once; commands on the nodes end with their time limits\n")
        _end_children()
        os._exit(status())
    _first = signal.Signals(number)
    STOPPING.set()
    _children.update(_descendants())
    for seconds, end in ((LIMIT_S, _too_late), (LAST_S, lambda: os._exit(status()))):
        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
    raise KeyboardInterrupt


def _too_late() -> None:
    with contextlib.suppress(Exception):
        _last_words[0]()
    end_now()


def _unraisable(info: sys.UnraisableHookArgs) -> None:
    if info.exc_type is KeyboardInterrupt and STOPPING.is_set():
        _lost.set()
        _thread.interrupt_main(_first)
    else:
        sys.__unraisablehook__(info)


def _end_children() -> None:
    """End all descendants of this program in its own session. A further session is ended by the process that started
    it, or outlives this program on purpose."""
    _children.update(_descendants())
    for number in (signal.SIGTERM, signal.SIGKILL):
        left = [process for process in _children if _started(process[0]) == process[1]]
        for pid, _ in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        until = time.monotonic() + CHILDREN_S
        while time.monotonic() < until and any(_started(pid) == start for pid, start in left):
            time.sleep(0.02)


def _descendants() -> Iterator[_Process]:
    parents: dict[int, list[int]] = {}
    own = os.getsid(0)
    for path in Path("/proc").glob("[0-9]*/stat"):
        fields = _fields(path)
        if fields is not None and int(fields[3]) == own:
            parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    waiting = [os.getpid()]
    while waiting:
        for pid in parents.get(waiting.pop(), ()):
            waiting.append(pid)
            if start := _started(pid):
                yield pid, start


def _started(pid: int) -> str:
    """Start time of a process; empty where it has ended."""
    fields = _fields(Path(f"/proc/{pid}/stat"))
    return fields[19] if fields is not None and fields[0] not in "ZX" else ""


def _fields(path: Path) -> list[str] | None:
    """Fields from the third on (proc(5)): state, parent, group, session …"""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return None
    return text[text.rfind(")") + 2 :].split()
