"""Many commands in one round trip: the script that a node runs, and how its answer is unpacked. Pure.

Each command is started as ``Connection.run`` starts it, so that it cannot matter which way it was read. A few workers
walk along the list, and each takes the next free command; a worker is a process group of its own
under ``timeout``. Limits for every single command would cost a small node more than the commands do, so one clock
looks at all of them once a second:

* commands that are not back after a moment no longer hold up the others: when no worker is left that moves on, another
  is hired;
* one that is not back within its limit ends with its worker. What cannot even be killed is left behind;
* output above its limit ends a command that still runs, and is dropped. The limit on the size of files keeps it from
  filling memory between two looks; it is far above the limit on output, because tools write caches;
* what has not been started when the time of the whole batch is over is not in the answer, and is asked again.

Time is counted in seconds slept and in ``/proc/uptime``, never by the node's clock, which may be wrong or be set.

The answer is a line about the batch, a list of files (``3.out 17``), an empty line, and their contents in the same
order. For command 3 there are ``3.a`` (taken: by whom, and when), ``3.err``, ``3.out`` and ``3.rc`` (exit status, and
when), or one of the marks ``3.late`` and ``3.big``.

Where answers do not fit into memory or on the disk, tools print less than they meant to, and many of them say nothing.
Nothing is freed before it has been tried whether there is still room, so a full disk has no room for ``3.rc``
either; then the file ``room`` goes, and nothing of the whole batch is believed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rackproof import shell
from rackproof.remote.command import KILL_AFTER_S, NOT_FINISHED, CommandResult, program, timed_out

WORKERS = 2
"""More would only make the commands of a node wait for each other; one where there are no more than two processors."""
MOST_WORKERS = 10
"""With those that are hired because a command does not come back."""
MOMENT_S = 5
"""Seconds after which a command may hang: another worker continues with the others."""
BUSY_MOMENT_S = 30
"""The same while processes wait for a processor: more workers would only slow the node down."""
STREAM_LIMIT = 4 * 1024 * 1024
"""Bytes of one stream of one command."""
ANSWER_LIMIT = 12 * 1024 * 1024
"""Bytes of a whole answer; what exceeds it is asked again."""
FILE_LIMIT = 128 * 1024 * 1024
"""Size of any file that a command writes, bytes."""
PLACES = ("/dev/shm", "/run", "/tmp", "/var/tmp")  # noqa: S108  (made with mktemp)
MAGIC = b"rackproof-batch/2"


@dataclass(frozen=True, slots=True)
class _Answer:
    complete: bool
    """Every worker has come to its end."""
    uptime_s: float
    """Of the node when it answered; 0 where it does not say."""
    files: dict[str, bytes]


def budget_s(timeout_s: float, count: int) -> int:
    """How long the script collects ``count`` answers: three commands in a row that hang, and half a second for each.

    That is for an emulated node on a busy machine; a server needs a hundredth of it.
    """
    return 3 * (math.ceil(timeout_s) + KILL_AFTER_S + 2) + count // 2


def script(commands: Sequence[str], timeout_s: float) -> bytes:
    """A POSIX shell script for ``sh -s``."""
    over = math.ceil(timeout_s) + 1
    text = shell.script(
        __name__,
        "batch",
        *commands,
        magic=MAGIC.decode(),
        kill_after_s=KILL_AFTER_S,
        budget_s=budget_s(timeout_s, len(commands)),
        busy_moment_s=min(BUSY_MOMENT_S, over),
        moment_s=min(MOMENT_S, over),
        over_s=over,
        gone_s=over + KILL_AFTER_S + 1,
        stream_limit=STREAM_LIMIT,
        answer_limit=ANSWER_LIMIT,
        places=" ".join(PLACES),
        room_bytes=1024 * 1024,
        last=len(commands) - 1,
        workers_wanted=min(WORKERS, len(commands)),
        most_workers=MOST_WORKERS,
        most_hired=len(commands) + WORKERS,
        worker_code=shell.script(__name__, "batch_worker", blocks=FILE_LIMIT // 512),
    )
    return f"{text}\n".encode()


def unpack(node: str, commands: Sequence[str], timeout_s: float, answer: bytes) -> list[CommandResult]:
    """The results that the answer holds, in the order of ``commands``.

    A command that was under way for longer than its limit, printed too much or took its shell down with it has an
    error instead of an exit status. One that was never started, or whose part of the answer does not add up, is
    left out: it has to be asked again. What a login shell prints before the answer is no part of it.
    """
    read = _read(answer)
    if read is None:
        return []
    results = (_result(node, command, timeout_s, read, str(index)) for index, command in enumerate(commands))
    return [result for result in results if result is not None]


def _read(answer: bytes) -> _Answer | None:
    """None when the answer is damaged or cut."""
    at = answer.find(MAGIC + b" ")
    if at < 0 or (at > 0 and answer[at - 1 : at] != b"\n"):
        return None
    head, blank, body = answer[at:].partition(b"\n\n")
    first, *lines = head.decode("ascii", errors="replace").split("\n")
    files: dict[str, bytes] = {}
    at = 0
    try:
        _, how, uptime = first.split(" ")
        for line in lines:
            name, size = line.split(" ")
            files[name] = body[at : at + int(size)]
            at += int(size)
        if not blank or at != len(body) or how not in ("complete", "stopped"):
            return None
        return _Answer(how == "complete", float(uptime), files)
    except ValueError:
        return None


def _result(node: str, command: str, timeout_s: float, answer: _Answer, number: str) -> CommandResult | None:
    taken = answer.files.get(f"{number}.a", b"").split()
    if not taken:
        return None
    began = _seconds(taken[1:2])

    def error(reason: str, ended: float = answer.uptime_s, out: bytes = b"", err: bytes = b"") -> CommandResult:
        elapsed = max(0.0, ended - began) if began else 0.0
        return CommandResult(node, command, None, out, err, elapsed, timeout_s, reason)

    if f"{number}.big" in answer.files:
        return error(f"printed more than {STREAM_LIMIT} bytes")
    if f"{number}.late" in answer.files:
        return error(f"{NOT_FINISHED}{timeout_s:g} s")
    end = answer.files.get(f"{number}.rc")
    if end is None:
        return error("it ended the shell that ran it") if answer.complete else None
    out, err = answer.files.get(f"{number}.out"), answer.files.get(f"{number}.err")
    rc, *ended = end.split()
    if rc == b"hung":
        return error(f"{program(command)} is not asked again: it did not finish before", began)
    if out is None or err is None or not rc.isdigit():
        return None
    if timed_out(int(rc)):
        return error(f"{NOT_FINISHED}{timeout_s:g} s", _seconds(ended), out, err)
    elapsed = max(0.0, _seconds(ended) - began) if began else 0.0
    return CommandResult(node, command, int(rc), out, err, elapsed, timeout_s)


def _seconds(words: Sequence[bytes]) -> float:
    """A time in ``/proc/uptime``; 0 where there is none."""
    try:
        return float(words[0])
    except (IndexError, ValueError):
        return 0.0
