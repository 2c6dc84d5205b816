"""Many commands in one round trip: the script that a node runs, and how its answer is unpacked. Pure.

Each command is started as ``Connection.run`` starts it, so that it cannot matter which way it was read. A few workers
walk along the list, and each takes the next command that nobody has taken; a worker is a process group of its own
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
Nothing is freed before it has been tried whether there is still room, so whoever lacked it lacks it for ``3.rc`` as
well; then the file ``room`` goes, and nothing of the whole batch is believed.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rackproof.remote.command import KILL_AFTER_S, CommandResult, timed_out

WORKERS = 2
"""More would only make the commands of a node wait for each other; one where there are no more than two processors."""
MOST_WORKERS = 10
"""With those that are hired because a command does not come back."""
MOMENT_S = 5
"""A command that takes longer may never come back: somebody else gets on with the others."""
BUSY_MOMENT_S = 30
"""The same while processes wait for a processor: then a command is slow, and more of them would make all slower."""
STREAM_LIMIT = 4 * 1024 * 1024
"""Bytes of one stream of one command."""
ANSWER_LIMIT = 12 * 1024 * 1024
"""Bytes of a whole answer; what exceeds it is asked again."""
FILE_LIMIT = 128 * 1024 * 1024
"""Size of any file that a command writes, bytes."""
PLACES = ("/dev/shm", "/run", "/tmp", "/var/tmp")  # noqa: S108  (made with mktemp)
MAGIC = b"rackproof-batch/2"

_WORKER = """\
ulimit -f @BLOCKS@ 2>/dev/null
set -C
n=-1
for c in "$@"; do
  n=$((n + 1))
  [ -e "$n.a" ] && continue
  { read t x </proc/uptime; echo "$PPID $t" >"$n.a"; } 2>/dev/null || continue
  sh -c "$c" </dev/null >"$n.out" 2>"$n.err"
  rc=$?
  { read t x </proc/uptime; echo "$rc $t" >"$n.rc"; } 2>/dev/null || rm -f room
