"""Many commands in one round trip: the node's script, and the parser of its answer. Pure.

Commands start as in ``Connection.run``, so that results do not depend on the way. A few workers, each in its own
process group under ``timeout``, take the commands in turn. A time limit for each command would cost a small node more
than the commands, so one loop looks at all of them once a second:

* a command that takes long does not block the others: if all workers are stuck, another one starts;
* a command that exceeds its limit is killed with its worker, or left behind if it cannot be killed;
* a command whose output exceeds its limit is killed, and the output dropped. The limit on file sizes (``ulimit``)
  bounds the memory between two looks; it is far above the limit on output, because tools write caches;
* commands that have not started when the time of the batch is over are missing in the answer, and are sent again.

Time is that of ``/proc/uptime`` or seconds slept; the node's clock may be wrong or be set.

The answer is a line about the batch, a list of files with sizes (``3.out 17``), an empty line, and the files' contents
in that order. The files of command 3 are ``3.a`` (process id of its worker, start), ``3.err``, ``3.out`` and ``3.rc``
(exit status, end), or one of the marks ``3.late`` and ``3.big``.

When memory or the disk is full, tools print less, and many report no error. Writing ``3.rc`` fails then as well,
because no space is freed before it; the script removes the file ``room``, and the whole batch is discarded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rackproof import shell
from rackproof.remote.command import KILL_AFTER_S, CommandResult, not_finished, program, timed_out

WORKERS = 2
"""One on nodes with one or two processors; more workers only compete for processors."""
MOST_WORKERS = 10
"""Maximum, with those that start because others are stuck."""
MOMENT_S = 5
"""Seconds after which a command counts as stuck."""
BUSY_MOMENT_S = 30
"""The same while processes wait for a processor: more workers would slow the node down."""
STREAM_LIMIT = 4 * 1024 * 1024
"""Maximum bytes of one stream of a command."""
ANSWER_LIMIT = 12 * 1024 * 1024
"""Maximum bytes of a batch's answer; the remaining commands are sent again."""
FILE_LIMIT = 128 * 1024 * 1024
"""Maximum size of files that commands write, bytes."""
PLACES = ("/dev/shm", "/run", "/tmp", "/var/tmp")  # noqa: S108  (made with mktemp)
MAGIC = b"rackproof-batch/2"


@dataclass(frozen=True, slots=True)
class _Answer:
    complete: bool
    """All workers have ended."""
    uptime_s: float
    """Uptime of the node at the answer; 0 if unknown."""
    files: dict[str, bytes]


def budget_s(timeout_s: float, count: int) -> int:
    """Time limit of a batch: three hanging commands in a row, and half a second for each command.

    Emulated nodes on a busy host need it; a server needs a hundredth.
    """
    return 3 * (math.ceil(timeout_s) + KILL_AFTER_S + 2) + count // 2


def longest_limit_s(budget: float, count: int) -> float:
    """The largest time limit of a command with which a batch of ``count`` commands ends within ``budget`` seconds."""
    return (budget - count // 2) // 3 - KILL_AFTER_S - 2


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
    """Results in the answer, in the order of ``commands``.

    A command that exceeded its time or output limit, or killed its shell, has an error instead of an exit status.
    Commands that did not start, or whose part is damaged, are missing and must be sent again. Output of the login shell
    before the answer is ignored.
    """
    read = _read(answer)
    if read is None:
        return []
    results = (_result(node, command, timeout_s, read, str(index)) for index, command in enumerate(commands))
    return [result for result in results if result is not None]


def _read(answer: bytes) -> _Answer | None:
    """None for a damaged or truncated answer."""
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
        return error(not_finished(timeout_s))
    end = answer.files.get(f"{number}.rc")
    if end is None:
        return error("the command ended its own shell") if answer.complete else None
    out, err = answer.files.get(f"{number}.out"), answer.files.get(f"{number}.err")
    rc, *ended = end.split()
    if rc == b"hung":
        return error(f"{program(command)} is not asked again: it did not finish before", began)
    if out is None or err is None or not rc.isdigit():
        return None
    if timed_out(int(rc)):
        return error(not_finished(timeout_s), _seconds(ended), out, err)
    elapsed = max(0.0, _seconds(ended) - began) if began else 0.0
    return CommandResult(node, command, int(rc), out, err, elapsed, timeout_s)


def _seconds(words: Sequence[bytes]) -> float:
    """A time of ``/proc/uptime``; 0 if absent."""
    try:
        return float(words[0])
    except (IndexError, ValueError):
        return 0.0