done"""

_SCRIPT = """\
# @MAGIC@
hire() {
  live=$((live + 1)) hired=$((hired + 1))
  {
    timeout -k @KILL_AFTER@ @BUDGET@ sh -c @WORKER@ worker @COMMANDS@ 3>&- & worker=$!
    wait $worker
    : >"$worker.gone"
    echo end >&3
  } </dev/null >/dev/null 2>&1 &
}
dismiss() {
  read worker t <"$1.a" && ! [ -e "$worker.gone" ] && kill "$worker"
}
weigh() {
  sum=0
  set -- $(stat -c '%s %n' "$@")
  while [ $# -gt 1 ]; do
    if [ "$1" -le @STREAM_LIMIT@ ]; then
      sum=$((sum + $1))
    else
      { printf '%65536s' x >probe; } 2>/dev/null || rm -f room
      [ -s "${2%.*}.rc" ] || dismiss "${2%.*}"
      : >"${2%.*}.big"
      : >"$2"
    fi
    shift 2
  done
}
look() {
  # A node that is late itself misses looks: what counts is its uptime, where it has one.
  now=$((now + 1)) up=
  { read up x </proc/uptime; } && up=${up%.*} && now=$((up - ${began:=$up}))
  # A small node may be one of many that share a processor, and cannot see that it waits.
  [ $cpus -le 2 ] && busy=$now
  { read x x x runnable x </proc/loadavg; } && [ $((${runnable%/*} - 1)) -ge $cpus ] && busy=$now
  [ $((now - busy)) -lt @MOMENT@ ] && moment=@BUSY_MOMENT@ || moment=@MOMENT@
  stuck=0 n=$first
  set --
  while [ -e "$n.a" ]; do
    if ! [ -s "$n.rc" ]; then
      t=
      read worker t <"$n.a"
      if [ -n "$t" ] && [ -n "$up" ]; then
        t=$((up - ${t%.*}))
      else
        eval "t=\\$((\\${t$n:-0} + 1)); t$n=\\$t"
      fi
      [ "$t" -ge $moment ] && [ "$t" -le @GONE@ ] && stuck=$((stuck + 1))
      [ "$t" -ge @OVER@ ] && ! [ -e "$n.late" ] && : >"$n.late" && dismiss "$n"
      [ "$t" -ge 1 ] && set -- "$@" "$n.out" "$n.err"
    elif [ $n -eq $first ]; then
      first=$((n + 1))
    fi
    n=$((n + 1))
  done
  [ $# -eq 0 ] || weigh "$@"
}
stop() {
  kill "$clock"
  for a in *.a; do
    [ -s "${a%.a}.rc" ] || dismiss "${a%.a}"
  done
  cd /
  rm -rf "$d" || rm -rf "$d"
}
main() {
  umask 077
  LC_ALL=C
  export LC_ALL
  for place in @PLACES@; do
    d=$(mktemp -d "$place/rackproof.XXXXXX" 2>/dev/null) || continue
    cd "$d" && { printf '%@ROOM@s' x >room; } 2>/dev/null && break
    cd / && rm -rf "$d"
    d=
  done
  [ -n "$d" ] || { echo "no room for answers in @PLACES@" >&2; exit 1; }
  : >room
  mkfifo events && exec 3<>events || exit 1
  # Nothing here holds the script's own streams: what hangs must not keep the connection open.
  { while sleep 1; do echo tick; done; } </dev/null >&3 2>/dev/null & clock=$!
  trap 'stop 2>/dev/null' EXIT
  trap 'exit 143' TERM HUP INT
  live=0 hired=0 stuck=0 now=0 first=0 busy=-@MOMENT@ began= how=stopped
  cpus=$(getconf _NPROCESSORS_ONLN 2>/dev/null)
  [ "${cpus:-0}" -gt 0 ] 2>/dev/null || cpus=1000000
  [ $cpus -gt 2 ] && workers=@WORKERS@ || workers=1
  look 2>/dev/null
  while :; do
    [ $stuck -eq 0 ] && need=$workers || need=1
    while ! [ -e @LAST@.a ] && [ $((live - stuck)) -lt $need ] && [ $live -lt @MOST_WORKERS@ ] &&
      [ $hired -lt @MOST_HIRED@ ]; do
      hire
    done
    [ $live -eq 0 ] && how=complete && break
    read event <&3
    case $event in
      end) live=$((live - 1)) ;;
      tick) look 2>/dev/null; [ $now -lt @BUDGET@ ] || break ;;
    esac
  done
  weigh *.out *.err 2>/dev/null
  [ -e room ] || { echo "there was no more room for answers in $place" >&2; exit 1; }
  size=0 n=0
  set --
  while [ -e "$n.a" ]; do
    [ $sum -le @ANSWER_LIMIT@ ] || size=$((size + $(cat "$n.out" "$n.err" 2>/dev/null | wc -c)))
    [ $size -le @ANSWER_LIMIT@ ] || break
    set -- "$@" "$n.a"
    if [ -e "$n.big" ]; then
      set -- "$@" "$n.big"
    elif [ -s "$n.rc" ]; then
      set -- "$@" "$n.err" "$n.out" "$n.rc"
    elif [ -e "$n.late" ]; then
      set -- "$@" "$n.late"
    fi
    n=$((n + 1))
  done
  { read t x </proc/uptime; } 2>/dev/null
  echo "@MAGIC@ $how ${t:-0}"
  [ $# -eq 0 ] || stat -c '%n %s' "$@" || exit 1
  echo
  [ $# -eq 0 ] || cat "$@"
}
main
"""


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
    worker = _WORKER.replace("@BLOCKS@", str(FILE_LIMIT // 512))
    values = {
        "MAGIC": MAGIC.decode(),
        "KILL_AFTER": KILL_AFTER_S,
        "BUDGET": budget_s(timeout_s, len(commands)),
        "BUSY_MOMENT": min(BUSY_MOMENT_S, over),
        "MOMENT": min(MOMENT_S, over),
        "OVER": over,
        "GONE": over + KILL_AFTER_S + 1,
        "STREAM_LIMIT": STREAM_LIMIT,
        "ANSWER_LIMIT": ANSWER_LIMIT,
        "PLACES": " ".join(PLACES),
        "ROOM": 1024 * 1024,
        "LAST": len(commands) - 1,
        "WORKERS": min(WORKERS, len(commands)),
        "MOST_WORKERS": MOST_WORKERS,
        "MOST_HIRED": len(commands) + WORKERS,
        "WORKER": shlex.quote(worker),
        "COMMANDS": " ".join(map(shlex.quote, commands)),  # the last: what a command says is not looked at again
    }
    text = _SCRIPT
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text.encode()


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
        return error(f"not finished within {timeout_s:g} s")
    end = answer.files.get(f"{number}.rc")
    if end is None:
        return error("it ended the shell that ran it") if answer.complete else None
    out, err = answer.files.get(f"{number}.out"), answer.files.get(f"{number}.err")
    rc, *ended = end.split()
    if out is None or err is None or not rc.isdigit():
        return None
    if timed_out(int(rc)):
        return error(f"not finished within {timeout_s:g} s", _seconds(ended), out, err)
    elapsed = max(0.0, _seconds(ended) - began) if began else 0.0
    return CommandResult(node, command, int(rc), out, err, elapsed, timeout_s)


def _seconds(words: Sequence[bytes]) -> float:
    """A time in ``/proc/uptime``; 0 where there is none."""
    try:
        return float(words[0])
    except (IndexError, ValueError):
        return 0.0
